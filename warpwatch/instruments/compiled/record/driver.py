"""A Triton driver for a GPU that is not there: it compiles for a target and records launches.

Host code runs unmodified. A launch becomes a :class:`Launch` instead of work, a kernel that does
not compile or does not fit becomes a :class:`Failure`, at every launch of it, and the host code
goes on. Which configuration of an autotuned kernel is recorded: see :mod:`.autotune`.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver as triton_driver
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.formats import ir, work
from warpwatch.instruments.compiled.formats.errors import one_line
from warpwatch.instruments.compiled.formats.recording import (
    Failure,
    HarnessError,
    Kernel,
    Launch,
    Tuned,
)

from . import addresses, autotune, refusals
from .answers import Utilities
from .arguments import describe, flatten_attributes, tensor_of
from .compiler_cache import Reused
from .known_values import Known
from .torch import cuda as torch_cuda

# JIT functions keep what they compiled by device number: a number used once keeps targets apart.
_DEVICE_NUMBERS = itertools.count(1 << 16)
_TEXTS = ("ttir", "ttgir", "ptx", "amdgcn")
# Whoever runs compilers in processes that they may end, or never end, hears of each kernel first,
# and with an empty name once none is compiled any more.
on_compiling: Callable[[str], None] | None = None


class RecordingDriver(DriverBase):  # type: ignore[misc]  # Triton is not typed
    """See the module. ``records_launches`` tells host code that CPU tensors are welcome. Without
    ``known`` no values of arguments are kept."""

    records_launches = True

    def __init__(self, target: Target, known: Known | None = None) -> None:
        super().__init__()
        self.target = target
        self._reused = Reused()
        self._known = known
        self.launches: list[Launch] = []
        self.failures: list[Failure] = []
        self.notes: list[str] = []
        self.tuned: list[Tuned] = []
        self.broken: HarnessError | None = None
        self.utils = Utilities(target)
        self._kernels: dict[str, Kernel] = {}
        self._stores: dict[int, frozenset[str] | None] = {}
        self._log = io.StringIO()
        self._number = next(_DEVICE_NUMBERS)

    # What Triton asks of any driver ---------------------------------------------------------

    @classmethod
    def is_active(cls) -> bool:
        return True

    def get_current_target(self) -> GPUTarget:
        return GPUTarget(self.target.backend, self.target.arch, self.target.warp_size)

    def get_current_device(self) -> int:
        return self._number

    def set_current_device(self, device: int) -> None: ...

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_device_capability(self, device: int | None = None) -> tuple[int, int]:
        return torch_cuda.capability(self.target)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> types.ModuleType:
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise torch_cuda.NotAnsweredError("there is no C launcher while launches are recorded")

    def get_benchmarker(self) -> Callable[..., Any]:
        def refused(*_: Any, **__: Any) -> Any:
            raise torch_cuda.NotAnsweredError(
                "timing a kernel is not answered without a GPU: pass a configuration"
            )

        return refused

    def get_empty_cache_for_benchmark(self) -> Any:
        return self.get_benchmarker()()

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """Triton's launcher: called as the real one is, it notes the launch."""
        names = list(src.fn.arg_names)
        attributes = flatten_attributes(names, getattr(src, "attrs", {}))
        source = str(getattr(getattr(src.fn.fn, "__code__", None), "co_filename", ""))
        signature = {str(name): str(kind) for name, kind in src.signature.items()}

        def record(x: int, y: int, z: int, *rest: Any) -> None:
            # stream, function, packed metadata, launch metadata, two hooks, then the arguments
            values = rest[6:]
            with self.ours(f"noting a launch of {metadata.name}"):
                launch = Launch(
                    kernel=self._kernels[metadata.hash],
                    grid=(int(x), int(y), int(z)),
                    arguments={
                        name: describe(value, self._known)
                        for name, value in zip(names, values, strict=False)
                    },
                    signature=signature,
                    attributes=attributes,
                    file=source,
                )
                given = dict(zip(names, values, strict=False))
                if not launch.programs:
                    return
                refused = refusals.of_launch(metadata, self.target, given, self._known)
                if refused:
                    self._refuse(metadata.name, refused)
                else:
                    self.launches.append(launch)
                    self._forget(launch.kernel, src.fn, given)

        return record

    def _forget(self, kernel: Kernel, fn: Any, arguments: Mapping[str, Any]) -> None:
        """What a kernel stores is unknown: it never ran. One that only makes a table may have a
        twin in Python, ``plainly``: from its arguments by name, known tensors as lists of their
        numbers, it makes lists by the names of what the kernel stores."""
        if self._known is None:
            return
        given = {name: tensor_of(value) for name, value in arguments.items()}
        tensors = {name: one for name, one in given.items() if one is not None}
        known = {name: one for name, one in tensors.items() if self._known(one)}
        if not known:
            return
        if id(kernel) not in self._stores:
            self._stores[id(kernel)] = work.stored_arguments(ir.parse(kernel.texts["ttgir"]))
        stored = self._stores[id(kernel)]
        for name, tensor in known.items():
            if stored is None or name in stored:
                self._known.mark(tensor, False)
        plainly = getattr(fn, "plainly", None)
        if plainly is None or stored is None or not tensors.keys() <= known.keys() | stored:
            return
        numbers = {name: self._known.numbers(one) for name, one in known.items()}
        plain = {name: getattr(value, "value", value) for name, value in arguments.items()}
        for name, table in plainly(**plain | numbers).items():
            self._known.fill(tensors[name], table)

    def remark(self, text: str) -> None:
        """Say it once."""
        if text not in self.notes:
            self.notes.append(text)

    def prepare(self, original: Callable[..., Any], kernel: Any) -> None:
        """``CompiledKernel._init_handles``, before a kernel's first launch. One over a limit of the
        device gets a launcher that refuses, the first time and every other."""
        fresh = kernel.module is None
        reason = refusals.over_limit(kernel.metadata, self.target) if fresh else ""
        if not reason:
            return original(kernel)  # type: ignore[no-any-return]
        name = str(kernel.metadata.name)
        chosen = refusals.configuration(kernel)

        def refuse(*_: Any) -> None:
            self._refuse(name, f"{reason} ({chosen})")

        kernel._run = refuse

    def _refuse(self, name: str, reason: str) -> None:
        self.failures.append(Failure(name, "resources", f"launch refused: {reason}"))

    @contextmanager
    def ours(self, doing: str) -> Iterator[None]:
        """What fails inside is the harness's mistake, whoever called: host code that catches
        everything does not hide it."""
        try:
            yield
        except Exception as error:
            self.broken = self.broken or HarnessError(f"{doing}: {one_line(error)}")
            raise self.broken from error

    # What the compiler tells ----------------------------------------------------------------

    def heard_of_compilation(
        self,
        *,
        metadata: Mapping[str, Any],
        metadata_group: Mapping[str, str],
        times: Any,
        cache_hit: bool = False,
        **_: Any,
    ) -> None:
        """Triton's compilation listener."""
        with self.ours(f"reading what the compiler left of {metadata.get('name')}"):
            self._keep(metadata, metadata_group, times, cache_hit)

    def _keep(
        self,
        metadata: Mapping[str, Any],
        metadata_group: Mapping[str, str],
        times: Any,
        cache_hit: bool,
    ) -> None:
        files = {Path(path).suffix[1:]: Path(path) for path in metadata_group.values()}
        folder = next(iter(files.values())).parent
        said = (self._log.getvalue(), times.total / 1e6)
        log, seconds = self._reused.heard(folder, metadata, None if cache_hit else said)
        binary = files["cubin" if self.target.backend == "cuda" else "hsaco"].read_bytes()
        self._kernels[metadata["hash"]] = Kernel(
            name=str(metadata["name"]),
            target=self.target,
            binary=binary,
            texts={text: files[text].read_text() for text in _TEXTS if text in files},
            num_warps=int(metadata["num_warps"]),
            num_ctas=int(metadata.get("num_ctas", 1)),
            num_stages=int(metadata.get("num_stages", 1)),
            shared_bytes=int(metadata["shared"]),
            log=log,
            compile_seconds=seconds,
            triton_version=str(metadata["triton_version"]),
        )

    def compile(self, original: Callable[..., Any], function: Any, *args: Any) -> Any:
        """``JITFunction._do_compile`` that turns errors into failures and returns ``None``."""
        self._log = io.StringIO()
        name = str(getattr(function, "__name__", function))
        if on_compiling is not None:
            on_compiling(name)
        try:
            with contextlib.redirect_stdout(self._log), knobs.runtime.scope():
                # Here alone: Triton asks for it at every launch, which is timed elsewhere.
                knobs.runtime.add_stages_inspection_hook = self._reused
                return original(function, *args)
        except (KeyboardInterrupt, SystemExit, MemoryError, HarnessError):
            raise
        except OSError as error:  # no room in the cache, no ptxas: the kernel cannot help it
            with self.ours(f"compiling {name}"):
                raise error
        except BaseException as error:  # the compilers raise what they like
            self.failures.append(
                Failure(name, "compile", one_line(error), f"{error}\n{self._log.getvalue()}")
            )
            return None
        finally:
            if on_compiling is not None:
                on_compiling("")


def _recording() -> RecordingDriver | None:
    now = triton_driver._active
    return now if isinstance(now, RecordingDriver) else None


@contextmanager
def active(target: Target, known: Known | None = None) -> Iterator[RecordingDriver]:
    """Makes a recording driver Triton's active one, and puts back what was active before."""
    config = triton_driver
    before = config._active
    recorder = RecordingDriver(target, known)
    compile_one, tune_one = JITFunction._do_compile, Autotuner.run
    prepare_one = CompiledKernel._init_handles

    def compiling(function: Any, *args: Any) -> Any:
        return recorder.compile(compile_one, function, *args)

    def preparing(kernel: Any) -> None:
        recorder.prepare(prepare_one, kernel)

    def tuning(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return autotune.run(recorder, tune_one, tuner, *args, **kwargs)

    kept = os.environ.get(CACHE_VARIABLE)
    with (
        contextlib.nullcontext(kept)
        if kept
        else tempfile.TemporaryDirectory(prefix="compiled-") as cache,
        knobs.cache.scope(),
        knobs.compilation.scope(),
        knobs.nvidia.scope(),
        addresses.fixed(),
        autotune.derived(_recording),
    ):
        knobs.cache.dir = cache
        knobs.compilation.listener = recorder.heard_of_compilation
        # Line numbers would make the code of two equal kernels differ.
        knobs.compilation.disable_line_info = True
        knobs.compilation.store_binary_only = False  # the texts are read
        knobs.nvidia.dump_ptxas_log = True
        config.set_active(recorder)
        JITFunction._do_compile, Autotuner.run = compiling, tuning
        CompiledKernel._init_handles = preparing
        try:
            yield recorder
        finally:
            JITFunction._do_compile, Autotuner.run = compile_one, tune_one
            CompiledKernel._init_handles = prepare_one
            config._active = before

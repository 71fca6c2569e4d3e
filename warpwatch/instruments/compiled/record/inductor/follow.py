"""Lets ``torch.compile`` work in a recorded call, for the GPU that is not there.

Dynamo traces the function and Inductor generates its kernels, both as on a card. The generated host
code then runs as any other does: its launches and torch's own operations are recorded. What else
traces with torch's fake tensors and generates Triton code, as Helion does, is helped by the same.

Nothing of this is loaded, and nothing of torch changed, before a call needs it. All of it ends with
the recording.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda
from warpwatch.instruments.compiled.record.torch import ops as torch_ops

if TYPE_CHECKING:
    from warpwatch.instruments.compiled.record.driver import RecordingDriver
    from warpwatch.instruments.compiled.record.known_values import Known

_READ = ("TRITON_", "TORCHINDUCTOR_", "HELION_")
# Helion takes its default configuration where a kernel has none, and times none.
_UNTIMED = {"HELION_AUTOTUNE_EFFORT": "none"}
# Modules of torch that keep functions of ``torch.cuda`` for themselves.
_KEEP = ("torch._dynamo", "torch._inductor")


class Follower:
    """Follows ``torch.compile`` through one recording."""

    def __init__(self) -> None:
        self._ends, self._settings = ExitStack(), _settings()
        self._recorder: RecordingDriver
        self._known: Known
        self._traces = self._generates = False

    def begin(self, recorder: RecordingDriver, known: Known) -> None:
        """Follow from now on.

        Args:
            recorder: Hears of what is compiled.
            known: Says which tensors lie on the host.
        """
        self._recorder, self._known = recorder, known
        os.environ.update(_UNTIMED | _settings())
        self._ends.enter_context(mock.patch.object(sys, "meta_path", [_Torch(), *sys.meta_path]))
        # Torch makes one wrapper for each function that is given to torch.compile. Other tracers
        # begin with a mode of their own.
        kinds: tuple[Any, ...] = (torch._TorchCompileInductorWrapper, torch._TorchCompileWrapper)
        for kind in (*kinds, FakeTensorMode):
            self._replace(kind, "__init__", self._before(kind.__init__))
        # A function may have been given to torch.compile before the recording began.
        if "torch._dynamo.eval_frame" in sys.modules:
            self._trace()

    def close(self) -> None:
        """Leave torch and its settings as they were, without anything that it compiled here."""
        self._ends.close()
        # Torch puts back the environment as it was during the recording.
        for name in _settings().keys() - self._settings.keys():
            del os.environ[name]
        os.environ.update(self._settings)

    def _before(self, make: Any) -> Any:
        def making(one: Any, *args: Any, **kwargs: Any) -> None:
            if torch_ops.is_watching():  # else torch makes it for itself
                self._trace()
                if isinstance(one, FakeTensorMode) and "torch._inductor.graph" in sys.modules:
                    self._generate()
            make(one, *args, **kwargs)

        return making

    def _trace(self) -> None:
        """From now on tensors that pass for device tensors are traced as such."""
        if self._traces:
            return
        self._traces = True
        with _outside():
            import torch._dynamo as dynamo

            try:
                from . import tracing
            except ImportError as error:
                self._recorder.remark(f"{_unknown(error)}: it runs as written")
                self._ends.enter_context(dynamo.config.patch(disable=True))
                return
            dynamo.reset()
        self._ends.callback(dynamo.reset)
        self._ends.enter_context(tracing.on_device(self._known))
        wrapper: Any = torch._TorchCompileInductorWrapper
        self._replace(wrapper, "__call__", self._in_place_of(wrapper.__call__))

    def _in_place_of(self, compile_graph: Any) -> Any:
        """Inductor's part: it gets each graph that Dynamo traced."""

        def compiling(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            self._generate()
            from . import generating

            return generating.compiled(self._recorder, compile_graph, wrapper, *args, **kwargs)

        return compiling

    def _generate(self) -> None:
        """From now on Inductor generates for the device."""
        if self._generates:
            return
        with _outside():
            try:
                from . import generating
            except ImportError as error:
                raise torch_cuda.NotAnsweredError(_unknown(error)) from error
        self._generates = True
        self._ends.enter_context(generating.for_target(self._recorder))

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._ends.enter_context(mock.patch.object(owner, name, value))


class _Torch(PathFinder):
    """Finds modules of torch that are imported during a recording: they keep nothing of it."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(_KEEP):
            return None
        found = super().find_spec(fullname, path, target)
        if found is None or found.loader is None:
            return None
        loader: Any = found.loader
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            with _outside():
                execute(module)

        loader.exec_module = exec_module
        return found


def _settings() -> dict[str, str]:
    """What the environment says to Triton, Inductor and Helion."""
    return {name: value for name, value in os.environ.items() if name.startswith(_READ)}


@contextmanager
def _outside() -> Iterator[None]:
    """Torch is as without a recording."""
    with torch_cuda.unanswered(), torch_ops.unwatched():
        yield


def _unknown(error: ImportError) -> str:
    return f"torch.compile of torch {torch.__version__} is not known here ({error})"

"""What a process pays before its first result: the import of the package, and the first call.

Each sample is a process of its own. Those that import are forked from one in which torch and Triton
are loaded, and those that call from one of these: what a process imports or compiles, no other has.
Calls run against the recording driver, so no GPU is needed. Kernels are compiled as for a card, but
these times leave out whatever its driver adds.

Times are those of the processor, compilers that a call starts included: another process's turn is
no cost of the package.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.method import method_hash
from warpwatch.instruments.outcome import Outcome

from . import measuring
from .host import TARGET

if TYPE_CHECKING:
    from warpwatch.workload.base import Workload

# Processes that import; of each workload, those that call with nothing on disk, and those that find
# its kernels there.
IMPORTS, COLD, WARM = 3, 1, 5
Row = dict[str, Any]


def measure(names: Sequence[str], target: str = TARGET) -> dict[str, Row]:
    """Measure the package that can be imported now.

    Args:
        names: Workloads, each of which is a process's first call.
        target: What is compiled for.

    Returns:
        By workload: status, detail and the samples of ``import_s``, ``first_call_s`` and
        ``first_compile_s``.

    Example:
        >>> measure(["matmul-fp16-1024x1024x1024"])["matmul-fp16-1024x1024x1024"]["status"]
        'ok'
    """
    _load(target)
    with tempfile.TemporaryDirectory(prefix="cold-start-") as folder:
        # The first process to call leaves its kernels to those that follow.
        kept = Path(folder) / "kept"
        cold = [kept, *(Path(folder) / str(number) for number in range(1, COLD))]
        places = cold + WARM * [kept]
        imports = [
            _in_a_process(partial(_import, names, target, places[first::IMPORTS]))
            for first in range(IMPORTS)
        ]
    said = [Outcome.from_json(one) for answer in imports for one in answer]
    rows: dict[str, Row] = {}
    for name in names:
        found = [one for one in said if one.workload == name]
        wrong = next((one for one in found if one.status != "ok"), None)
        samples: dict[str, list[float]] = {}
        for one in found if wrong is None else ():
            for metric, row in one.samples.items():
                samples.setdefault(metric, []).extend(row)
        rows[name] = {
            "status": wrong.status if wrong else "ok",
            "detail": wrong.detail if wrong else "",
            "samples": samples,
        }
    return rows


def _load(target: str) -> None:
    """Everything but the package and its workloads, so that each process finds it loaded."""
    import torch

    from warpwatch.instruments.compiled.record import driver
    from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

    found = targets.get(target)
    with driver.active(found), torch_cuda.answered(found):
        torch.zeros(1)
    with contextlib.suppress(ImportError):
        # What names Triton's own release reads all of its files, at the first compilation.
        from triton.runtime.cache import triton_key

        triton_key()


def _import(names: Sequence[str], target: str, places: Sequence[Path]) -> list[str]:
    """In a process of its own: import the package, and let one process for each place and workload
    make its first call."""
    imported = _seconds(partial(_import_package, configuration.load().name))
    module = configuration.workloads()
    found = [module.get(name) for name in names]
    absent: dict[str, Outcome | None] = {}

    def resolve() -> None:
        absent.update((one.name, measuring.missing(one)) for one in found)

    # Many packages import a module when something of it is asked for.
    imported += _seconds(resolve)
    outcomes = [
        absent[one.name] or Outcome(one.name, "ok", samples={"import_s": (imported,)})
        for one in found
    ]
    rows = [one.to_json() for one in outcomes]
    for place in places:
        for one in found:
            if absent[one.name] is None:
                rows += _in_a_process(partial(_call, one, target, place))
    return rows


def _call(workload: Workload, target: str, place: Path) -> list[str]:
    """In a process of its own: call once."""
    return [_called(workload, target, place).to_json()]


def _called(workload: Workload, target: str, place: Path) -> Outcome:
    from warpwatch.instruments.compiled.record import driver
    from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

    metric = "first_call_s" if (place / workload.name).exists() else "first_compile_s"
    # Kernels of one workload are no other's.
    os.environ[CACHE_VARIABLE] = str(place / workload.name)
    found = targets.get(target)
    with driver.active(found) as recorder, torch_cuda.answered(found):
        inputs = workload.inputs("cpu", values="none")
        try:
            seconds = _seconds(lambda: workload.call(inputs))
        except Exception as error:  # the code under test may raise anything
            return measuring.failure(workload.name, error)
        if recorder.failures:
            failure = recorder.failures.pop()
            return Outcome(workload.name, "failed", f"{failure.kernel}: {failure.error}")
        if not recorder.launches:
            return Outcome(workload.name, "failed", "the call launched nothing")
    return Outcome(workload.name, "ok", samples={metric: (seconds,)})


def _import_package(package: str) -> None:
    with contextlib.suppress(Exception):  # who asks for the workload's kernel is told
        importlib.import_module(package)


def _seconds(do: Callable[[], object]) -> float:
    """Processor seconds of this process and of those that it started and waited for."""
    begin = _spent()
    do()
    return _spent() - begin


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _in_a_process(do: Callable[[], list[str]]) -> list[str]:
    """What a fork of this process says, in which ``do`` runs alone.

    Raises:
        RuntimeError: It died.
    """
    reads, writes = os.pipe()
    gc.freeze()  # a collection there would copy what both share
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reads)
            said = json.dumps(do())
            with os.fdopen(writes, "w", encoding="utf-8") as out:
                out.write(said)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)  # without what the parent registered for its own end
    os.close(writes)
    with os.fdopen(reads, encoding="utf-8") as answer:
        told = answer.read()
    _, status = os.waitpid(child, 0)
    gc.unfreeze()
    if not told:
        raise RuntimeError(f"a process that makes a first call ended with status {status}")
    found: list[str] = json.loads(told)
    return found


METHOD_VERSION = "cold-start-" + method_hash(__file__)

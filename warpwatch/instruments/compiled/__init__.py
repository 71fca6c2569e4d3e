"""Reads what compilers make of a kernel, on a machine without a GPU."""

import hashlib
from functools import cache
from pathlib import Path

from warpwatch import devices
from warpwatch.config import targets
from warpwatch.instruments import method
from warpwatch.instruments.compiled.formats.recording import (
    Failure,
    Kernel,
    Launch,
    Recording,
    TorchOp,
)
from warpwatch.instruments.compiled.measure.workload import Measurement, Status, measure
from warpwatch.instruments.compiled.record.call import record

# What only names, keeps or shows results, or starts what measures, cannot change a value.
_NO_METHOD = {
    "__init__.py",
    "assemblers.py",
    "change.py",
    "cliffs.py",
    "comparison.py",
    "compile_server.py",
    "errors.py",
    "slots.py",
    "origins.py",
    "evidence.py",
    "identity.py",
    "job.py",
    "job_process.py",
    "jobs.py",
    "kept.py",
    "packing.py",
    "patience.py",
    "requests.py",
    "sides.py",
    "upgrade_page.py",
}


@cache
def _method_version() -> str:
    """Of everything a value is made with: a change of method is a border, never a step."""
    folder = Path(__file__).parent
    # No series is made of files with machine code, and none holds predictions: they are evidence.
    apart = [path for name in ("files", "schedule") for path in (folder / name).iterdir()]
    measuring = {*folder.rglob("*.py")}.difference(apart)
    files = [str(path) for path in measuring if path.name not in _NO_METHOD]
    sheets = repr([devices.load(target.device) for target in targets.KNOWN])
    return method.version(
        "compiled-0feb5c74870b",
        # What changed since leaves the values of our own series as they were: first gradients are
        # known, spills and torch's products take time, atomics and search spaces are counted,
        # and numbers stand for search spaces. Values of others that spills or products change
        # have a border of their own (judge/model/bound_terms.py). Descriptors made on the device,
        # products with scales and those of gfx90a in several blocks, which our series have none
        # of, are counted right; launches that every card refuses are failures. What starts the
        # processes that measure is not of the method any more. Evidence says which arguments a
        # launch had, and what waits for the device. What a library puts in the place of torch's
        # own operators is recorded, and tuners that it derives from Triton's do not time. Kernels
        # of several calls are disassembled together, which reads each as by itself. A package that
        # gives its own function a keyword which that does not take has a failing call. Where no
        # configuration fits, host code is given one. Broken cubins are refused by name, and what
        # reads a kernel for a file is shared with what reads one of a launch. A call that another
        # generator serves is not measured, where it was a failing call. Kernels that torch.compile
        # generates are recorded, as are Helion's; no series of ours has any. Evidence has predicted
        # times. Further targets have instructions and datasheets of their own, and products without
        # matrix instructions are advised of: none of our series has either. Advice is no value. How
        # often most of a loop runs is counted for predicted times only. Members of tuples are read
        # as other arguments are, and ours that were other arguments keep their values. Texts are
        # kept where the environment says that binaries are enough.
        "5132acb4924c",
        method.method_hash(*files),
        hashlib.sha256(sheets.encode()).hexdigest()[:12],
    )


def __getattr__(name: str) -> str:
    # A tenth of a second, and most processes that compile never name their method.
    if name == "METHOD_VERSION":
        return _method_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "METHOD_VERSION",
    "Failure",
    "Kernel",
    "Launch",
    "Measurement",
    "Recording",
    "Status",
    "TorchOp",
    "measure",
    "record",
]

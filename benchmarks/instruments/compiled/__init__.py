"""Reads what compilers make of a kernel, on a machine without a GPU."""

import hashlib
from pathlib import Path

from benchmarks import devices, targets

from .measure import Measurement, Status, measure
from .record import record
from .recording import Failure, Kernel, Launch, Recording, TorchOp

# What only names, keeps or shows results cannot change a value.
_NO_METHOD = {
    "__init__.py",
    "comparison.py",
    "errors.py",
    "evidence.py",
    "identity.py",
    "kept.py",
    "sides.py",
    "upgrade_page.py",
}


def _method_version() -> str:
    """Of everything a value is made with: a change of method is a border, never a step."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name not in _NO_METHOD:
            digest.update(path.read_bytes())
    for target in targets.TARGETS:
        digest.update(repr(devices.load(target.device)).encode())
    return f"compiled-{digest.hexdigest()[:12]}"


METHOD_VERSION = _method_version()

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

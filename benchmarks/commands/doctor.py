"""``doctor``: say what this machine can measure, and for what is missing the remedy."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Literal

from benchmarks import devices, targets
from benchmarks.configuration import ROOT, load
from benchmarks.instruments import counters, ncu, rocprof

SCHEMA_VERSION = 1
_TORCH = ((2, 11), None)
_TRITON = ((3, 6), (3, 10))


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, how it stands, and what to do where it does not stand well.

    ``needed`` says that the main job (compiled metrics of commits and their report) fails without.
    """

    name: str
    state: Literal["ok", "missing", "warning"]
    detail: str
    needed: bool = True
    remedy: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the checks as JSON")


def _version(text: str) -> tuple[int, int]:
    numbers = text.split("+")[0].split(".")
    return int(numbers[0]), int(numbers[1])


def _python() -> Check:
    found = f"{sys.version.split()[0]} at {sys.executable}"
    if (3, 11) <= sys.version_info[:2] < (3, 15):
        return Check("python", "ok", found)
    return Check("python", "missing", found, remedy="use Python 3.11 to 3.14")


def _distribution(
    name: str, low: tuple[int, int] | None = None, high: tuple[int, int] | None = None
) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "missing", "not installed", remedy="make setup")
    if (low and _version(version) < low) or (high and _version(version) >= high):
        return Check(name, "warning", f"{version} was never tried", remedy="make setup")
    return Check(name, "ok", version)


def _package() -> Check:
    try:
        package = load()
    except ValueError as error:
        return Check("measured package", "missing", str(error), remedy="mend warpwatch.toml")
    spec = util.find_spec(package.name.partition(".")[0])
    origin = Path(spec.origin).resolve() if spec and spec.origin else None
    expected = ROOT / package.path
    if origin is None:
        # The package of another repository need not be importable here; asv exports it.
        return Check("measured package", "ok", f"{package.name}, exported from its repository")
    if expected.is_dir() and not origin.is_relative_to(expected):
        return Check(
            "measured package",
            "missing",
            f"{package.name} is imported from {origin}, expected {expected}",
            remedy=f"uninstall the other package called {package.name}",
        )
    return Check("measured package", "ok", f"{package.name} from {origin.parent}")


def _repository() -> Check:
    if shutil.which("git") is None:
        return Check("git", "missing", "not on the PATH", remedy="install git")
    result = subprocess.run(
        ["git", "-C", str(ROOT), "rev-list", "--count", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        return Check(
            "git", "missing", result.stderr.strip(), remedy="run inside a clone with history"
        )
    return Check("git", "ok", f"{result.stdout.strip()} commits")


def _compiler(target: targets.Target) -> Check:
    """Whether Triton has a backend for the target; compiling itself is the tests' matter."""
    name = f"target {target.name}"
    try:
        from triton.backends import backends
    except ImportError as error:
        return Check(name, "missing", str(error), remedy="make setup")
    backend = "nvidia" if target.backend == "cuda" else "amd"
    if backend not in backends:
        return Check(name, "missing", f"Triton has no {backend} backend", remedy="make setup")
    return Check(name, "ok", f"compiled by Triton's {backend} backend")


def _gpu() -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("gpu", "warning", str(error), False, "make setup")
    if not torch.cuda.is_available():
        return Check(
            "gpu", "warning", "none that torch can use", False, "compiled metrics need none"
        )
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    unknown = [name for name in names if devices.identify(name) is None]
    without = "; no datasheet: shares of peak are of ceilings measured on it" if unknown else ""
    return Check("gpu", "ok", ", ".join(names) + without, False)


def _counters() -> Check:
    name, remedy = "hardware counters", "without them utilization comes from a lower tier"
    if counters.on_hip():
        try:
            tool = rocprof.command(Path())[0]
        except rocprof.RocprofError as error:
            return Check(name, "warning", str(error), False, remedy)
        return Check(name, "warning", f"{tool}: {rocprof.UNPROVEN}", False, "hold them against it")
    try:
        return Check(name, "ok", f"{ncu.find()}, if the driver allows it", False)
    except ncu.CountersRefusedError as error:
        return Check(name, "warning", str(error), False, remedy)


def checks() -> list[Check]:
    """Every check of this machine, the needed ones first."""
    probes: list[Callable[[], Check]] = [
        _python,
        lambda: _distribution("torch", *_TORCH),
        lambda: _distribution("triton", *_TRITON),
        lambda: _distribution("asv"),
        _package,
        _repository,
        *(lambda target=target: _compiler(target) for target in targets.TARGETS),
        _gpu,
        _counters,
    ]
    return [probe() for probe in probes]


def main(args: argparse.Namespace) -> int:
    found = checks()
    broken = any(check.needed and check.state == "missing" for check in found)
    if args.json:
        report = {"schema": SCHEMA_VERSION, "checks": [asdict(check) for check in found]}
        print(json.dumps(report, indent=2))
        return 2 if broken else 0
    for check in found:
        line = f"{check.state:8} {check.name:20} {check.detail}"
        print(line + (f"  ->  {check.remedy}" if check.remedy else ""))
    print("the main job cannot run" if broken else "the main job can run: make bench")
    return 2 if broken else 0

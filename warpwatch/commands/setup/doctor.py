"""``doctor``: say what this machine can measure, and for what is missing the remedy."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from warpwatch import devices, project
from warpwatch.commands import extras
from warpwatch.config import isolation, targets
from warpwatch.config import package as configuration
from warpwatch.config.package import Package, load
from warpwatch.instruments.counters import ncu, rocprof
from warpwatch.session import utilization, versions

from . import tried_calls

SCHEMA_VERSION = 1
_TRIAL_SECONDS = 120.0
_SHOWN_TRIALS = 5
_TORCH = ((2, 11), None)
_TRITON = ((3, 6), (3, 10))
# The oldest driver that a CUDA runs on, by its major version, as NVIDIA's release notes say.
_DRIVERS = {12: 525, 13: 580}
_DRIVER_FILE = Path("/proc/driver/nvidia/version")


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


def _platform() -> Check:
    system, machine = platform.system(), platform.machine()
    found = f"{system} on {machine}"
    if system != "Linux":
        works = "reports, `compare --recorded` and `init` work here; to measure, use Linux"
        return Check("platform", "warning", f"{found}: Triton has no build for it", False, works)
    if machine not in ("x86_64", "AMD64"):
        works = "the images are built for it too; no measurement was tried on it"
        return Check("platform", "warning", found, False, works)
    return Check("platform", "ok", found, False)


def _distribution(
    name: str, low: tuple[int, int] | None = None, high: tuple[int, int] | None = None
) -> Check:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(name, "missing", "not installed", remedy=extras.remedy(name) or "")
    if (low and _version(version) < low) or (high and _version(version) >= high):
        return Check(name, "warning", f"{version} was never tried", remedy=_tried(low, high))
    return Check(name, "ok", version)


def _tried(low: tuple[int, int] | None, high: tuple[int, int] | None) -> str:
    """Which versions were: from ``low`` on, and below ``high``."""
    ends = (("from", low), ("below", high))
    limits = [f"{word} {one[0]}.{one[1]}" for word, one in ends if one]
    return f"tried are those {' and '.join(limits)}"


def _package() -> Check:
    name = "measured package"
    try:
        package = load()
    except ValueError as error:
        return Check(name, "missing", str(error), remedy="mend the configuration file")
    expected = package.repository_path / package.path
    if not expected.is_dir():
        detail = f"no folder {package.path} in {package.repository_path}"
        return Check(name, "missing", detail, remedy="mend `path` in [package]")
    place, problem = _found_at(package)
    if problem:
        detail = f"import {package.name}: {problem}"
        return Check(name, "missing", detail, remedy="mend `path` or `name` in [package]")
    if not place.is_relative_to(expected):
        detail = f"{package.name} comes from {place}, expected {expected}"
        return Check(name, "missing", detail, remedy=f"uninstall the other {package.name}")
    return Check(name, "ok", f"{package.name} from {expected}")


def _found_at(package: Package) -> tuple[Path, str]:
    """Where Python finds the package of the working tree, or why it does not. It is not imported:
    it may ask then which GPU there is, and only a recording answers that."""
    code = (
        f"import sys; sys.path.insert(0, {str(package.source_root)!r})\n"
        f"from importlib.util import find_spec; p = find_spec({package.name!r})\n"
        "print(p.origin or list(p.submodule_search_locations)[0] if p else '')"
    )
    # A folder of its own: the working folder may hold anything.
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-B", "-c", code],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = lines[-1] if lines else f"Python does not find it in {package.source_root}"
    return (Path(), last) if done.returncode or not lines else (Path(last).resolve(), "")


def _workloads() -> Check:
    name = "workloads"
    try:
        package = load()
    except ValueError:
        return Check(name, "missing", "no configuration", remedy="mend the configuration file")
    if str(package.source_root) not in sys.path:
        sys.path.append(str(package.source_root))
    try:
        found = [one.name for one in configuration.workloads().all_workloads()]
    except Exception as error:  # the user's module may raise anything
        detail = f"import {package.workloads}: {type(error).__name__}: {error}"
        return Check(name, "missing", detail, remedy="mend `workloads` in [package] or the module")
    twice = sorted({one for one in found if found.count(one) > 1})
    if twice:
        return Check(name, "missing", f"two are called {twice[0]!r}", remedy="rename one of them")
    sets = package.sets
    unknown = sorted({*sets.history, *sets.canaries, *sets.host} - {*found, "*"})
    if unknown:
        detail = f"[sets] names {unknown[0]!r}, which is no workload"
        return Check(name, "missing", detail, remedy="mend [sets] in the configuration file")
    return Check(name, "ok", f"{len(found)} in {package.workloads}")


def _trials() -> Check:
    """Whether each workload finds its kernel in the newest commit, builds its inputs, and runs."""
    name = "kernels at HEAD"
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return Check(name, "warning", "not tried: torch or triton is missing", False)
    try:
        load()
    except ValueError:
        return Check(name, "missing", "no configuration", remedy="mend the configuration file")
    try:
        with tempfile.TemporaryDirectory(prefix="warpwatch-") as folder:
            head = versions.prepare("HEAD", Path(folder) / "head")
            environment = isolation.subprocess_environment(head.environment)
            done = subprocess.run(
                [sys.executable, "-P", "-m", "warpwatch.commands.setup.trial"],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_TRIAL_SECONDS,
            )
            found: dict[str, str] = json.loads(done.stdout)
            good = {one for one, text in found.items() if not text}
            uncallable, tried = tried_calls.problems(good, environment)
    except subprocess.TimeoutExpired:
        detail = f"no answer within {_TRIAL_SECONDS:.0f} s: the package's import or inputs hang"
        return Check(name, "missing", detail, remedy="mend the workloads' inputs")
    except json.JSONDecodeError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Check(name, "missing", last[:300], remedy="mend the workloads or the package")
    except ValueError as error:
        return Check(name, "missing", str(error), remedy="commit the package, or mend `path`")
    wrong = {one: uncallable.get(one, text) for one, text in found.items()}
    wrong = {one: text for one, text in wrong.items() if text}
    if not wrong:
        calls = "all calls" if tried == len(found) else f"{tried} of {len(found)} calls"
        many = f"{len(found)} workloads find their kernel and build their inputs"
        built = "1 workload finds its kernel and builds its inputs" if len(found) == 1 else many
        return Check(name, "ok", f"{built}; {calls} tried without a GPU")
    listed = "; ".join(f"{one}: {text}" for one, text in list(wrong.items())[:_SHOWN_TRIALS])
    more = f"; and {len(wrong) - _SHOWN_TRIALS} more" if len(wrong) > _SHOWN_TRIALS else ""
    detail = f"{len(wrong)} of {len(found)} workloads cannot run: {listed}{more}"
    remedy = "mend those workloads' call or args"
    if any(text.startswith("import ") for text in wrong.values()):
        remedy = "mend that import, or install next to asv what it lacks; only commits are measured"
    return Check(name, "missing", detail, remedy=remedy)


def _repository() -> Check:
    if shutil.which("git") is None:
        return Check("git", "missing", "not on the PATH", remedy="install git")
    try:
        where = load().repository_path
    except ValueError:
        where = project.folder()
    result = subprocess.run(
        ["git", "-C", str(where), "rev-list", "--count", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode:
        return Check(
            "git", "missing", result.stderr.strip(), remedy="run inside a clone with history"
        )
    return Check("git", "ok", f"{result.stdout.strip()} commits")


def _chosen() -> list[targets.Target]:
    """The configured targets; the default ones where another check reports a mistake."""
    try:
        return [targets.get(one) for one in configuration.chosen_targets()]
    except ValueError:
        return list(targets.TARGETS)


def _compiler(target: targets.Target) -> Check:
    """Whether Triton has a backend for the target; compiling itself is the tests' matter."""
    name = f"target {target.name}"
    try:
        from triton.backends import backends
    except ImportError as error:
        return Check(name, "missing", str(error), remedy=extras.remedy("triton") or "")
    backend = "nvidia" if target.backend == "cuda" else "amd"
    if backend not in backends:
        detail = f"Triton has no {backend} backend"
        return Check(name, "missing", detail, remedy="install a Triton that has it")
    if mistake := target.mistake(importlib.metadata.version("triton")):
        return Check(name, "missing", mistake, remedy="install it, or name other targets")
    return Check(name, "ok", f"compiled by Triton's {backend} backend")


def _gpu() -> Check:
    try:
        import torch
    except ImportError as error:
        return Check("gpu", "warning", str(error), False, extras.remedy("torch") or "")
    if not torch.cuda.is_available():
        return Check(
            "gpu", "warning", "none that torch can use", False, "compiled metrics need none"
        )
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    unknown = [name for name in names if devices.identify(name) is None]
    without = "; no datasheet: shares of peak are of ceilings measured on it" if unknown else ""
    return Check("gpu", "ok", ", ".join(names) + without, False)


def _driver() -> list[Check]:
    """Whether NVIDIA's driver is new enough for the CUDA of this torch; nothing without one."""
    try:
        text = _DRIVER_FILE.read_text(encoding="utf-8", errors="replace")
        import torch
    except (OSError, ImportError):
        return []
    match = re.search(r"\b(\d{3,})\.\d+", text)
    cuda = torch.version.cuda
    if match is None or cuda is None:
        return []
    found = f"{match[0]}, torch is built for CUDA {cuda}"
    needed = _DRIVERS.get(_version(cuda)[0], 0)
    if int(match[1]) >= needed:
        return [Check("NVIDIA driver", "ok", found, False)]
    remedy = f"install driver {needed} or later, or a torch that is built for an older CUDA"
    return [Check("NVIDIA driver", "warning", found, False, remedy)]


def _counters() -> Check:
    name, remedy = "hardware counters", "without them utilization comes from a lower tier"
    if utilization.on_hip():
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
        _platform,
        lambda: _distribution("torch", *_TORCH),
        lambda: _distribution("triton", *_TRITON),
        lambda: _distribution("asv"),
        _package,
        _workloads,
        _repository,
        _trials,
        *(lambda target=target: _compiler(target) for target in _chosen()),
        _gpu,
        _counters,
    ]
    return [*(probe() for probe in probes), *_driver()]


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
    print("the main job cannot run" if broken else "the main job can run: warpwatch history")
    return 2 if broken else 0

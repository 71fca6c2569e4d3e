"""What a build of a report costs: processor time, memory and the size of the site."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cost:
    """``cpu_s`` is user and system time of all processes; ``peak_mb`` is of the largest one."""

    cpu_s: float
    peak_mb: float
    site_mb: float


def ours(results: Path, sources: Path, out: Path) -> Cost:
    """A cold build of our report."""
    where = ("--results", results, "--repo", sources, "--out", out)
    return _spent((sys.executable, "-m", "warpwatch", "report", *map(str, where)), out)


def of_asv(results: Path, sources: Path, branch: str, out: Path) -> Cost:
    """``asv publish`` of the same results."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "benchmarks").mkdir(exist_ok=True)
    settings = {
        "version": 1,
        "project": "history",
        "project_url": "https://example.invalid",
        "repo": str(sources),
        "branches": [branch],
        "dvcs": "git",
        "environment_type": "virtualenv",
        "benchmark_dir": str(out / "benchmarks"),
        "results_dir": str(results),
        "html_dir": str(out / "html"),
    }
    (out / "asv.conf.json").write_text(json.dumps(settings))
    config = ("--config", str(out / "asv.conf.json"))
    return _spent((sys.executable, "-m", "asv", *config, "publish"), out / "html")


# A process that is started counts the memory of the one that started it as its own: a small one
# stands between this one, which holds a history, and the command.
_BETWEEN = """
import json, resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([done.returncode, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3]))
"""


def _spent(command: tuple[str, ...], out: Path) -> Cost:
    between = (sys.executable, "-c", _BETWEEN, *command)
    done = subprocess.run(between, check=True, capture_output=True, text=True, errors="replace")
    code, cpu_s, peak_mb = json.loads(done.stdout)
    if code not in (0, 1, 3):  # a report of regressions is a report
        raise SystemExit(f"{' '.join(command)} failed with {code}:\n{done.stderr[-2000:]}")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return Cost(cpu_s, peak_mb, size / 1e6)

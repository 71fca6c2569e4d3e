"""Runs the whole harness over the demo's history: git, asv, the compiled instrument, the report."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch.config import isolation, metrics
from warpwatch.project import FILE_VARIABLE

from .story import Commit, write

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATION = Path(__file__).parent / "warpwatch.toml"
# asv's exit code when a benchmark failed; the report shows which.
_MEASURED = (0, 2)


@dataclass(frozen=True)
class Run:
    """What a run left: how each commit was made, by hash, and the report's ``regressions.json``."""

    commits: dict[str, Commit]
    regressions: dict[str, Any]
    report: Path


def run(commits: Sequence[Commit], folder: Path) -> Run:
    """Make the history of ``commits`` in ``folder``, measure every commit, build the report."""
    repository = folder / "repository"
    written = write(commits, repository)
    log = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "--reverse", "HEAD"],
        check=True,
        capture_output=True,
        text=True,
    )
    hashes = log.stdout.split()
    cores = sorted(os.sched_getaffinity(0))[:8]
    lanes = [folder / f"lane{number}" for number in range(min(len(cores), len(hashes)))]
    # A stretch of history a lane: neighbours share most kernels, and what a lane has compiled the
    # others find.
    edges = [round(number * len(hashes) / len(lanes)) for number in range(len(lanes) + 1)]
    running = [
        _start_asv(lane, repository, hashes[edges[number] : edges[number + 1]], cores[number])
        for number, lane in enumerate(lanes)
    ]
    codes = [process.wait() for process in running]
    for lane, code in zip(lanes, codes, strict=True):
        if code not in _MEASURED:
            raise RuntimeError(f"asv exited with {code}: {(lane / 'asv.log').read_text()[-3000:]}")
    report = folder / "report"
    command = [sys.executable, "-m", "warpwatch", "report", "--repo", str(repository)]
    for lane in lanes:
        command += ["--results", str(lane / "results")]
    built = subprocess.run(
        [*command, "--out", str(report)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise RuntimeError(f"warpwatch report exited with {built.returncode}: {built.stderr}")
    regressions = json.loads((report / "regressions.json").read_text(encoding="utf-8"))
    return Run(written, regressions, report / "index.html")


def _start_asv(
    lane: Path, repository: Path, hashes: Sequence[str], core: int
) -> subprocess.Popen[bytes]:
    """asv over ``hashes`` on one core: as many histories are measured at a time as there are."""
    isolation.link_harness(lane)
    home = lane / "home"
    home.mkdir()
    configuration = {
        "version": 1,
        "project": "demokernels",
        "repo": str(repository),
        "branches": ["main"],
        "dvcs": "git",
        "plugins": [".warpwatch.asv.environment"],
        "environment_type": "kernels-overlay",
        "launch_method": "forkserver",
        "benchmark_dir": "benchmarks/suite",
        "env_dir": "env",
        "results_dir": "results",
        "html_dir": "html",
    }
    (lane / "asv.conf.json").write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    (lane / "hashes").write_text("\n".join(hashes), encoding="utf-8")
    environment = {
        **os.environ,
        FILE_VARIABLE: str(CONFIGURATION),
        # The name is the compiled instrument's; importing it here would import torch.
        "WARPWATCH_COMPILER_CACHE": str(lane.parent / "compiled"),
        # asv keeps its machine file in the home folder: the user's stays as it is.
        "HOME": str(home),
        "PYTHONUSERBASE": site.getuserbase(),
    }
    asv = f"'{sys.executable}' -m asv"
    verdicts = "|".join(one.name for one in metrics.COMPILED if one.role == "verdict")
    script = (
        f"{asv} machine --yes --machine demo && exec {asv} run HASHFILE:hashes --machine demo "
        f"--bench '^compiled[.].*[.]track_({verdicts})' --show-stderr"
    )
    with (lane / "asv.log").open("wb") as log:
        return subprocess.Popen(
            ["sh", "-c", script],
            cwd=lane,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

"""Measures a build of the report beside ``asv publish`` and against what it is to reach.

    python -m tools.harness.speed_of_reports FOLDER [middling] [large] [wide] [--runs 3]
        [--without-asv]

FOLDER holds the generated histories (0.3 and 0.6 GB) and is reused. asv publishes the middling one.
Of the wide one, 30,000 series, the index alone is opened.
Everything runs one after the other in processes of its own, and pages are opened in Chromium where
there is one; wall time means little on a busy machine, so CPU time stands beside it. Memory is the
sum over the processes of builds that are not timed, each shared page counted once. Exit 1 where a
bar is missed.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reports.chromium import Browser, installed
from tests.reports.trees import large_tree, make_repository
from tools.harness.large_histories import HISTORIES
from tools.root import ROOT

_SAMPLED_EVERY_S = 0.1  # a look takes 7 ms of a processor: not while a build is timed
_ONE_MORE = "One more change"
BESIDE_ASV, OPENED = "middling", "wide"
FASTER, PEAK_MB, SAME_S, ONE_S, SITE_MB, SCRIPTS_KB = 20.0, 500.0, 1.0, 3.0, 40.0, 100.0
INDEX_MS, PAGE_MS, POINTS = 1000.0, 300.0, 5000


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


class Table:
    """Printed row by row; remembers whether a bar was missed."""

    def __init__(self) -> None:
        self.missed = False
        print("| figure | history | got | CPU | to reach | |\n|---|---|---|---|---|---|")

    def row(self, what: str, history: str, got: str, cpu_s: float = 0.0, bar: str = "|") -> None:
        cpu = f"{cpu_s:.1f} s" if cpu_s else ""
        print(f"| {what} | {history} | {got} | {cpu} | {bar} |", flush=True)

    def most(
        self, what: str, history: str, got: float, most: float, unit: str, cpu_s: float = 0.0
    ) -> None:
        """A row that is reached by at most ``most``."""
        word = self._word(got <= most)
        self.row(what, history, f"{got:,.4g} {unit}", cpu_s, f"at most {most:,g} {unit} | {word}")

    def least(self, what: str, history: str, got: float, least: float) -> None:
        """A row that is reached by at least ``least`` times."""
        word = self._word(got >= least)
        self.row(what, history, f"{got:.1f}x", 0.0, f"at least {least:g}x | {word}")

    def _word(self, reached: bool) -> str:
        self.missed |= not reached
        return "reached" if reached else "MISSED"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.speed_of_reports",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("which", nargs="*", choices=[*HISTORIES, []], default=[])
    parser.add_argument("--runs", type=int, default=3, help="of our builds; the median counts")
    parser.add_argument("--without-asv", action="store_true")
    args = parser.parse_args()
    histories = {}
    for name in args.which or HISTORIES:
        history = histories[name] = args.folder.resolve() / name
        if not (history / "complete").exists():
            say(f"{name}: making the history")
            shutil.rmtree(history, ignore_errors=True)
            large_tree(history, **HISTORIES[name])
            (history / "complete").touch()
        files = [p for p in (history / "results").glob("*/*.json") if p.name != "machine.json"]
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        print(f"{name}: {len(files):,} files, {megabytes:.0f} MB")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}\n")
    table = Table()
    for name, history in histories.items():
        if name == OPENED:
            build(history, history / "fresh" / "html")
            continue
        with_asv = name == BESIDE_ASV and not args.without_asv
        measure(table, name, history, args.runs, with_asv)
    if installed() is None:
        say("no Chromium: pages are not opened")
    else:
        pages(table, args.folder.resolve(), histories)
    return int(table.missed)


def measure(table: Table, name: str, history: Path, runs: int, with_asv: bool) -> None:
    site, fresh = history / "site" / "html", history / "fresh" / "html"
    kept = Kept(history / "kept")
    cold, same, one, every, watched = [], [], [], [], []
    differ: list[str] = []
    for number in range(runs):
        kept.away(site.parent)
        cold.append(build(history, site))
        same.append(build(history, site))
        kept.linked(site)
        with one_more_commit(history, homes=1):
            one.append(build(history, site))
        kept.linked(site)
        watched.append(build(history, site, watched=True))
        kept.linked(site)
        with one_more_commit(history):
            every.append(build(history, site))
            if number == 0:
                kept.away(fresh.parent)
                watched.append(build(history, fresh, watched=True))
                differ = differing(site, fresh)
    kept.removed()
    ours, peak = median(cold), max(cost.peak_mb for cost in watched)
    table.row("cold build", name, f"{ours.wall_s:.2f} s", ours.cpu_s)
    if with_asv:
        config = asv_configuration(history)
        publish = (sys.executable, "-m", "asv", "--config", str(config), "publish")
        theirs = run(*publish, watched=True)  # one process: the other processor looks
        got = f"{theirs.wall_s:.1f} s, {theirs.peak_mb:.0f} MB"
        table.row("asv publish", name, got, theirs.cpu_s)
        table.least("the cold build is faster", name, theirs.wall_s / ours.wall_s, FASTER)
    table.most("peak memory", name, peak, PEAK_MB, "MB")
    for what, costs, most in (
        ("nothing changed", same, SAME_S),
        ("one commit added, its first result file", one, ONE_S),
        ("one commit added, all its result files", every, ONE_S),
    ):
        cost = median(costs)
        table.most(what, name, cost.wall_s, most, "s", cost.cpu_s)
    files = [path for path in fresh.rglob("*") if path.is_file()]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    table.most(f"site, {len(files):,} files", name, megabytes, SITE_MB, "MB")
    scripts = sum(path.stat().st_size for path in fresh.glob("*.js")) / 1e3
    table.most("scripts", name, scripts, SCRIPTS_KB, "KB")
    table.most("differs from a cold build", name, len(differ), 0, "files")
    if differ:
        say(f"{name}: {differ[:5]}")


class Kept:
    """Holds on to the pages of sites that are done with: ext4 searches past every file that was
    removed within the last minutes, anew for each that is made. Between two builds of a report
    lies more than the seconds between two that are measured."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self.removed()

    def away(self, folder: Path) -> None:
        """Puts a folder out of the way, if there is one."""
        if folder.exists():
            folder.rename(self._next())

    def linked(self, site: Path) -> None:
        """Pages that are replaced now lose one of their names alone."""
        shutil.copytree(site, self._next(), copy_function=os.link)

    def removed(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _next(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        self._count += 1
        return self._folder / str(self._count)


def pages(table: Table, folder: Path, histories: dict[str, Path]) -> None:
    """From navigation to interactive, in headless Chromium."""
    with Browser() as browser:
        browser.view()
        for name, history in histories.items():
            index = history / "fresh" / "html" / "index.html"
            table.most("index interactive", name, browser.milliseconds(index), INDEX_MS, "ms")
        site = folder / "long" / "html"
        if not site.exists():
            shutil.rmtree(folder / "long", ignore_errors=True)
            long_history(folder / "long", site)
        took = browser.milliseconds(next((site / "s").iterdir()))
        table.most("page of a series interactive", f"{POINTS:,} points", took, PAGE_MS, "ms")


def long_history(folder: Path, site: Path) -> None:
    """One series of ``POINTS`` commits, and its report."""
    tree = make_repository(folder, POINTS)
    tree.add_benchmark("bench.time_long")
    tree.write_benchmarks()
    tree.write_machine("rig")
    random.seed(1)
    for commit in range(POINTS):
        tree.write_result(commit, {"bench.time_long": [random.lognormvariate(0, 0.01)]})
    build(folder, site)


def build(history: Path, out: Path, *, watched: bool = False) -> Cost:
    where = ("--results", history / "results", "--repo", history / "repo", "--out", out)
    command = (sys.executable, "-m", "warpwatch", "report", *map(str, where))
    return run(*command, watched=watched)


def run(*command: str, watched: bool) -> Cost:
    """Runs a command from the project's folder; exits with its words where it fails."""
    begin, before = time.monotonic(), os.times()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        peak = [0.0]
        watcher = threading.Thread(target=watch, args=(process, peak), daemon=True)
        if watched:
            watcher.start()
        try:
            said = process.communicate(timeout=3600)[1].decode("utf-8", "replace")
        except subprocess.TimeoutExpired as late:
            os.killpg(process.pid, signal.SIGKILL)
            raise SystemExit(f"{late}") from None
    after = os.times()
    if watched:
        watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{said[-2000:]}")
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    return Cost(time.monotonic() - begin, used, peak[0])


def watch(process: subprocess.Popen[bytes], peak: list[float]) -> None:
    """The highest memory of the process's session, as long as it runs."""
    while process.poll() is None:
        total = 0.0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getsid(int(folder.name)) == process.pid:
                    lines = (folder / "smaps_rollup").read_text().splitlines()
                    total += sum(float(x.split()[1]) for x in lines if x.startswith("Pss:")) / 1e3
            except (OSError, ValueError):  # it has ended
                continue
        peak[0] = max(peak[0], total)
        time.sleep(_SAMPLED_EVERY_S)


@contextmanager
def one_more_commit(history: Path, homes: int | None = None) -> Iterator[None]:
    """A commit on top with results of ``homes`` (all) environments, taken away afterwards."""
    take_back(history)  # of a run that was stopped
    commit = git(history, "commit-tree", "main^{tree}", "-p", "main", "-m", _ONE_MORE)
    git(history, "update-ref", "refs/heads/main", commit)
    newest: dict[tuple[Path, str], Path] = {}
    for path in sorted((history / "results").glob("*/*.json"), key=lambda p: p.stat().st_mtime_ns):
        if path.name != "machine.json":
            newest[path.parent, path.stem.partition("-")[2]] = path
    for (folder, environment), path in sorted(newest.items())[:homes]:
        document = json.loads(path.read_text())
        document["commit_hash"] = commit
        document["date"] += 60_000
        for cells in document["results"].values():
            cells[0] = [1.003 * value for value in cells[0]]
        (folder / f"{commit[:8]}-{environment}.json").write_text(json.dumps(document))
    try:
        yield
    finally:
        take_back(history)


def take_back(history: Path) -> None:
    """Removes the commit that was added, and its results."""
    if git(history, "log", "-1", "--format=%s", "main") == _ONE_MORE:
        commit = git(history, "rev-parse", "main")
        for path in (history / "results").glob(f"*/{commit[:8]}-*.json"):
            path.unlink()
        git(history, "update-ref", "refs/heads/main", "main~1")


def differing(one: Path, other: Path) -> list[str]:
    """The files that are not the same in both sites."""
    names = {
        str(path.relative_to(site))
        for site in (one, other)
        for path in site.rglob("*")
        if path.is_file() and path.name != ".warpwatch-site"
    }
    _, mismatch, errors = filecmp.cmpfiles(one, other, sorted(names), shallow=False)
    return [*mismatch, *errors]


def asv_configuration(history: Path) -> Path:
    path = history / "asv.conf.json"
    (history / "benchmarks").mkdir(exist_ok=True)
    settings = {
        "version": 1,
        "project": "generated",
        "project_url": "https://example.invalid",
        "repo": str(history / "repo"),
        "branches": ["main"],
        "dvcs": "git",
        "environment_type": "virtualenv",
        "benchmark_dir": str(history / "benchmarks"),
        "results_dir": str(history / "results"),
        "html_dir": str(history / "asv"),
    }
    path.write_text(json.dumps(settings))
    return path


def git(history: Path, *arguments: str) -> str:
    name = ("-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.invalid")
    command = ("git", "-C", str(history / "repo"), *name, *arguments)
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=600
    ).stdout.strip()


def median(costs: Sequence[Cost]) -> Cost:
    """The run of the middle wall time."""
    middle = statistics.median_low(cost.wall_s for cost in costs)
    return next(cost for cost in costs if cost.wall_s == middle)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

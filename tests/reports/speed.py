"""Measures a build of the report beside ``asv publish`` on one history, and prints the table.

    python -m tests.reports.speed FOLDER [middling] [large] [--runs 3] [--without-asv]

FOLDER holds the generated histories (0.3 and 0.6 GB) and is reused. Both tools run one after the
other in processes of their own; wall time means little on a busy machine, so CPU time stands
beside it. Memory is the sum over the processes of a build, each shared page counted once.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.reports.trees import HISTORIES, large_tree

ROOT = Path(__file__).resolve().parents[2]
_SAMPLED_EVERY_S = 0.1


@dataclass(frozen=True)
class Cost:
    """What a command took."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("which", nargs="*", choices=[*HISTORIES, []], default=[])
    parser.add_argument("--runs", type=int, default=3, help="of our builds; the median counts")
    parser.add_argument("--without-asv", action="store_true")
    args = parser.parse_args()
    for name in args.which or HISTORIES:
        history = args.folder.resolve() / name
        if not (history / "complete").exists():
            say(f"{name}: making the history")
            shutil.rmtree(history, ignore_errors=True)
            large_tree(history, **HISTORIES[name])
            (history / "complete").touch()
        measure(name, history, args.runs, args.without_asv)


def measure(name: str, history: Path, runs: int, without_asv: bool) -> None:
    files = [p for p in (history / "results").glob("*/*.json") if p.name != "machine.json"]
    megabytes = sum(path.stat().st_size for path in files) / 1e6
    print(f"\n{name}: {len(files):,} files, {megabytes:.0f} MB, {os.cpu_count()} processors\n")
    print("| what | wall | CPU | peak memory |\n|---|---|---|---|")
    theirs = None
    if not without_asv:
        config = asv_configuration(history)
        theirs = run(sys.executable, "-m", "asv", "--config", str(config), "publish")
        row("asv publish", theirs)
    site = history / "site" / "html"
    cold, same, one, every = [], [], [], []
    for _ in range(runs):
        shutil.rmtree(site.parent, ignore_errors=True)
        cold.append(build(history, site))
        same.append(build(history, site))
        with one_more_commit(history, homes=1):
            one.append(build(history, site))
        build(history, site)
        with one_more_commit(history):
            every.append(build(history, site))
            fresh = history / "fresh" / "html"
            shutil.rmtree(fresh.parent, ignore_errors=True)
            build(history, fresh)
            differ = differing(site, fresh)
            if differ:
                raise SystemExit(f"the site built on differs from a cold one: {differ[:5]}")
    row("reports build, cold", median(cold))
    row("nothing changed", median(same))
    row("one commit added, its first result file", median(one))
    row("one commit added, all its result files", median(every))
    if theirs:
        ours = median(cold)
        print(
            f"\ncold: {theirs.wall_s / ours.wall_s:.1f}x the speed of asv publish by wall time, "
            f"{theirs.cpu_s / ours.cpu_s:.1f}x by CPU time"
        )
    pages = [path for path in fresh.rglob("*") if path.is_file()]
    scripts = sum(path.stat().st_size for path in fresh.glob("*.js"))
    print(
        f"site: {sum(path.stat().st_size for path in pages) / 1e6:.1f} MB in {len(pages):,} files, "
        f"scripts {scripts / 1e3:.0f} KB; built on and built cold alike, byte for byte"
    )


def build(history: Path, out: Path) -> Cost:
    where = ("--results", history / "results", "--repo", history / "repo", "--out", out)
    return run(sys.executable, "-m", "reports", "build", *map(str, where))


def run(*command: str) -> Cost:
    """Runs a command from the project's folder; exits with its words where it fails."""
    begin, before = time.monotonic(), os.times()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        peak = [0.0]
        watcher = threading.Thread(target=watch, args=(process, peak), daemon=True)
        watcher.start()
        said = process.communicate()[1].decode("utf-8", "replace")
    after = os.times()
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
    tip = git(history, "rev-parse", "main")
    commit = git(history, "commit-tree", "main^{tree}", "-p", "main", "-m", "One more change")
    git(history, "update-ref", "refs/heads/main", commit)
    newest: dict[tuple[Path, str], Path] = {}
    for path in sorted((history / "results").glob("*/*.json"), key=lambda p: p.stat().st_mtime_ns):
        if path.name != "machine.json":
            newest[path.parent, path.stem.partition("-")[2]] = path
    written = []
    for (folder, environment), path in sorted(newest.items())[:homes]:
        document = json.loads(path.read_text())
        document["commit_hash"] = commit
        document["date"] += 60_000
        for cells in document["results"].values():
            cells[0] = [1.003 * value for value in cells[0]]
        written.append(folder / f"{commit[:8]}-{environment}.json")
        written[-1].write_text(json.dumps(document))
    try:
        yield
    finally:
        for path in written:
            path.unlink()
        git(history, "update-ref", "refs/heads/main", tip)


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
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def median(costs: Sequence[Cost]) -> Cost:
    """The run of the middle wall time, with the highest memory of all."""
    middle = statistics.median_low(cost.wall_s for cost in costs)
    chosen = next(cost for cost in costs if cost.wall_s == middle)
    return Cost(chosen.wall_s, chosen.cpu_s, max(cost.peak_mb for cost in costs))


def row(what: str, cost: Cost) -> None:
    print(
        f"| {what} | {cost.wall_s:.2f} s | {cost.cpu_s:.2f} s | {cost.peak_mb:.0f} MB |", flush=True
    )


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Plants defects in our kernels and lets the gate find them on a GPU.

    python -m tools.planted.on_gpu [--seconds S] [--only NAME ...] [--out FOLDER]

Makes a repository of the checkout's kernels, commits the edits that ``branches.py`` lists, a branch
at a time, and runs ``warpwatch compare BASE BRANCH --workload ...`` for each. The last lines are a
table in Markdown. ``--compiled-only`` does all of it that needs no GPU; ``--kept FOLDER`` prints
the table of an earlier run, such as that on an H200 in ``tests/judge/data/planted_h200``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from examples.demo.story import apply
from tools.planted.branches import BRANCHES
from tools.planted.plants import Branch, Plant
from tools.root import ROOT
from warpwatch.config import isolation
from warpwatch.instruments import presence
from warpwatch.judge.findings.compiled_moves import Change, causes
from warpwatch.judge.pairs.run_verdict import PREDICTED
from warpwatch.report.words import share
from warpwatch.session import versions

# A gate that is stopped measures its pair to the end and judges.
ENDS_S = 40.0

WARM = """
import sys
from warpwatch.config.package import workloads
workload = workloads().get(sys.argv[1])
workload.call(workload.inputs("cuda"))
"""


def main() -> int:
    """Exit 0 if every defect was found with its cause, and nothing else."""
    parser = argparse.ArgumentParser(prog="python -m tools.planted.on_gpu")
    parser.add_argument("--seconds", type=float, default=480.0, help="stop the gates after so many")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="these commits or branches")  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", "planted")))
    parser.add_argument("--kept", type=Path, metavar="FOLDER",
                        help="the table of what an earlier run left there")  # fmt: skip
    parser.add_argument("--compiled-only", action="store_true", help="do not use the GPU")
    args = parser.parse_args()
    ends = time.monotonic() + args.seconds
    branches = chosen(args.only)
    if args.kept is not None:
        rows = kept(branches, args.kept)
        table = "\n".join(lines(rows))
    else:
        rows = measured(branches, args.out, ends, args.compiled_only)
        table = "\n".join(lines(rows))
        (args.out / "table.md").write_text(table + "\n", encoding="utf-8")
    print(table)
    return 0 if all(row.right for row in rows) else 1


def measured(branches: Sequence[Branch], out: Path, ends: float, compiled_only: bool) -> list[Row]:
    """The rows of the gates, run here."""
    out.mkdir(parents=True, exist_ok=True)
    on_gpu = presence.has_gpu() and not compiled_only
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        repository = Path(folder) / "repository"
        plant(branches, repository)
        if on_gpu:
            holding = threading.Event()
            arguments = (branches, repository, Path(folder) / "warm", holding)
            threading.Thread(target=warm, daemon=True, args=arguments).start()
            holding.wait(60.0)
        found = judge(branches, repository, out, ends, on_gpu)
    return [row for branch in branches for row in judged(branch, found.get(branch.name))]


def chosen(names: Sequence[str]) -> list[Branch]:
    """The branches with their commits of these names, all by default."""
    known = {branch.name for branch in BRANCHES}
    known |= {plant.name for branch in BRANCHES for plant in branch.plants}
    if unknown := sorted(set(names) - known):
        raise SystemExit(f"--only {unknown[0]}: expected one of {', '.join(sorted(known))}")
    found = []
    for branch in BRANCHES:
        plants = branch.plants
        if names and branch.name not in names:
            plants = tuple(one for one in plants if one.name in names)
        if plants:
            found.append(replace(branch, plants=plants))
    return found


def plant(branches: Sequence[Branch], repository: Path) -> None:
    """Make ``repository``: the checkout as ``base``, and each branch with a commit a plant."""
    repository.mkdir(parents=True)
    for name in ("kernels", "benchmarks", "warpwatch"):
        shutil.copytree(ROOT / name, repository / name,
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    shutil.copy(ROOT / "warpwatch.toml", repository)
    git(repository, "init", "--quiet", "--initial-branch=base")
    commit(repository, "The checkout")
    for branch in branches:
        git(repository, "checkout", "--quiet", "-b", branch.name, "base")
        for one in branch.plants:
            for edit in one.edits:
                apply(edit, repository)
            commit(repository, one.subject)


def commit(repository: Path, subject: str) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "-m", subject)


def git(repository: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A. Author", "-c", "user.email=author@example.invalid")
    subprocess.run(["git", *who, *arguments], cwd=repository, check=True, timeout=120)


def warm(
    branches: Sequence[Branch], repository: Path, folder: Path, holding: threading.Event
) -> None:
    """Compile every kernel of every branch once, all cores at work, so that no turn on the GPU is
    spent on it. The first gate waits for its turn until this is done."""
    with versions.gpu_turn(say):
        holding.set()
        compile_all(branches, repository, folder)
    say("every kernel is compiled")


def compile_all(
    branches: Sequence[Branch], repository: Path, folder: Path, more: Sequence[str] = ()
) -> None:
    """Call the workloads of all branches once, and ``more`` at each version."""
    wanted = {one.name: {*one.workloads, *more} for one in branches}
    wanted["base"] = set().union(*wanted.values())
    jobs = []
    for name, workloads in wanted.items():
        made = versions.prepare(name, folder / name, repository).environment
        jobs += [(name, one, isolation.subprocess_environment(made)) for one in workloads]

    def compile_one(job: tuple[str, str, dict[str, str]]) -> None:
        name, workload, environment = job
        try:
            done = subprocess.run([sys.executable, "-P", "-c", WARM, workload], env=environment,
                                  capture_output=True, text=True, timeout=120)  # fmt: skip
        except subprocess.TimeoutExpired:
            say(f"{name}: {workload} took more than 120 s")
            return
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            say(f"{name}: {workload} failed: {last[:300]}")

    with ThreadPoolExecutor(max(2, (os.cpu_count() or 2) - 2)) as pool:
        list(pool.map(compile_one, jobs))


@dataclass
class Gate:
    """One ``compare`` and what it wrote."""

    branch: Branch
    process: subprocess.Popen[str]
    began: threading.Event = field(default_factory=threading.Event)
    began_s: float = 0.0
    seconds: float = 0.0
    document: dict[str, Any] | None = None


def judge(
    branches: Sequence[Branch], repository: Path, out: Path, ends: float, on_gpu: bool
) -> dict[str, Gate]:
    """Run every gate. One measures while the next one compiles and then waits for the GPU."""
    gates: dict[str, Gate] = {}
    threads = []
    for branch in branches:
        if time.monotonic() > ends:
            say(f"{branch.name}: no time is left")
            continue
        before = sum(one.branch.seconds for one in gates.values() if one.process.poll() is None)
        gate = start(branch, repository, ends - time.monotonic() - before, on_gpu)
        gates[branch.name] = gate
        thread = threading.Thread(target=follow, args=(gate, out))
        thread.start()
        threads.append(thread)
        while not gate.began.is_set() and time.monotonic() < ends:
            gate.began.wait(0.2)
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    for gate in gates.values():
        if gate.process.poll() is None:
            say(f"{gate.branch.name}: the time is up")
            gate.process.terminate()  # it judges what it has once its pair is measured
    for thread in threads:
        thread.join(ENDS_S)
    return gates


def start(branch: Branch, repository: Path, seconds: float, on_gpu: bool) -> Gate:
    command = [sys.executable, "-m", "warpwatch", "compare", "base", branch.name]
    for name in dict.fromkeys(branch.workloads):
        command += ["--workload", name]
    command += ["--target", "sm_90", "--json", f"--seconds={max(60.0, seconds - ENDS_S):.0f}"]
    if not on_gpu:
        command.append("--compiled-only")
    elif not branch.counters:
        command.append("--no-counters")
    process = subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env=beside(repository))  # fmt: skip
    return Gate(branch, process)


def beside(repository: Path) -> dict[str, str]:
    """This environment, where Python finds the repository's harness and not the checkout's."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [part for part in parts if part and Path(part).resolve() != ROOT]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(repository), *kept])}


def follow(gate: Gate, out: Path) -> None:
    """Read what a gate says until it ends; its document is then in ``out``."""
    process = gate.process
    assert process.stdout and process.stderr
    document = process.stdout
    said: list[str] = []
    written = threading.Thread(target=lambda: said.append(document.read()))
    written.start()
    for line in process.stderr:
        if ": pairs 1 to" in line and not gate.began.is_set():
            gate.began_s = time.monotonic()
            gate.began.set()
        say(f"{gate.branch.name}: {line.rstrip()}")
    process.wait(timeout=60)
    written.join()
    gate.began.set()
    if gate.began_s:
        gate.seconds = time.monotonic() - gate.began_s
    try:
        gate.document = json.loads(said[0])
    except ValueError:
        say(f"{gate.branch.name}: exit code {process.returncode}, no document: {said[0][:300]}")
        return
    text = json.dumps({"gpu_seconds": round(gate.seconds), **gate.document})
    (out / f"{gate.branch.name}.json").write_text(text, encoding="utf-8")
    for row in judged(gate.branch, gate):
        say(row.line)


@dataclass(frozen=True)
class Row:
    """What came of one plant. ``right``: found with its cause or, if harmless, left alone."""

    plant: Plant
    found: str
    change: str
    cause: str
    seconds: float
    right: bool

    @property
    def line(self) -> str:
        cells = (self.plant.name, f"`{self.plant.workload}`", self.found, self.change,
                 self.cause, f"{self.seconds:.0f}")  # fmt: skip
        return "| " + " | ".join(cells) + " |"


def judged(branch: Branch, gate: Gate | None) -> list[Row]:
    """A row a plant. The seconds of a gate are shared out evenly."""
    if gate is None or gate.document is None:
        return [Row(one, "nothing was measured", "", "", 0.0, False) for one in branch.plants]
    return told(branch, gate.document, gate.seconds)


def kept(branches: Sequence[Branch], folder: Path) -> list[Row]:
    """The rows of what an earlier run measured, with the causes as they are told today. A file with
    the name of a plant is of a later run of that plant alone."""
    rows: list[Row] = []
    for branch in branches:
        for one in branch.plants:
            alone = replace(branch, plants=(one,))
            if (document := left(folder / f"{one.name.replace(' ', '-')}.json")) is not None:
                rows += told(alone, document, document["gpu_seconds"])
            elif (document := left(folder / f"{branch.name}.json")) is not None:
                rows += told(alone, document, document["gpu_seconds"] / len(branch.plants))
            else:
                rows += judged(alone, None)
    return rows


def left(path: Path) -> dict[str, Any] | None:
    """What a gate left in ``path``, if it did."""
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    document["causes"] = causes(
        Change(one["subject"], one["metric"], one["verdict"], number(one["base"]),
               number(one["head"]), one["evidence"], one["reason"])
        for one in document["series"]
    )  # fmt: skip
    return document


def number(value: float | None) -> float:
    return math.nan if value is None else value


def told(branch: Branch, document: Mapping[str, Any], seconds: float) -> list[Row]:
    return [row(one, document, seconds / len(branch.plants)) for one in branch.plants]


def row(planted: Plant, document: Mapping[str, Any], seconds: float) -> Row:
    mine = [
        series
        for series in document["series"]
        if series["subject"].partition(" @ ")[0] == planted.workload and not series["evidence"]
    ]
    if not planted.cause:
        others = [one for one in mine if one["verdict"] != "unchanged"]
        told = ", ".join(f"{one['metric']} {one['verdict']}: {one['reason']}" for one in others)
        seen = share(max((_bound(one["smallest_seen"]) for one in mine), default=0.0))
        return Row(planted, told or f"unchanged in {len(mine)} series", "none",
                   f"(would have seen {seen})", seconds, bool(mine) and not others)  # fmt: skip
    worse = [one for one in mine if one["verdict"] in ("regressed", "missing")]
    worse.sort(key=lambda one: (" @ " in one["subject"], planted.metrics.index(one["metric"])
                                if one["metric"] in planted.metrics else 99))  # fmt: skip
    named = "; ".join(document["causes"].get(planted.workload, ()))
    lost = {one["reason"] for one in worse if one["verdict"] == "missing"}
    named = "; ".join(filter(None, [*sorted(lost), named]))
    # Metrics that a predicted time decided on are evidence beneath its verdict.
    slower = {one["subject"] for one in worse if one["metric"] == PREDICTED}
    beneath = [
        one
        for one in document["series"]
        if one["evidence"] and one["verdict"] == "regressed" and one["subject"] in slower
    ]
    found = any(one["metric"] in planted.metrics for one in (*worse, *beneath))
    metrics = list(dict.fromkeys(one["metric"] for one in worse))
    return Row(
        planted,
        ", ".join(metrics) if worse else "not found",
        change(worse[0]) if worse else "",
        named or "none",
        seconds,
        found and planted.cause in named,
    )


def _bound(seen: float | None) -> float:
    """The smallest change that would have been seen; a bound without end is ``null``."""
    return math.inf if seen is None else seen


def change(series: Mapping[str, Any]) -> str:
    if series["verdict"] == "missing":
        return "no right answer"
    before, after = (f"{series[side]:,.5g}" for side in ("base", "head"))
    relative = f", {series['ratio'] - 1:+.0%}" if series["ratio"] else ""
    return f"{series['metric']} {before} to {after} {series['unit']}{relative}"


def lines(rows: Sequence[Row]) -> list[str]:
    defects = [row for row in rows if row.plant.cause]
    harmless = [row for row in rows if not row.plant.cause]
    found = sum(row.found not in ("not found", "nothing was measured") for row in defects)
    return [
        "| planted | workload | found by | change | cause named | GPU s |",
        "| --- | --- | --- | --- | --- | --- |",
        *(row.line for row in rows),
        "",
        f"{found} of {len(defects)} defects found, {sum(row.right for row in defects)} with the "
        f"cause expected; {sum(row.right for row in harmless)} of {len(harmless)} harmless "
        "commits unchanged",
        *(f"not as expected: {row.plant.name}" for row in rows if not row.right),
    ]


_BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - _BEGAN:6.1f} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

"""``history``: run asv over the newest commits that touch the measured package."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

from warpwatch import project
from warpwatch.asv import configuration
from warpwatch.commands.measure import definitions, interrupted
from warpwatch.commands.measure.choice import commits_of_tags, commits_that_touch
from warpwatch.commands.measure.finished import Ends, Recorded, Stage, subjects_of
from warpwatch.commands.measure.queues import Queue, stages
from warpwatch.commands.measure.terminal import Shown
from warpwatch.config import isolation, sharding
from warpwatch.config.package import CACHE_VARIABLE, SLOTS_VARIABLE, load
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.compiled.measure import compile_server
from warpwatch.instruments.gpu.card import carve_outs, clocks
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence import measured as measured_evidence
from warpwatch.judge.evidence import roofs as measured_roofs
from warpwatch.judge.evidence.benchmarks import counted
from warpwatch.judge.evidence.coverage import coverage
from warpwatch.judge.results.strict_json import RejectedError

# asv: 0 clean, 2 some benchmark failed (its row says so in the report), else it did not run.
_MEASURED = (0, 2)
# asv has built what all benchmarks of one module and commit share.
_SET_UP = re.compile(r"· Setting up \S")

_NOTHING_SELECTED = "No benchmarks selected"
# In what a measuring process finds at its start, and notes on every outcome.
_OF_THE_CARD = (clocks.SHARED, carve_outs.KEPT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commits", type=int, default=5, metavar="N", help="newest N commits; 0: all (default 5)"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--tags", metavar="GLOB", help="only commits with a tag that matches, such as 'v*'"
    )
    which.add_argument(
        "--touching",
        action="append",
        metavar="PATH",
        help="only commits that change PATH, repeatable (default: the package's folder)",
    )
    parser.add_argument(
        "--bench", action="append", default=[], metavar="REGEX", help="as asv's --bench"
    )
    parser.add_argument("--machine", metavar="NAME", help="as asv's --machine")
    parser.add_argument(
        "--again",
        action="store_true",
        help="measure recorded values too (default: only those that a commit lacks, and "
        "each [[workload]] whose call or args changed)",
    )


def is_registered(machine: str | None) -> bool:
    """Whether asv's machine file already describes it: in a container it comes from outside, so
    that all runners of one key agree on it, and cannot be written."""
    from asv.machine import Machine, MachineCollection
    from asv.util import UserError

    try:
        MachineCollection.load(machine or Machine.get_unique_machine_name())
    except UserError:
        return False
    return True


def register(name: str | None) -> None:
    """Write what asv finds out of this machine into its machine file, under ``name`` if there is
    one: `asv machine` then writes nothing but the name, and results without a CPU are parted in the
    report from those with one."""
    from asv.machine import Machine, MachineCollection

    found = Machine.get_defaults() | ({"machine": name} if name else {})
    MachineCollection.save(found["machine"], found)


def main(args: argparse.Namespace) -> int:
    if args.commits < 0:
        raise ValueError(f"--commits: expected 0 (all) or more, got {args.commits}")
    package = load()
    touched = args.touching or [package.path]
    if args.tags:
        commits, why = commits_of_tags(args.tags, args.commits), f"with a tag {args.tags}"
    else:
        commits = commits_that_touch(touched, args.commits)
        why = f"that {'touches' if len(commits) == 1 else 'touch'} {' '.join(touched)}"
    if not commits:
        place = package.repository_path
        print(
            f"no commit of {place} touches {' '.join(touched)}: nothing to measure", file=sys.stderr
        )
        if args.touching:
            print("mend the paths after --touching: they count from its top", file=sys.stderr)
        elif not (place / package.path).is_dir():
            file = project.configuration_file()
            print(f"there is no such folder: mend `path` in [package] of {file}", file=sys.stderr)
        else:
            print("only commits are measured: commit the package first", file=sys.stderr)
        return 3
    load_workloads()  # its mistakes are one message here, and asv's tracebacks later
    aside = project.folder() / ".asv" / "earlier" / time.strftime("%Y-%m-%d-%H%M%S")
    changed = definitions.changed()
    for line in definitions.said(changed, definitions.take_out(changed, aside), aside):
        print(line, file=sys.stderr)
    asv = [sys.executable, "-m", "asv"]
    machine = ["--machine", args.machine] if args.machine else []
    if not is_registered(args.machine):
        register(args.machine)
    command = [*asv, "run", *configuration.options(), "HASHFILE:-", "--show-stderr", *machine]
    lacking = {} if args.again else definitions.missing(commits, args.machine, presence.has_gpu())
    plural = "s" if len(commits) > 1 else ""
    print(
        f"measuring {len(commits)} commit{plural} {why}, newest first",
        file=sys.stderr,
        flush=True,
    )
    begin = time.time_ns()
    once_more = {commit: one.workloads for one, those in lacking.items() for commit in those}

    def is_kept(path: Path, commit: str, workload: str) -> bool:
        asked = once_more.get(commit, {workload})
        return path.stat().st_mtime_ns < begin or workload not in asked

    subjects = subjects_of(package.repository_path, commits)
    recorded = Recorded(project.results(), begin, is_kept, subjects)
    with (
        interrupted.says_what_is_kept(args.again),
        compile_server.serving(),
        tempfile.TemporaryDirectory(prefix="compiled-") as kept,
    ):
        # Most kernels do not change from one commit to the next: what is compiled is kept.
        os.environ.setdefault(CACHE_VARIABLE, kept)
        slots = Path(kept) / "slots"
        slots.mkdir()
        os.environ.setdefault(SLOTS_VARIABLE, str(slots))
        failed = _run_again(lacking, args.bench, command, recorded)
        if not args.again:
            command += ["--skip-existing"]
        cards = clocks.alike() if presence.has_gpu() else None
        has_one_stage = bool(args.bench) or (cards is not None and len(cards) < 2)
        for together in stages(commits, args.bench, cards):
            is_last = has_one_stage or together[0].name == "host"
            failed += _run(together, command, Stage(commits, recorded, is_last))
    for line in said_since(begin):
        print(line, file=sys.stderr)
    for queue, code in failed:
        if args.bench and _NOTHING_SELECTED in (project.folder() / queue.log).read_text("utf-8"):
            print(f"--bench {' '.join(args.bench)}: no benchmark has such a name", file=sys.stderr)
        print(
            f"asv stopped with exit code {code}; its output: {project.folder() / queue.log}",
            file=sys.stderr,
        )
    if failed:
        return 2
    covered = coverage(project.results() / kept_evidence.FOLDER, set(commits), is_kept)
    ran = counted(project.results(), set(commits), args.bench, begin)
    said = covered.lines() if covered.pairs or not ran.lines() else []
    newest = coverage(project.results() / kept_evidence.FOLDER, {commits[0]})
    lost = sum(one.count for one in newest.reasons if one.status != "not applicable")
    if lost:
        said.append(f"the newest commit lacks {lost} of {newest.pairs} pairs")
    print("\n".join([*said, *ran.lines()]), file=sys.stderr)
    measured = (ran.compiled and covered.measured) or ran.measured
    return 0 if measured and not covered.never and not lost else 3


def said_since(begin_ns: int) -> list[str]:
    """What gave the counters of the commits measured since, if not the best tier, and why, what
    shares of peak are of on a card without a datasheet, and whether others computed on the card:
    asv keeps to itself what a measuring process says. Each line once, of a card's ceilings the
    newest."""
    said: set[str] = set()
    ceilings: dict[str, str] = {}
    folder = project.results() / kept_evidence.FOLDER
    for path in sorted(folder.glob(measured_evidence.MEASURED_PATTERN)):
        if path.stat().st_mtime_ns < begin_ns:
            continue
        try:
            data = measured_evidence.read_measured(path)
            counted = measured_evidence.counted_by(path, data)
            measured = measured_roofs.ceilings_of(path, data)
        except RejectedError as error:
            said.add(str(error))
            continue
        said |= measured_evidence.notes_on_all(data, _OF_THE_CARD)
        if counted is not None and counted.why:
            said.add(f"utilization is {counted.said}")
        if measured is not None:
            ceilings[measured.card] = (
                f"no datasheet of {measured.card!r}: shares are of ceilings measured on it "
                f"({measured.said}), times have no floor"
            )
    return sorted(said | set(ceilings.values()))


def _run_again(
    lacking: Mapping[definitions.Lacking, Sequence[str]],
    bench: Sequence[str],
    command: Sequence[str],
    recorded: Recorded,
) -> list[tuple[Queue, int]]:
    """Measure only some workloads of commits whose other values are kept; as ``_run``."""
    failed = []
    for one, commits in lacking.items():
        patterns = definitions.patterns(one, bench, presence.has_gpu())
        queue = Queue("again", commits, patterns)
        os.environ[sharding.ONLY_VARIABLE] = "\n".join(sorted(one.workloads))
        try:
            code = run_asv(command, queue, ends=Ends(Stage(commits, recorded), queue))
        finally:
            del os.environ[sharding.ONLY_VARIABLE]
        log = (project.folder() / queue.log).read_text("utf-8")
        # The user's own patterns may leave them out.
        if code not in _MEASURED and _NOTHING_SELECTED not in log:
            failed.append((queue, code))
    return failed


def _run(
    together: Sequence[Queue], command: Sequence[str], stage: Stage
) -> list[tuple[Queue, int]]:
    """Run asv in all queues; those in which it stopped, and its exit codes. Where no card waits,
    the first compiles its first commit with all cores before the others begin: they find most
    kernels compiled. Each begins when the one before it speaks: asv first writes its machine file
    anew, and stops where it reads half of it."""
    began, compiled = Event(), Event()
    ends = [Ends(stage, queue) for queue in together]
    with ThreadPoolExecutor(len(together)) as pool, interrupted.all_end():
        first = pool.submit(run_asv, command, together[0], compiled, began, ends[0])
        (began if together[0].card else compiled).wait()
        others = []
        for queue, its in zip(together[1:], ends[1:], strict=True):
            begun = Event()
            others.append(pool.submit(run_asv, command, queue, begun=begun, ends=its))
            begun.wait()
        codes = [one.result() for one in (first, *others)]
    return [
        (queue, code) for queue, code in zip(together, codes, strict=True) if code not in _MEASURED
    ]


def run_asv(
    command: Sequence[str],
    queue: Queue,
    set_up: Event | None = None,
    begun: Event | None = None,
    ends: Ends | None = None,
) -> int:
    """Run asv in a queue: its tables go to the log, the rest to the terminal. ``begun`` tells that
    it has said something, ``set_up`` that it has set up its first commit; both that it ended.
    ``ends`` prints a line at the end of each commit."""
    log_file = project.folder() / queue.log
    log_file.parent.mkdir(parents=True, exist_ok=True)
    benches = [word for pattern in queue.patterns for word in ("--bench", pattern)]
    seen = {"CUDA_VISIBLE_DEVICES": queue.card} if queue.card else {}
    try:
        with (
            log_file.open("w", encoding="utf-8") as log,
            subprocess.Popen(
                [*command, *benches],
                cwd=project.folder(),
                env={**os.environ, isolation.QUEUE_VARIABLE: queue.name, **seen},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                encoding="utf-8",
                errors="replace",
            ) as run,
            interrupted.ends_with(run),
        ):
            assert run.stdin is not None and run.stdout is not None
            run.stdin.write("\n".join(queue.commits))
            run.stdin.close()
            shown = Shown()
            for line in run.stdout:
                if begun is not None:
                    begun.set()
                log.write(line)
                _show(queue, shown.before(line))
                if ends is not None:
                    ends.hear(line)
                _show(queue, shown.take(line))
                if set_up is not None and _SET_UP.search(line):
                    set_up.set()
            _show(queue, shown.end())
        code = run.wait()
        if ends is not None and code in _MEASURED:
            ends.end()
        return code
    finally:
        for event in (set_up, begun):
            if event is not None:
                event.set()


def _show(queue: Queue, lines: Iterable[str]) -> None:
    for line in lines:
        said = f"{queue.name:>4} {line}" if queue.name else line
        print(said, end="", file=sys.stderr, flush=True)

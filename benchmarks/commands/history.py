"""``history``: run asv over the newest commits that touch the measured package."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.configuration import CACHE_VARIABLE, ROOT, load
from benchmarks.configuration import workloads as load_workloads
from benchmarks.instruments import commit, presence

# asv: 0 clean, 2 some benchmark failed (its row says so in the report), else it did not run.
_MEASURED = (0, 2)
_LOG = Path(".asv") / "run.log"

# asv's headings start with a dot, with or without the share that is done; its tables do not.
_HEADING = re.compile(r"(\[ *[\d.]+%\] )?·")
# A benchmark that went well says nothing new: its table is in the log.
_SHOWN = re.compile(r"^·|· For |Setting up|failed|skipped")
_WITHOUT_GPU = ("compiled", "host")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--commits", type=int, default=5, metavar="N", help="newest N commits; 0: all (default 5)"
    )
    parser.add_argument(
        "--bench", action="append", default=[], metavar="REGEX", help="as asv's --bench"
    )
    parser.add_argument("--machine", metavar="NAME", help="as asv's --machine")


def commits_that_touch(path: str, count: int, repository: Path = ROOT) -> list[str]:
    """The newest commits that change ``path``, newest first; 0 means all of them."""
    limit = [f"--max-count={count}"] if count else []
    log = subprocess.run(
        ["git", "-C", str(repository), "log", "--format=%H", *limit, "HEAD", "--", path],
        check=True,
        capture_output=True,
        text=True,
    )
    return log.stdout.split()


def patterns_of_the_set(patterns: list[str]) -> list[str]:
    """asv's ``--bench`` patterns, less the GPU values that the history set leaves out anyway: asv
    starts a process for each value, and the card would wait for them."""
    known = [*load_workloads().all_workloads(), *commit.canaries()]
    names = [workload.name for workload in known]
    wanted = commit.wanted(names)
    if wanted == names:
        return patterns
    # asv searches "module.class.method('parameter', ...)".
    values = "|".join(re.escape(repr(name)) for name in wanted)
    allowed = rf"(?:{'|'.join(_WITHOUT_GPU)})\.|.*\((?:{values})\)$"
    return [f"^(?={allowed})(?=.*(?:{pattern}))" for pattern in patterns or [""]]


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


def main(args: argparse.Namespace) -> int:
    if args.commits < 0:
        raise ValueError(f"--commits: expected 0 (all) or more, got {args.commits}")
    package = load()
    commits = commits_that_touch(package.path, args.commits)
    if not commits:
        print(f"no commit touches {package.path}: nothing to measure", file=sys.stderr)
        return 3
    asv = [sys.executable, "-m", "asv"]
    machine = ["--machine", args.machine] if args.machine else []
    if not is_registered(args.machine):
        subprocess.run(
            [*asv, "machine", "--yes", *machine], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
        )
    command = [*asv, "run", "HASHFILE:-", "--skip-existing", "--show-stderr", *machine]
    # Without a GPU its suites have nothing to say, one process a value.
    patterns = args.bench or ([] if presence.has_gpu() else [f"^{one}" for one in _WITHOUT_GPU])
    for pattern in patterns_of_the_set(patterns):
        command += ["--bench", pattern]
    print(
        f"measuring {len(commits)} commits that touch {package.path}, newest first",
        file=sys.stderr,
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="compiled-") as kept:
        # Most kernels do not change from one commit to the next: what is compiled is kept.
        os.environ.setdefault(CACHE_VARIABLE, kept)
        code = run_asv(command, "\n".join(commits))
    if code not in _MEASURED:
        print(f"asv stopped with exit code {code}; its output: {_LOG}", file=sys.stderr)
        return 2
    return 0


def run_asv(command: list[str], commits: str) -> int:
    """Run asv on commits, one a line: its tables go to the log, the rest to the terminal."""
    log_file = ROOT / _LOG
    log_file.parent.mkdir(parents=True, exist_ok=True)
    with (
        log_file.open("w", encoding="utf-8") as log,
        subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
        ) as run,
    ):
        assert run.stdin is not None and run.stdout is not None
        run.stdin.write(commits)
        run.stdin.close()
        shown = False
        for line in run.stdout:
            log.write(line)
            if _HEADING.match(line):
                shown = _SHOWN.search(line) is not None
            if shown and line.strip():
                print(line, end="", file=sys.stderr, flush=True)
    return run.wait()

"""``lane``: measure base and head of a pull request, or one shard of them, for the judge."""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from warpwatch import project
from warpwatch.asv import configuration
from warpwatch.commands.measure.choice import commits_that_touch
from warpwatch.commands.measure.history import is_registered, run_asv
from warpwatch.commands.measure.queues import Queue
from warpwatch.config import sharding
from warpwatch.config.package import load, workloads
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.compiled import spoken_code
from warpwatch.judge.evidence.coverage import coverage
from warpwatch.judge.evidence.measured import MEASURED_PATTERN
from warpwatch.judge.model.commits import head as hash_of
from warpwatch.sandbox import images

SCHEMA_VERSION = 1
_MOST_AGAIN = 8  # commits a night, so that a noisy machine still fills its gaps
_HASH = re.compile(r"[0-9a-f]{7,40}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lane", choices=("cpu", "cuda", "rocm"), required=True)
    parser.add_argument("--base", metavar="COMMIT", help="measured is where head departed from it")
    parser.add_argument("--head", metavar="COMMIT")
    parser.add_argument("--commits", type=int, metavar="N",
                        help="instead: the newest N commits that have no results yet")  # fmt: skip
    parser.add_argument("--known", type=Path, metavar="DIR",
                        help="with --commits: results that are there already")  # fmt: skip
    parser.add_argument("--again", type=Path, metavar="FILE",
                        help="with --commits: a file that suspects --json wrote; its commits "
                             "are measured once more")  # fmt: skip
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="this runner's part")
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX",
                        help="as asv's --bench; with one shard only")  # fmt: skip
    parser.add_argument("--machine", metavar="NAME", help="default: the lane's in versions.toml")
    parser.add_argument("--out", type=Path, default=project.folder() / ".asv", metavar="DIR",
                        help="gets results/ and, at the very end, shard.json")  # fmt: skip


def main(args: argparse.Namespace) -> int:
    """Exit 0 when asv ran to its end; benchmarks that fail are rows that say so."""
    shard, shards = sharding.parse(args.shard)
    if args.bench and shards > 1:
        raise ValueError("--bench: expected with one shard only; the shards choose by workload")
    commits = _commits(args)
    machine = args.machine or images.get(args.lane).machine
    out = args.out.resolve()
    manifest = out / "shard.json"
    manifest.unlink(missing_ok=True)
    if not is_registered(machine):
        # asv wants a configuration here as well, which a project need not have.
        asv_machine = [sys.executable, "-m", "asv", "machine", *configuration.options(), "--yes"]
        asv_machine += ["--machine", machine]
        subprocess.run(asv_machine, cwd=project.folder(), check=True, stdout=subprocess.DEVNULL)
    names = [workload.name for workload in workloads().all_workloads()]
    chosen = args.bench or sharding.patterns(names, shard, shards)
    os.environ[sharding.VARIABLE] = args.shard  # what measures once for all benchmarks
    own = project.results()
    if args.commits is None:
        passes = in_turns(commits, chosen)
        if args.lane == "cpu" or len(commits) == 1:  # nothing that drifts, or nothing to compare
            passes = [_Pass(commits, (), chosen)]
        known: dict[str, bytes] = {}
    else:
        suspected = _suspected(args.again, machine)
        known = _bring(args.known, own, machine, [c for c in commits if c not in suspected])
        # A failed point may be the part of a shard that died: it is tried again.
        new = [c for c in commits if c not in suspected]
        passes = [_Pass(new, ("--skip-existing-successful",), chosen)]
        benchmarks = {name for found in suspected.values() for name in found}
        passes.append(_Pass(list(suspected), (), within(benchmarks, chosen)))
        commits = [*suspected, *new]
    for one in passes:
        code = _run(one, machine) if one.commits else 0
        if code not in (0, 2):
            print(f"asv stopped with exit code {code}: not all was measured", file=sys.stderr)
            return 3
    for name, content in known.items():
        path = own / machine / name
        if path.read_bytes() == content:
            path.unlink()  # nothing new about it: only what was measured is handed over
    covered = coverage(own / kept_evidence.FOLDER, commits)
    if covered.pairs:  # asv keeps the errors of what it measured to itself
        print("\n".join(covered.lines()), file=sys.stderr)
    copied = _copy_results(own, out / "results", machine, commits)
    if not copied and args.commits is None:
        print("asv has measured nothing", file=sys.stderr)
        return 3
    document = {
        "schema_version": SCHEMA_VERSION,
        "lane": args.lane,
        "shard": shard,
        "shards": shards,
        "base": commits[0],
        "head": commits[-1],
    }
    manifest.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


@dataclass(frozen=True)
class _Pass:
    """One run of asv: over which commits, with which options, and which benchmarks."""

    commits: list[str]
    options: tuple[str, ...]
    patterns: list[str]


def in_turns(commits: list[str], chosen: list[str]) -> list[_Pass]:
    """Base, head, head, base: each turn in processes of its own, all samples of a commit pooled.

    So a card that warms up, or slows down for another reason, does so for both alike. What is
    compiled is exact and measured once.
    """
    timed = [rf"^(?!compiled\.)(?=.*?{pattern})" for pattern in chosen] or [r"^(?!compiled\.)"]
    there = [_Pass([commit], (), chosen) for commit in commits]
    back = [_Pass([commit], ("--append-samples",), timed) for commit in reversed(commits)]
    return [*there, *back]


def _run(one: _Pass, machine: str) -> int:
    # Samples are kept, so that a later run of the same commit can be pooled with this one.
    command = [sys.executable, "-m", "asv", "run", *configuration.options(), "HASHFILE:-"]
    command += ["--show-stderr", "--machine", machine, "--record-samples", *one.options]
    short = " and ".join(commit[:10] for commit in one.commits)
    print(f"measuring {short} of {load().path}", file=sys.stderr)
    return run_asv(command, Queue("", one.commits, one.patterns))


def _bring(known: Path | None, own: Path, machine: str, commits: list[str]) -> dict[str, bytes]:
    """Lay known results of the commits where asv looks for them; each file as it was."""
    found = {}
    for path in sorted((known / machine).glob("*.json")) if known else []:
        if path.name != "machine.json" and any(
            commit.startswith(path.name.partition("-")[0]) for commit in commits
        ):
            found[path.name] = path.read_bytes()
    for name, content in found.items():
        (own / machine).mkdir(parents=True, exist_ok=True)
        (own / machine / name).write_bytes(content)
    return found


def _suspected(file: Path | None, machine: str) -> dict[str, list[str]]:
    """Commits to measure again on this machine, the largest changes first, with the benchmarks."""
    if file is None:
        return {}
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        suspects = [one for one in document["suspects"] if one["machine"] == machine]
        wanted = [(str(c), str(one["benchmark"])) for one in suspects for c in one["commits"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file}: expected what `warpwatch suspects --json` prints, got {error!r}"
        ) from None
    found: dict[str, list[str]] = {}
    for commit, benchmark in wanted:
        if commit in found or len(found) < _MOST_AGAIN:
            found.setdefault(_commit(commit), []).append(benchmark)
    return found


def _commits(args: argparse.Namespace) -> list[str]:
    """What to measure: the base first, the head last."""
    if args.commits is None and (args.known or args.again):
        raise ValueError("--known and --again: expected with --commits")
    if args.commits is not None:
        if args.base or args.head or args.commits < 1:
            raise ValueError("--commits: expected 1 or more, without --base and --head")
        return commits_that_touch(load().path, args.commits)[::-1]
    if not args.base or not args.head:
        raise ValueError("expected --base and --head, or --commits")
    head = _commit(args.head)
    base = _git("merge-base", _commit(args.base), head)
    return [base, head] if base != head else [head]


def _copy_results(source: Path, target: Path, machine: str, commits: list[str]) -> int:
    """Copy the results of these commits, with what lies beside them; how many there are."""
    count = 0
    for path in sorted((source / machine).glob("*")):
        commit = path.name.partition("-")[0]
        if not any(c.startswith(commit) for c in commits) and path.name != "machine.json":
            continue
        count += path.suffix == ".json" and path.name != "machine.json"
        if target != source and path.is_file():
            (target / machine).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target / machine / path.name)
    if target != source:
        target.mkdir(parents=True, exist_ok=True)
        if (source / "benchmarks.json").is_file():
            shutil.copy(source / "benchmarks.json", target / "benchmarks.json")
        _copy_evidence(source / kept_evidence.FOLDER, target / kept_evidence.FOLDER, commits)
    return count


def _copy_evidence(source: Path, target: Path, commits: list[str]) -> None:
    """What explains these commits' values, and the code it speaks of."""
    for path in source.glob(MEASURED_PATTERN):
        if any(commit.startswith(path.name.removeprefix("gpu-")[:8]) for commit in commits):
            target.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / path.name)
    for path in kept_evidence.files(source):
        if not any(commit.startswith(path.name.partition("-")[0]) for commit in commits):
            continue
        codes = spoken_code(path)
        listings = [kept_evidence.listing_path(source, code) for code in sorted(codes)]
        for file in (path, *(listing for listing in listings if listing.is_file())):
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


def within(benchmarks: Collection[str], chosen: list[str]) -> list[str]:
    """Patterns for what ``chosen`` matches (everything, if it is empty) of some benchmarks."""
    if not benchmarks:
        return chosen
    names = "|".join(re.escape(name) for name in sorted(benchmarks))
    ours = rf"^(?=(?:{names})(?:\(|$))"
    return [rf"{ours}(?=.*?{pattern})" for pattern in chosen] or [ours]


def _commit(revision: str) -> str:
    """The full hash. Revisions come from events: nothing that looks like an option gets to git."""
    if not _HASH.fullmatch(revision) and not re.fullmatch(r"[A-Za-z0-9][\w./~^-]*", revision):
        raise ValueError(f"expected a commit, got {revision!r}")
    return hash_of(load().repository_path, revision)


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(load().repository_path), *arguments], capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()

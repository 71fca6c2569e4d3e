"""``bisect``: which commit is behind a finding; stops with *inconclusive* rather than guess."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from warpwatch.commands.results.report import default_results
from warpwatch.compare import paired_runs, without_gpu
from warpwatch.config import package as configuration
from warpwatch.config.package import CACHE_VARIABLE, chosen_targets
from warpwatch.config.package import load as load_package
from warpwatch.instruments import presence
from warpwatch.instruments.compiled.measure import compile_server
from warpwatch.judge.findings.judgement import Judgement, judge_folders
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import PREDICTED, Judged, by_their_length, settle
from warpwatch.session import versions
from warpwatch.session.residents import Residents, most_together

Judge = Callable[[str], Verdict]

# The costliest series of a finding tell its commit as well as all of them.
_MOST_SERIES = 6


@dataclass(frozen=True)
class Found:
    """The cause lies in ``commits``; ``why`` is empty when that is one commit."""

    commits: tuple[str, ...]
    why: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", metavar="FINDING|GOOD",
                        help="a finding of the report, or a commit that is still fast")  # fmt: skip
    parser.add_argument("bad", metavar="BAD", nargs="?",
                        help="a later commit that is not; not with a finding")  # fmt: skip
    parser.add_argument("--workload", action="append", default=[], metavar="NAME",
                        help="with GOOD and BAD: what got worse")  # fmt: skip
    parser.add_argument("--target", action="append", default=[], metavar="NAME",
                        help="compile for these, else as configured or found")  # fmt: skip
    parser.add_argument("--time", action="store_true",
                        help="judge by time on a GPU, not by what the compilers say")  # fmt: skip
    parser.add_argument("--results", type=Path, action="append", metavar="DIR",
                        help="where the finding is (default: .asv/results, "
                        "reports/published)")  # fmt: skip


@dataclass(frozen=True)
class Search:
    """What to look for: the pairs of workload and target, on which metrics (all if empty)."""

    good: str
    bad: str
    pairs: tuple[tuple[str, str], ...]
    metrics: frozenset[str]
    by_time: bool

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.pairs))


def main(args: argparse.Namespace) -> int:
    """Exit 1 with the one commit, 3 with the range that is left when it cannot be told."""
    wanted = _from_commits(args) if args.bad else _from_finding(args)
    if wanted.by_time and not presence.has_gpu():
        raise ValueError(
            "there is no GPU here, and only a time can tell; where compiled metrics moved too, "
            "GOOD BAD --workload NAME judges by them"
        )
    commits = between(wanted.good, wanted.bad)
    _tell(f"{len(commits)} commits after {wanted.good[:10]} up to {wanted.bad[:10]}, judged on "
          + ", ".join(wanted.names))  # fmt: skip
    with compile_server.serving(), tempfile.TemporaryDirectory(prefix="warpwatch-") as folder:
        # Most kernels are the same at most commits: what is compiled is kept.
        os.environ.setdefault(CACHE_VARIABLE, str(Path(folder) / "kernels"))
        steps = _Steps(wanted, Path(folder))
        worse = _reproduced(steps.judged(commits[-1]), wanted)
        if not worse:
            seen = steps.judged(commits[-1])
            print(f"inconclusive: {_unreproduced(seen, wanted)}; nothing is bisected")
            return 3
        _tell("reproduced at both ends: " + "; ".join(map(_change, worse)))
        steps.watch(worse)
        found = search(commits, steps.judge, _tell)
    if found.why:
        print(f"inconclusive: {found.why}; {len(found.commits)} commits are left")
    for commit in found.commits:
        print(_git("log", "-1", "--format=%h %an: %s", commit))
    return 3 if found.why else 1


class _Steps:
    """Commits held against the good one. Each is measured once, on what is still watched."""

    def __init__(self, wanted: Search, folder: Path) -> None:
        self._wanted = wanted
        self._folder = folder
        self._good = versions.prepare(wanted.good, folder / "good")
        self._before: Mapping[versions.Pair, Mapping[str, Any]] = {}
        self._watched: frozenset[tuple[str, str]] = frozenset()
        self._known: dict[str, tuple[Judged, ...]] = {}

    def watch(self, worse: Sequence[Judged]) -> None:
        """Look at these series only: what did not move between the ends has no first bad commit,
        and its noise would leave each step in doubt."""
        self._watched = frozenset((one.subject, one.metric) for one in worse)
        pairs = [
            (name, target)
            for name, target in self._wanted.pairs
            if any(one.subject in (name, f"{name} @ {target}") for one in worse)
        ]
        self._wanted = replace(self._wanted, pairs=tuple(pairs))

    def judged(self, commit: str) -> tuple[Judged, ...]:
        """Every series of this commit, ``()`` where its package is that of the good one."""
        if commit not in self._known:
            self._known[commit] = self._measured(commit)
        return self._known[commit]

    def judge(self, commit: str) -> Verdict:
        """One word for this commit, by what is watched."""
        found = self.judged(commit)
        if not found:
            return "unchanged"
        mine = [one for one in found if (one.subject, one.metric) in self._watched]
        for one in mine:
            if one.judgement.verdict == "inconclusive":
                _tell(f"{commit[:10]}: {one.metric} of {one.subject}: {one.judgement.reason}")
        return worst(mine)

    def _measured(self, commit: str) -> tuple[Judged, ...]:
        head = versions.prepare(commit, self._folder / commit[:12])
        if versions.same_package(self._good, head):
            return ()
        if self._wanted.by_time:
            with versions.gpu_turn(_tell):
                return _by_time(self._good, head, self._wanted)
        pairs = list(self._wanted.pairs)
        if not self._before:
            self._before = versions.compiled(self._good, pairs, _tell)
        return _compiled({pair: self._before[pair] for pair in pairs}, head, self._wanted)


def _reproduced(judged: Sequence[Judged], wanted: Search) -> list[Judged]:
    """What is worse at the bad end than at the good one: by this, each step is judged."""
    return [
        one
        for one in _asked(judged, wanted)
        if not one.evidence and one.judgement.verdict in ("regressed", "missing")
    ]


def _unreproduced(judged: Sequence[Judged], wanted: Search) -> str:
    """Why there is nothing to bisect: what was seen of the series that is least sure."""
    ends = f"the change does not reproduce: {wanted.bad[:10]} against {wanted.good[:10]}"
    asked = [one for one in _asked(judged, wanted) if not one.evidence]
    if not judged:
        return f"{ends} has the same package"
    if not asked:
        return f"{ends} gave no value"
    verdict = worst(asked)
    one = next(one for one in asked if one.judgement.verdict == verdict)
    return f"{ends} is {verdict} in {one.metric} of {one.subject} ({one.judgement.reason})"


def _asked(judged: Sequence[Judged], wanted: Search) -> list[Judged]:
    return [one for one in judged if one.metric in (wanted.metrics or {one.metric})]


def _change(one: Judged) -> str:
    return f"{one.metric} of {one.subject}, {one.base:.6g} to {one.head:.6g} {one.unit}".strip()


def _from_commits(args: argparse.Namespace) -> Search:
    if not args.workload:
        raise ValueError("--workload: expected the name of what got worse between GOOD and BAD")
    names = [configuration.workloads().get(name).name for name in args.workload]
    pairs = tuple((name, target) for name in names for target in chosen_targets(args.target))
    return Search(args.what, args.bad, pairs, frozenset(), args.time)


def _from_finding(args: argparse.Namespace) -> Search:
    if args.workload:
        raise ValueError("--workload: a finding names its own; expected GOOD BAD with it")
    folders = args.results or [one for one in default_results() if one.is_dir()]
    judgement = judge_folders(folders, load_package().repository_path)
    known = [w.name for w in configuration.workloads().all_workloads()]
    return of_finding(judgement, args.what, known, args.target, by_time=args.time)


def of_finding(
    judgement: Judgement,
    identity: str,
    known: Sequence[str],
    chosen: Sequence[str] = (),
    *,
    by_time: bool = False,
) -> Search:
    """The search for the cause of a finding: its range, its workloads and metrics.

    Where anything compiled moved, the compilers are asked: they are exact and need no GPU.
    """
    found = [one for one in judgement.findings if one.identity == identity]
    if not found:
        worse = [f.identity for f in judgement.findings if judgement.status(f) != "improved"]
        raise ValueError(f"finding {identity}: not known; there are {', '.join(worse) or 'none'}")
    finding = found[0]
    if judgement.status(finding) == "improved":
        raise ValueError(f"finding {identity}: is an improvement, nothing got worse")
    if finding.kind == "other space":
        good, bad = finding.changes[0].last_good[:10], finding.commits[-1][:10]
        raise ValueError(
            f"finding {identity}: autotuned kernels choose from other configurations, and nothing "
            f"got worse; `warpwatch inspect --diff {good} {bad} WORKLOAD` lists them"
        )
    members = [(change, judgement.info(change.series)) for change in finding.changes]
    ours = [(change, info) for change, info in members if info.workload in known]
    compiled = [(change, info) for change, info in ours if info.meaning.instrument == "compiled"]
    timed = by_time or not compiled
    members = [one for one in ours if one not in compiled] if timed else compiled
    if not members:
        benchmark = finding.changes[0].series.benchmark
        raise ValueError(
            f"finding {identity}: {benchmark} is none of this package's workloads; "
            f"`asv find` bisects it by time alone"
        )
    positions = judgement.history.positions
    good = max((change.last_good for change, _ in members), key=positions.__getitem__)
    pairs = dict.fromkeys(
        (info.workload, target)
        for _, info in members[:_MOST_SERIES]
        for target in ([info.target] if not timed else [""])
        if timed or not chosen or target in chosen
    )
    if not pairs:
        on = ", ".join(sorted({info.target for _, info in members}))
        raise ValueError(f"--target: finding {identity} is on {on}")
    return Search(
        good,
        finding.commits[-1],
        tuple(pairs),
        frozenset() if timed else frozenset(info.meaning.metric for _, info in members),
        timed,
    )


def search(commits: Sequence[str], judge: Judge, tell: Callable[[str], None]) -> Found:
    """The first of ``commits`` (oldest first, the last one known bad) that is worse than good.

    The last one is judged first: where it cannot be told from good, nothing can be found.
    """
    left = list(commits)
    verdict = judge(left[-1])
    if verdict not in ("regressed", "missing"):
        return Found(tuple(left), f"{left[-1][:10]} itself is {verdict}")
    while len(left) > 1:
        middle = (len(left) - 1) // 2
        verdict = judge(left[middle])
        tell(f"{left[middle][:10]}: {verdict}, {len(left)} commits left")
        if verdict in ("regressed", "missing"):
            left = left[: middle + 1]
        elif verdict in ("unchanged", "improved"):
            left = left[middle + 1 :]
        else:
            return Found(tuple(left), f"{left[middle][:10]} is {verdict}")
    return Found(tuple(left))


def worst(judged: Sequence[Judged]) -> Verdict:
    """One word for a commit: a regression of any verdict metric, else what is least sure."""
    verdicts = {one.judgement.verdict for one in judged if not one.evidence}
    order: tuple[Verdict, ...] = (
        *("missing", "regressed", "mixed", "inconclusive", "improved", "unchanged"),
    )
    return next((word for word in order if word in verdicts), "not applicable")


def between(good: str, bad: str) -> list[str]:
    """The commits after ``good`` up to ``bad`` that touch the measured package, oldest first."""
    path = configuration.load().path
    out = _git("rev-list", "--reverse", "--first-parent", "--end-of-options", f"{good}..{bad}",
               "--", path)  # fmt: skip
    if not out:
        raise ValueError(f"no commit between {good} and {bad} touches {path}: nothing to bisect")
    return out.split()


def _compiled(
    before: Mapping[versions.Pair, Mapping[str, Any]], head: versions.Version, wanted: Search
) -> tuple[Judged, ...]:
    """``before`` is what the compilers say of the good commit, which is the same at each step."""
    limits = thresholds.load()
    after = versions.compiled(head, list(wanted.pairs), _tell)
    judged = without_gpu.judge(before, after, limits)
    if wanted.metrics:  # the commit that moved them is wanted, whatever becomes of the time
        judged = [one for one in judged if one.metric != PREDICTED or PREDICTED in wanted.metrics]
    found = settle(judged, limits.false_discovery_rate).judged
    return tuple(_as_before(one) if one.metric == PREDICTED else one for one in found)


def _as_before(one: Judged) -> Judged:
    """A predicted time that may be that of the good commit counts as such."""
    if one.judgement.verdict != "inconclusive":
        return one
    return replace(one, evidence=False, judgement=replace(one.judgement, verdict="unchanged"))


def _by_time(good: versions.Version, head: versions.Version, wanted: Search) -> tuple[Judged, ...]:
    staying = Residents({"base": good, "head": head}, counters=True)
    limits = thresholds.load()
    cards = len(staying.cards)
    together = most_together(cards=cards)
    timed = paired_runs.Duel(
        "latency", staying.measure, Plan(), seconds=600.0, together=together, cards=cards
    )
    judged = by_their_length(paired_runs.fight(timed, wanted.names, limits, _tell))
    return settle(judged, limits.false_discovery_rate).judged


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(load_package().repository_path), *arguments],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise ValueError(f"git {arguments[0]} failed: {done.stderr.strip()}")
    return done.stdout.strip()


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

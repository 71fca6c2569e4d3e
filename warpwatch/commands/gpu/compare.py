"""``compare``: measure two versions of the package side by side and judge what changed."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warpwatch.commands.results.report import default_results
from warpwatch.compare import equal_calls, host_time, on_gpu, without_gpu
from warpwatch.config import package as configuration
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments import presence
from warpwatch.instruments.compiled.measure import compile_server
from warpwatch.judge.findings.compiled_moves import Change, causes
from warpwatch.judge.model import short_calls, thresholds
from warpwatch.judge.pairs.plan import Plan
from warpwatch.judge.pairs.run_verdict import LOOKS_LIKE_NOISE, Judged, RunVerdict, settle
from warpwatch.report.words import legend, share
from warpwatch.session import versions

SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", metavar="BASE", help="a commit or a branch")
    parser.add_argument("head", metavar="HEAD", nargs="?", default=versions.WORKING_TREE,
                        help="a commit, a branch, or . for the working tree (default)")  # fmt: skip
    parser.add_argument("--workload", action="append", default=[], metavar="NAME",
                        help="these workloads (default: the fixed set)")  # fmt: skip
    parser.add_argument("--kernel", metavar="NAME", help="all workloads of one kernel")
    parser.add_argument("--target", action="append", default=[], metavar="NAME",
                        help="compile for these only (default: those configured)")  # fmt: skip
    parser.add_argument("--pairs", type=int, default=Plan.most_pairs, metavar="N",
                        help="pairs of processes at most (default %(default)s)")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S",
                        help="at most this long on the GPU (default %(default)s)")  # fmt: skip
    parser.add_argument("--no-counters", action="store_true",
                        help="judge by time, answer and memory: half the processes")  # fmt: skip
    parser.add_argument("--compiled-only", action="store_true", help="do not use the GPU")
    parser.add_argument("--thresholds", type=Path, metavar="FILE",
                        help="default: reports/thresholds.toml")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the order of the pairs")
    parser.add_argument("--all", action="store_true",
                        help="also list what is unchanged, equal calls, and with --recorded "
                             "evidence")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(args: argparse.Namespace) -> int:
    """Exit 0 clean, 1 regressed, 2 usage, 3 inconclusive or nothing measured."""
    limits = thresholds.load(args.thresholds)
    plan = Plan().within(args.pairs)
    pairs = _pairs(args)
    with compile_server.serving(), tempfile.TemporaryDirectory(prefix="warpwatch-") as folder:
        # Most kernels are the same in both: what is compiled is kept.
        os.environ.setdefault(CACHE_VARIABLE, str(Path(folder) / "kernels"))
        base = versions.prepare(args.base, Path(folder) / "base")
        head = versions.prepare(args.head, Path(folder) / "head")
        if versions.same_package(base, head):
            path = configuration.load().path
            print(f"{path} is the same in {base.label} and {head.label}: nothing can differ")
            return 0
        # From both ends, so that each finds what the other has compiled.
        sides = ((base, pairs), (head, pairs[::-1]))
        with ThreadPoolExecutor(2) as pool:
            before, after = pool.map(lambda one: versions.compiled(one[0], one[1], _tell), sides)
        judged = without_gpu.judge(before, after, limits)
        equal: dict[str, tuple[str, ...]] = {}
        here: str | None = None
        if not args.compiled_only:
            if presence.has_gpu():
                names = list(dict.fromkeys(workload for workload, _ in pairs))
                here = equal_calls.target_here()
                equal = equal_calls.find(before, after, here)
                left = [name for name in names if name not in equal]
                _tell(_said_of(equal))
                asked = host_time.chosen([name for name in names if name in equal])
                judged += host_time.judge(base, head, asked, limits, _tell)
                with versions.gpu_turn(_tell):
                    judged += on_gpu.judge(base, head, left, limits, _asked(plan, args), _tell)
            else:
                _tell("no GPU here: judged by what the compilers say")
    verdict = settle(judged, limits.false_discovery_rate, here)
    unread = without_gpu.unread_on_both(before, after)
    code = verdict.exit_code or (3 if unread else 0)
    if args.json:
        found = document(base.label, head.label, verdict, equal)
        print(json.dumps({**found, "exit_code": code, "unread": unread}, indent=1))
    else:
        print("\n".join(lines(base.label, head.label, verdict, args.all, equal)))
        for name, detail in unread.items():
            print(f"not measured in either: {name}: {detail}")
    return code


def _asked(plan: Plan, args: argparse.Namespace) -> on_gpu.Asked:
    folders = tuple(one for one in default_results() if one.is_dir())
    return on_gpu.Asked(plan, args.seconds, args.seed, not args.no_counters, folders)


def _said_of(equal: Mapping[str, Sequence[str]]) -> str:
    if not equal:
        return "every workload's call may differ: all are measured"
    return f"equal calls, not measured on the GPU: {len(equal)} workloads"


def _pairs(args: argparse.Namespace) -> list[versions.Pair]:
    """What to compile: the chosen workloads on the chosen targets, by default the fixed set."""
    module = configuration.workloads()
    chosen = configuration.chosen_targets(args.target)
    if args.workload or args.kernel:
        names = [module.get(name).name for name in args.workload]
        if args.kernel:
            names += [workload.name for workload in module.select(kernel=args.kernel)]
            if not names:
                raise ValueError(f"--kernel: no workload has a kernel {args.kernel!r}")
        return [(name, target) for name in dict.fromkeys(names) for target in chosen]
    pairs = [(workload.name, target) for workload, target in module.fixed_set()]
    return [pair for pair in pairs if not args.target or pair[1] in chosen]


def document(
    base: str, head: str, verdict: RunVerdict, equal: Mapping[str, Sequence[str]] | None = None
) -> dict[str, Any]:
    """The result as JSON; NaN is ``null``. ``equal`` has by workload the hashes of machine code of
    calls that are the same on both sides, and were not measured."""
    series = [
        _plain({**asdict(one), **asdict(one.judgement), "judgement": None})
        for one in verdict.judged
    ]
    for row in series:
        del row["judgement"]
    return {
        "schema_version": SCHEMA_VERSION,
        "base": base,
        "head": head,
        "exit_code": verdict.exit_code,
        "expected_false_alarms": verdict.expected_false,
        "looks_like_noise": verdict.symmetric,
        "causes": _causes(verdict),
        "seconds_more": max(
            (one.seconds_more for one in verdict.judged if math.isfinite(one.seconds_more)),
            default=None,
        ),
        "equal_calls": {name: list(hashes) for name, hashes in (equal or {}).items()},
        "series": series,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _causes(verdict: RunVerdict) -> dict[str, list[str]]:
    return causes(
        Change(
            one.subject,
            one.metric,
            one.judgement.verdict,
            one.base,
            one.head,
            one.evidence,
            one.judgement.reason,
        )
        for one in verdict.judged
    )


def lines(
    base: str,
    head: str,
    verdict: RunVerdict,
    show_all: bool,
    equal: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """The table, the causes, and one line that says it all."""
    rank = (
        *("missing", "regressed", "mixed", "inconclusive", "improved", "not applicable"),
        "unchanged",
    )
    judged = sorted(
        (one for one in verdict.judged if not one.evidence),
        key=lambda one: (rank.index(one.judgement.verdict), -_size(one)),
    )
    out = []
    for one in judged:
        found = one.judgement
        if found.verdict == "unchanged" and not show_all:
            continue
        change = f"{found.ratio - 1:+.2%}" if math.isfinite(found.ratio) else ""
        out.append(
            f"{found.verdict:<15}{one.metric:<20}{_number(one.base):>12} -> {_number(one.head):<12}"
            f"{one.unit:<8}{change:>9}  {one.subject}  ({_why(one)})"
        )
    for subject, sentences in _causes(verdict).items():
        out.append(f"why {subject}: {'; '.join(sentences)}")
    for subject, hashes in (equal or {}).items() if show_all else ():
        code = ", ".join(dict.fromkeys(one[:12] for one in hashes))
        out.append(f"equal call, not measured: {subject} (machine code {code})")
    if equal and not show_all:
        count = f"equal calls of {len(equal)} workloads"
        out.append(f"{count} were not measured on the GPU (--all lists them)")
    short = sum(one.metric == short_calls.CYCLES for one in judged)
    if short:
        out.append(
            f"{short} calls take less than {short_calls.SHORT_US:.0f} us: judged by "
            f"{short_calls.CYCLES}, whatever their launch took"
        )
    counts = {word: sum(one.judgement.verdict == word for one in judged) for word in rank}
    summary = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    out.append(f"{base} -> {head}: {summary or 'nothing was measured'}")
    out += legend(one.judgement.verdict for one in judged)
    if verdict.symmetric:
        out.append(LOOKS_LIKE_NOISE)
    undecided = [one for one in judged if math.isfinite(one.seconds_more)]
    if undecided:
        longest = max(undecided, key=lambda one: one.seconds_more)
        others = f" and {len(undecided) - 1} more series" if undecided[1:] else ""
        out.append(
            f"about {longest.seconds_more:.0f} s more would decide {longest.metric} of "
            f"{longest.subject}{others}: --seconds and --pairs give them"
        )
    noisy = [one for one in judged if not one.exact]
    if noisy:
        seen = [one.judgement.smallest_seen for one in noisy if one.judgement.smallest_seen > 0]
        out.append(
            f"of {len(noisy)} noisy series, {verdict.expected_false:.2g} false alarms are "
            f"expected; the coarsest would have seen {share(max(seen, default=math.nan))}"
        )
    return out


def _why(one: Judged) -> str:
    found = one.judgement
    if found.test in ("exact", "none"):
        return found.reason
    return (
        f"{found.reason}; {found.pairs} pairs, {found.noise} noise, "
        f"would have seen {share(found.smallest_seen)}"
    )


def _size(one: Judged) -> float:
    ratio = one.judgement.ratio
    return abs(math.log(ratio)) if ratio > 0 and math.isfinite(ratio) else math.inf


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:,.6g}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)

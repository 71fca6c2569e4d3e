"""Two sides of the same measurements: what got better or worse, and what explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal

from warpwatch.config import metrics
from warpwatch.instruments.compiled.machine_code.identity import differences
from warpwatch.instruments.compiled.measure.jobs import Result
from warpwatch.judge.model import atomics, search_space, thresholds
from warpwatch.judge.model.core import Verdict
from warpwatch.judge.model.thresholds import Threshold
from warpwatch.judge.predicted import verdict as predicted

from . import requests
from .change import Change, number

Word = Literal[
    "regressed",
    "improved",
    "missing",
    "new",
    "mixed",
    "inconclusive",
    "same",
    "other code",
    "other space",
    "nothing",
]

_WORDS = (
    *("missing", "regressed", "mixed", "inconclusive", "improved", "new"),
    *("other code", "other space", "same", "nothing"),
)
_OF_VERDICTS: Mapping[Verdict, Word] = {
    "regressed": "regressed",
    "improved": "improved",
    "mixed": "mixed",
    "inconclusive": "inconclusive",
}
# Programs read these in JSON; people read a verdict.
_IN_JSON: Mapping[Word, str] = {
    "regressed": "HURT",
    "improved": "helped",
    "missing": "LOST",
    "new": "GAINED",
}
# Words that ask for a person: what they are said of may be slower.
UNSURE = ("mixed", "inconclusive")
_EXPLAINING = ("registers", "shared_bytes", "code_bytes", "atomics", "configurations")


@dataclass(frozen=True)
class Compared:
    """One workload or call on one target, before and after.

    ``mixed`` and ``inconclusive`` are calls whose predicted time may have moved either way, where
    other metrics moved. ``missing`` compiled before and does not now; ``new`` the other way round;
    ``other code`` changed without a verdict;
    ``other space``: an autotuned kernel chooses among other configurations; ``nothing`` is known of
    one side or both. ``kernels`` says which kernels run in place of which others: their values say
    little about each other. ``time`` is the change of the predicted time, where it has one.
    """

    name: str
    target: str
    word: Word
    verdicts: tuple[Change, ...] = ()
    evidence: tuple[Change, ...] = ()
    causes: tuple[str, ...] = ()
    kernels: str = ""
    time: predicted.Change | None = None

    @property
    def moved(self) -> list[Change]:
        """All metrics with a direction that moved."""
        return [one for one in (*self.verdicts, *self.evidence) if one.better is not None]

    @property
    def worse(self) -> list[Change]:
        """What got worse; of a call that became faster nothing counts."""
        return [one for one in self.moved if self.word != "improved" and one.better is False]

    @property
    def worst(self) -> Change | None:
        """The gravest of it."""
        return min(self.worse, key=lambda change: change.gravity, default=None)


@cache
def _limits() -> Mapping[str, Threshold]:
    """Metrics that must move by some amount to be worth a word; the rest is exact."""
    return thresholds.load().metrics


def compare(old: Iterable[Result], new: Iterable[Result]) -> list[Compared]:
    """Pair results by name and target; the worst first."""
    before = {(one.job.name, one.job.target): one for one in old}
    after = {(one.job.name, one.job.target): one for one in new}
    found = [_compare(before[key], after[key], *key) for key in after if key in before]
    return sorted(found, key=_order)


def _order(one: Compared) -> tuple[object, ...]:
    gravity = one.worst.gravity if one.worst else (0, 0.0)
    return _WORDS.index(one.word), gravity, one.name, one.target


def _compare(old: Result, new: Result, name: str, target: str) -> Compared:
    unknown = [one for one in (old, new) if one.status == "not measured"]
    if unknown or "ok" not in (old.status, new.status):
        return Compared(name, target, "nothing", causes=((unknown or [new])[0].detail,))
    if new.status != "ok":
        return Compared(name, target, "missing", causes=(new.detail,))
    if old.status != "ok":
        return Compared(name, target, "new", causes=(f"before: {old.detail}",))
    verdicts, evidence, notes = [], [], list[str]()
    updates = [side.values.get(atomics.METRIC) for side in (old, new)]
    for metric in metrics.COMPILED:
        change = _change(metric, old.values.get(metric.name), new.values.get(metric.name))
        if change is None:
            continue
        unsaid = atomics.reason(metric.name, *updates)
        if unsaid:
            notes.append(f"{change}: {unsaid}")
        elif metric.role == "verdict":
            verdicts.append(change)
        elif metric.name in _EXPLAINING:
            evidence.append(change)
    word: Word = "same" if _codes(old) == _codes(new) else "other code"
    verdicts += requests.changes(_launches(old), _launches(new))
    other_space = search_space.replaced(_tuned(old), _tuned(new))
    if other_space:
        muted = [one for one in verdicts if one.metric not in search_space.OF_THE_CALL]
        notes += [*(str(change) for change in muted), other_space]
        verdicts = [one for one in verdicts if one not in muted]
    if other_space or (word == "same" and search_space.changes(_tuned(old), _tuned(new))):
        word = "other space"
    # The recorded configurations of two search spaces are no two versions of one call.
    time = None if word == "other space" else predicted.between(old.evidence, new.evidence)
    word = _weighed(time, verdicts, word)
    if time is not None and time.is_sure and word in ("regressed", "improved"):
        evidence = [*verdicts, *evidence]
        verdicts = [Change(predicted.METRIC, time.before, time.after, time.after < time.before)]
    return Compared(
        name,
        target,
        word,
        tuple(verdicts),
        tuple(evidence),
        (*notes, *causes(old, new, time)),
        _replaced(old, new),
        time,
    )


def _weighed(time: predicted.Change | None, verdicts: Sequence[Change], otherwise: Word) -> Word:
    worse = {change.metric: change.old for change in verdicts if change.better is False}
    better = {change.metric: change.old for change in verdicts if change.better}
    if time is None or not time.checked:
        # What got better is no comfort where nobody knows which weighs more.
        return "regressed" if worse else "improved" if better else otherwise
    return _OF_VERDICTS.get(predicted.weigh(time, worse, better), otherwise)


def _replaced(old: Result, new: Result) -> str:
    names = [[one["kernel"] for one in _launches(side)] for side in (old, new)]
    if sorted(names[0]) == sorted(names[1]):
        return ""
    return f"{', '.join(names[0]) or 'none'} -> {', '.join(names[1]) or 'none'}"


def _change(metric: metrics.Metric, old: float | None, new: float | None) -> Change | None:
    if old is None or new is None or old == new:
        return None
    counts = _limits().get(metric.name)
    if counts is not None and not counts.passed(old, new):
        return None
    better = None if metric.better is None else (new < old) == (metric.better == "lower")
    return Change(metric.name, old, new, better)


def _launches(result: Result) -> list[Mapping[str, Any]]:
    return list(result.evidence.get("launches", []))


def _codes(result: Result) -> list[str]:
    return [one["code"] for one in _launches(result)]


def causes(old: Result, new: Result, time: predicted.Change | None = None) -> list[str]:
    """What in launches and code differs, in words; each kernel once. First the predicted time."""
    said = [] if time is None or time.verdict == "unchanged" else [str(time)]
    before, after = _launches(old), _launches(new)
    replaced = _replaced(old, new)
    if replaced:
        said.append(f"launches {replaced}")
    said += _operations(old, new)
    said += search_space.changes(_tuned(old), _tuned(new))
    if len(before) != len(after):
        return said
    for one, other in zip(before, after, strict=True):
        if one["code"] != other["code"] or one["grid"] != other["grid"]:
            said += [text for text in _launch_causes(one, other) if text not in said]
    return said


def _operations(old: Result, new: Result) -> list[str]:
    counts: list[dict[str, int]] = []
    for side in (old, new):
        count: dict[str, int] = {}
        for op in side.evidence.get("torch_ops", []):
            count[op["name"]] = count.get(op["name"], 0) + op["launches"]
        counts.append(count)
    names = sorted(set(counts[0]) | set(counts[1]))
    return [
        f"torch runs {name} {counts[0].get(name, 0)} -> {counts[1].get(name, 0)} times"
        for name in names
        if counts[0].get(name, 0) != counts[1].get(name, 0)
    ]


def _tuned(result: Result) -> list[Mapping[str, Any]]:
    return list(result.evidence.get("tuned", []))


def _launch_causes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    kernel, said = other["kernel"], []
    for key, words in (
        ("grid", "grid"),
        ("num_warps", "warps"),
        ("num_stages", "stages"),
        ("tensor_core_level", "tensor-core level"),
        ("async_copy_level", "asynchronous copies, level"),
        ("spilled_bytes", "spilled bytes"),
        ("registers", "registers"),
        ("shared_bytes", "shared memory"),
    ):
        if one.get(key) != other.get(key):
            said.append(f"{words} {one.get(key)} -> {other.get(key)}")
    new_advice = [text for text in other["advisories"] if text not in one["advisories"]]
    said += new_advice
    # Another kernel has other constants: only those of both are compared.
    for name in sorted(set(one["constants"]) & set(other["constants"])):
        values = one["constants"][name], other["constants"][name]
        if values[0] != values[1]:
            said.append(f"{name} {values[0]} -> {values[1]}")
    if one["occupancy"] and other["occupancy"]:
        said += _occupancy_causes(one["occupancy"], other["occupancy"])
    if one["bound"] and other["bound"]:
        said += _bound_causes(one["bound"], other["bound"])
    for kind in ("local", "tensor", "shared", "special"):
        loops = [sum(loop.get(kind, 0) for loop in side["hot_loops"]) for side in (one, other)]
        if loops[0] != loops[1] and kind in ("local", "tensor"):
            said.append(f"{kind} instructions in hot loops {loops[0]} -> {loops[1]}")
    return [f"{kernel}: {text}" for text in said or _mix(one, other)]


def _occupancy_causes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    if one["blocks"] == other["blocks"]:
        return []
    occupied = one["limited_by"], other["limited_by"]
    by = occupied[1] if occupied[0] == occupied[1] else f"{occupied[0]}, now {occupied[1]}"
    return [f"blocks in flight {one['blocks']} -> {other['blocks']}, limited by {by}"]


def _bound_causes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    said = []
    by = one["limited_by"], other["limited_by"]
    if by[0] != by[1]:
        said.append(f"bound by {by[0]} -> {by[1]}")
    busy = [side.get("units_us", {}).get(by[1]) for side in (one, other)]
    if None not in busy and _limits()["bound_us"].passed(*busy):
        said.append(f"{by[1]} busy {number(busy[0])} -> {number(busy[1])} us")
    return said


def _mix(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """How code differs that differs in nothing else."""
    if one["code"] == other["code"]:
        return []
    counts = one["instructions"], other["instructions"]
    moved = [
        f"{kind} {counts[0].get(kind, 0)} -> {counts[1].get(kind, 0)}"
        for kind in sorted(counts[0] | counts[1])
        if counts[0].get(kind, 0) != counts[1].get(kind, 0)
    ]
    if moved:
        return [f"instructions: {', '.join(moved)}"]
    # Where addresses.py may not help, ptxas makes either of two codes for sm_100 of one source.
    return ["as many instructions of each class, in another order or with other operands"]


def code_differences(old: Result, new: Result, names: tuple[str, str]) -> list[tuple[str, str]]:
    """(kernel, unified diff) of each launch whose code differs, in the order of the launches."""
    before, after = _launches(old), _launches(new)
    found = []
    for i in range(max(len(before), len(after))):
        sides = [one[i] if i < len(one) else None for one in (before, after)]
        if sides[0] and sides[1] and sides[0]["code"] == sides[1]["code"]:
            continue
        texts = [
            result.code.get(side["code"], "") if side else ""
            for result, side in zip((old, new), sides, strict=True)
        ]
        if texts[0] != texts[1]:
            kernel = str((sides[1] or sides[0] or {"kernel": "?"})["kernel"])
            found.append((kernel, differences(*texts, names=names)))
    return found


def exit_code(compared: Sequence[Compared]) -> int:
    """1 where something is worse, else 3 where something may be, else 0."""
    words = {one.word for one in compared}
    return 1 if words & {"regressed", "missing"} else 3 if words & {*UNSURE} else 0


def document(one: Compared) -> dict[str, Any]:
    """A comparison for programs: ``word`` holds shader-db's words, ``verdict`` ours.

    Args:
        one: A workload or call on a target.

    Returns:
        Its fields, as JSON takes them.

    Example:
        >>> document(Compared("gelu", "sm_90", "regressed"))["word"]
        'HURT'
    """
    return {**asdict(one), "word": _IN_JSON.get(one.word, one.word), "verdict": one.word}


def in_words(compared: Sequence[Compared]) -> str:
    """How many there are of each word, the worst first."""
    counts: dict[str, int] = {}
    for one in compared:
        counts[one.word] = counts.get(one.word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in counts.items())

"""What a change of code did to a kernel, in words: from the metrics that moved together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from warpwatch.judge.model import advice

Moves = Mapping[str, tuple[float, float]]

# No card's clock falls so far by itself: beyond it, time without cycles is idle multiprocessors.
_IDLE_FROM = 1.5


class Change(NamedTuple):
    """A metric of one workload before and after, and what the gate says of it. ``reason`` is of an
    advisory its words."""

    subject: str
    metric: str
    verdict: str
    before: float
    after: float
    evidence: bool
    reason: str = ""


def causes(changes: Iterable[Change]) -> dict[str, list[str]]:
    """What explains a loss, by workload: from what moved on all targets and instruments."""
    moves: dict[str, dict[str, tuple[float, float]]] = {}
    measured: dict[str, dict[str, tuple[float, float]]] = {}
    told: dict[str, str] = {}
    hurt: set[str] = set()
    for one in changes:
        workload = one.subject.partition(" @ ")[0]
        measured.setdefault(workload, {}).setdefault(one.metric, (one.before, one.after))
        if one.verdict in ("regressed", "improved"):
            moves.setdefault(workload, {}).setdefault(one.metric, (one.before, one.after))
        if one.verdict == "regressed" and not one.evidence:
            hurt.add(workload)
            if one.metric == "advisories":
                told.setdefault(workload, one.reason)
    found = {
        name: explain(moves[name], told.get(name, ""), measured[name])
        for name in moves
        if name in hurt
    }
    return {name: sentences for name, sentences in found.items() if sentences}


def explain(moves: Moves, advised: str = "", measured: Moves | None = None) -> list[str]:
    """Sentences for what moved, the likeliest cause first.

    ``moves`` are before and after of every metric that changed on one workload: verdict metrics
    and evidence, compiled and measured. Nothing that did not move is mentioned. ``advised`` are
    the words for its new advisories, where their kind is known (``advice.words``).
    ``measured`` are all metrics read, whether the gate calls them moved or not.
    """
    advised = advised or advice.words((), (), more=True)
    sentences = [
        text.format(*map(_amount, moves[name]), advised=advised)
        for name, text in _SENTENCES
        if name in moves and _worse(name, moves[name])
    ]
    pipe = moves.get("tensor_pipe")
    cycles = moves.get("sm_cycles")
    work = _explains(moves, "instructions", "sm_cycles")
    traffic = "dram_bytes" in moves and _worse("dram_bytes", moves["dram_bytes"])
    if work and traffic and _explains(moves, "instructions", "dram_bytes"):
        sentences.append("more instructions and more memory traffic: work was added")
    elif traffic:
        sentences.append("more memory traffic for the same instructions: reuse in the L2 was lost")
    elif work:
        sentences.append("more instructions on the same data: the inner loop does more")
    elif pipe and cycles and _worse("tensor_pipe", pipe) and _worse("sm_cycles", cycles):
        sentences.append("the tensor cores wait longer: latency is no longer hidden")
    elif cycles and _worse("sm_cycles", cycles):
        sentences.append("the same work takes more cycles: latency is no longer hidden")
    late = moves.get("latency_cold")
    if late and _idle(late, cycles, (measured or {}).get("sm_cycles")):
        sentences.append(
            "the call takes longer but keeps fewer multiprocessors busy: some are idle"
        )
    own = moves.get("kernel_cycles")
    if not sentences and own and _worse("kernel_cycles", own):
        sentences.append("its kernels take more cycles from start to end, whatever the launch does")
    if not sentences and late and not cycles and not pipe and not own:
        sentences.append("only the time moved, no counter: host, clock or machine")
    return sentences


def _idle(
    late: tuple[float, float],
    cycles: tuple[float, float] | None,
    measured: tuple[float, float] | None,
) -> bool:
    """Whether a call that takes longer keeps the multiprocessors no busier, whose cycles the
    counters average over all of them: ``cycles`` where they moved, else as they were ``measured``,
    which proves less."""
    if not _worse("latency_cold", late):
        return False
    if cycles is not None:
        return not _worse("sm_cycles", cycles)
    return measured is not None and _grown(late) - _grown(measured) > math.log(_IDLE_FROM)


def _explains(moves: Moves, cause: str, effect: str) -> bool:
    """Whether ``cause`` got worse, and by enough for what ``effect`` got worse, if it did: warps
    that wait for a barrier also execute a few instructions more."""
    if cause not in moves or not _worse(cause, moves[cause]):
        return False
    if effect not in moves or not _worse(effect, moves[effect]):
        return True
    grown, needed = (_grown(moves[name]) for name in (cause, effect))
    return grown >= needed / 5


def _grown(move: tuple[float, float]) -> float:
    before, after = move
    return math.log(after / before) if before > 0.0 and after > 0.0 else math.inf


_HIGHER_IS_BETTER = frozenset(
    ("tensor_core_level", "async_copy_level", "blocks_in_flight", "tensor_pipe")
)
# Most specific first; {0} is before, {1} after.
_SENTENCES: tuple[tuple[str, str], ...] = (
    ("compile_failures", "{1} launches no longer compile (before: {0})"),
    ("relative_error", "the answer is less exact: relative error {0} -> {1}"),
    ("atomics", "{1} atomic updates a call instead of {0}: programs wait for the same addresses"),
    ("launches", "{1} launches a call instead of {0}"),
    ("copied_bytes", "copies of {1} bytes a call instead of {0}: a transpose or contiguous()"),
    ("peak_bytes", "{1} bytes of memory a call instead of {0}: a scratch tensor"),
    ("spilled_bytes", "registers spill: {0} -> {1} bytes a thread"),
    ("tensor_core_level", "a slower flavour of tensor-core instruction: level {0} -> {1}"),
    ("async_copy_level", "copies to shared memory wait: level {0} -> {1}"),
    ("advisories", "{advised}: {0} -> {1} advisories"),
    ("blocks_in_flight", "fewer blocks in flight: {0} -> {1}"),
    ("unheld", "the call waits for the GPU: in {1} % of the samples instead of {0} %"),
    ("host_us", "the host takes longer: {0} -> {1} us until the call is queued"),
)


def _worse(name: str, move: tuple[float, float]) -> bool:
    before, after = move
    return after < before if name in _HIGHER_IS_BETTER else after > before


def _amount(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.4g}"

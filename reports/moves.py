"""What a change of code did to a kernel, in words: from the metrics that moved together."""

from __future__ import annotations

import math
from collections.abc import Mapping

from reports import advice

Moves = Mapping[str, tuple[float, float]]


def explain(moves: Moves, advised: str = "") -> list[str]:
    """Sentences for what moved, the likeliest cause first.

    ``moves`` are before and after of every metric that changed on one workload: verdict metrics
    and evidence, compiled and measured. Nothing that did not move is mentioned. ``advised`` are
    the words for its new advisories, where their kind is known (:func:`reports.advice.words`).
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
    late = moves.get("latency_cold")
    if late and cycles and _worse("latency_cold", late) and not _worse("sm_cycles", cycles):
        sentences.append(
            "the call takes longer but keeps fewer multiprocessors busy: some are idle"
        )
    if not sentences and late and not cycles and not pipe:
        sentences.append("only the time moved, no counter: host, clock or machine")
    return sentences


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

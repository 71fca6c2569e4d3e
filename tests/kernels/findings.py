"""What running a case of any public operator finds: errors by their bars, over enough draws."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.kernels import (
    attention_fp8_cases,
    flash_attn_cases,
    kvcache_case,
    scores_cases,
    test_attention_varlen,
    test_matmul,
    test_matmul_fp8,
)
from tests.kernels.interpreted import Errors, numbers, pool, settled
from tests.kernels.on_card import portable

# Of one configuration. On a card that many processes share 20 s are a dozen draws, whose ratio of
# RMS errors of one row was off by 0.1 where 50 draws and 200 agree.
MOST_DRAWS, MOST_SECONDS = 200, 60.0
# An addition on Hopper's fp8 tensor cores keeps 13 bits after the point of the largest term.
FP8_ADDITION = 2.0**-13


@dataclass(frozen=True)
class Finding:
    """One tensor of a case. ``share`` is its largest error by the bar, ``rms`` its RMS error by
    the plain formula's, ``count`` how many values it has, ``problem`` what is beyond a bar; over
    so many ``draws``."""

    name: str
    share: float
    rms: float
    count: int
    problem: str = ""
    draws: int = 1


@dataclass(frozen=True)
class Drawn:
    """``run`` of ``case`` gives the errors of tensors of these ``names``; with ``portable`` no
    kernel of one architecture serves."""

    operator: str
    case: Any
    run: Callable[[Any], Any]
    names: tuple[str, ...] = ()
    portable: bool = True

    def __str__(self) -> str:
        return f"{self.operator} portable={self.portable} {self.case!r}"

    def findings(self, seed: int = 0) -> list[Finding]:
        """Of numbers drawn from ``seed``. Where a tensor of few values is beyond a bar more are
        drawn, until a thousand are compared: so few roundings say little about the next ones. So it
        is with an RMS error that is not far beyond its bar, however many values there are: what a
        row's output lost in rounding all its gradients share, and of 1,080 rows of head dim 1 the
        ratio scattered from 0.91 to 1.26, of one row up to 1.6. Nor does the largest error of few
        rows say more: the 960 values of one row's dv are products of six weights. Both are drawn
        again until ``settled`` and a thousand rows are compared, and judged by all draws together,
        at 1.1. Before, the same numbers are computed again: an error that comes and goes is none
        that other draws excuse."""
        found = self._found(seed)
        judged = {name: _judged(name, one) for name, one in found.items()}
        taken = {name: [one] for name, one in found.items() if isinstance(one, Errors)}
        rows = _rows(self.case)

        def open_still(name: str, draws: list[Errors]) -> bool:
            if sum(one.count for one in draws) < 1000:
                return True
            many = len(draws) * rows >= 1000
            if "RMS" not in judged[name].problem and len(draws) == 1 and many:
                return False
            enough = many and settled(draws)
            return not (enough or draws[0].far_beyond())

        few = {name for name in taken if judged[name].problem and open_still(name, taken[name])}
        if few:
            same = self._found(seed)
            for name in sorted(few):
                if not _alike(taken[name][0], same[name]):
                    text = f"{name}: of the same numbers twice, RMS errors of "
                    text += f"{taken[name][0].rms:.6e} and {same[name].rms:.6e}"
                    judged[name] = replace(judged[name], problem=text)
                    few.remove(name)
        stop = time.monotonic() + MOST_SECONDS
        for again in range(1, MOST_DRAWS):
            if not few or time.monotonic() > stop:
                break
            more = self._found(seed + again * 10_000_019)
            for name in few:
                taken[name].append(more[name])
                judged[name] = _judged(name, pool(taken[name]))
            few = {name for name in few if open_still(name, taken[name])}
        return [
            replace(one, draws=len(taken[name])) if name in taken else one
            for name, one in judged.items()
        ]

    def _found(self, seed: int) -> dict[str, Any]:
        with numbers(seed), portable(self.portable):
            found = self.run(self.case)
        return dict(zip(self.names, found, strict=False)) if isinstance(found, list) else found


def _alike(one: Errors, other: Errors) -> bool:
    """Of the same bits: the truth in fp64 may have been added up in another order."""
    return math.isclose(one.rms, other.rms, rel_tol=1e-6)


def _rows(case: Any) -> int:
    """Rows of queries that see a key, of all heads; a thousand where there are no such rows."""
    if isinstance(case, kvcache_case.Case):
        return (sum(case.queries) or len(case.keys) * case.S) * case.H
    if isinstance(case, test_attention_varlen.Case):
        lengths = case.counted
    elif isinstance(case, flash_attn_cases.Case):
        return case.rows
    elif isinstance(case, scores_cases.Case):
        lengths = [(case.S, case.KV)] * case.B
    elif isinstance(case, attention_fp8_cases.Case):
        lengths = case.lengths
    else:
        return 1000
    return case.H * sum(min(q, k) if case.causal else q for q, k in lengths)


def _judged(name: str, errors: Errors | Finding) -> Finding:
    if isinstance(errors, Finding):
        return errors
    problem = ""
    try:
        errors.check(name)
    except AssertionError as error:
        problem = str(error)
    plain = errors.plain_rms
    ratio = errors.rms / plain if plain else (math.inf if errors.rms else 0.0)
    return Finding(name, errors.share, ratio, errors.count, problem)


def run_attention_fp8(case: Any) -> dict[str, Errors | Finding]:
    from kernels.runtime import targets

    found = attention_fp8_cases.run(case, on_hopper=not targets.interpreting())
    count = int(found["count"])
    # The largest error in units of its bound.
    out = Errors(
        max_error=found["share"],
        max_excess=found["share"] - 1.0,
        rms=found["rms"],
        plain_max_error=0.5,
        plain_rms=max(found["rounded_rms"], 1e-12),
        count=count,
        share=found["share"],
    )
    share = found["lse"] / found["lse_bound"]
    lse = Finding("lse", share, 0.0, count, "" if share <= 1.0 else str(found))
    return {"out": out, "lse": lse}


def run_matmul(case: Any) -> dict[str, Errors]:
    return {"out": test_matmul.run(case)}


def run_matmul_gradients(case: Any) -> list[Errors]:
    return test_matmul.run_gradients(*case)


def run_matmul_fp8(case: Any) -> dict[str, Finding]:
    from kernels.runtime import targets

    # Hopper adds 32 products at a time.
    added = (
        test_matmul_fp8.FP32 if targets.interpreting() else FP8_ADDITION / test_matmul_fp8.AT_ONCE
    )
    got, truth, bound = test_matmul_fp8.run(case, added)
    share = float(test_matmul_fp8.shares(got, truth, bound).max())
    problem = "" if share <= 1.0 else f"an error is {share:.2f} of its bound"
    return {"out": Finding("out", share, 0.0, got.numel(), problem)}

"""Hopper's gradients without the rounding of the output, interpreted: what corrects them comes with
the gradient of the log-sum-exp, to every kind of kernel."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from tests.gluon.backward_cases import Errors
from tests.kernels import scores_cases
from tests.kernels import test_packed_few as packed
from tests.kernels.interpreted import Worker
from tests.kernels.test_exact_gradients import Case, Packed

PLAIN = Case(S=130, KV=130, H=2, G=1, causal=True)
CASES = {
    "attention_backward_hopper": PLAIN,
    "attention_backward_hopper_short_q": replace(PLAIN, D=128, S=200, KV=200, dtype="float16"),
    "attention_backward_hopper_q": replace(PLAIN, D=192, S=100, KV=100),
}
IN_PACKS = Packed(q=(70, 0, 9, 130), k=(150, 5, 9, 64), H=2, G=2)


def run_served(case: Case | Packed) -> tuple[dict[str, Errors], list[str]]:
    """The errors, and the names of Gluon's kernels."""
    from kernels.attention.hopper.backward import launch as launches
    from tests.gluon.interpreter import hopper_on_the_cpu

    with hopper_on_the_cpu(2) as told, patch.object(launches, "FEW_PACKED", 0):
        if isinstance(case, Packed):
            return packed.run(case), told.kernels
        return scores_cases.run(case), told.kernels


@pytest.mark.parametrize(
    ("kernel", "case"), [*CASES.items(), ("attention_backward_hopper", IN_PACKS)], ids=str
)
def test_hoppers_gradients_keep_the_bar(worker: Worker, kernel: str, case: Case) -> None:
    errors, served = worker.run(run_served, case)
    assert kernel in served
    assert "attention_backward_hopper_marked" in served
    for name, one in errors.items():
        one.check(name)
    if isinstance(case, Case):
        without, _ = worker.run(run_served, replace(case, exact=False))
        assert without["dq"].rms > 1.3 * without["dq"].plain_rms

"""Which launches a backward pass needs, said from shapes and options before any of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels.attention.common.options import Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.problem import Given, Mask, Problem
from kernels.attention.portable.backward.plan import Plan, plan
from kernels.runtime.targets import Target
from warpwatch.config import targets
from warpwatch.instruments.compiled.record import driver


def planned(
    name: str,
    *,
    D: int = 64,
    S: int = 1024,
    dtype: torch.dtype = torch.bfloat16,
    causal: bool = False,
    packed: bool = False,
    dlse: bool = False,
    **asked: Any,
) -> Plan:
    """On ``name``, of tensors that are never read: (2, S, 4, D)."""
    from kernels.runtime.targets import current

    q, k, v, out, dout = (torch.empty(2, S, 4, D, dtype=dtype) for _ in range(5))
    lse = torch.empty(2, 4, S)
    sequences = None
    if packed:
        cu = torch.zeros(3, dtype=torch.int32)
        sequences = Packed(cu, cu, S, S)
    rest = {one: asked.pop(one) for one in ("bias_grad", "corrected", "far") if one in asked}
    rest = {"bias_grad": False, "corrected": False} | rest
    problem = Problem(q, k, v, Mask(causal, 0, None), 0.1, sequences, Options(**asked))
    with driver.active(targets.get(name)):
        target: Target = current()
        return plan(target, problem, Given(dout, lse if dlse else None, out, lse), **rest)


@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100", "gfx942"])
def test_long_rows_take_two_launches_where_the_queries_find_delta(target: str) -> None:
    found = planned(target)
    assert found.launches == ("queries", "keys")
    assert found.with_delta
    assert not (found.exact or found.finds_far)


@pytest.mark.parametrize(
    ("asked", "launches"),
    [
        pytest.param({"dtype": torch.float32}, ("rows", "queries", "keys"), id="fp32"),
        pytest.param({"S": 16}, ("rows", "queries", "keys"), id="few keys"),
        pytest.param({"far": True}, ("rows", "queries", "keys"), id="far rows"),
        pytest.param({"softcap": 9.0}, ("delta", "queries", "keys"), id="softcap"),
        pytest.param(
            {"softcap": 9.0, "causal": True}, ("delta", "rows", "queries", "keys"), id="early rows"
        ),
    ],
)
def test_what_is_asked_decides_the_launches(asked: dict[str, Any], launches: Any) -> None:
    found = planned("sm_90", **asked)
    assert found.launches == launches
    assert found.exact == (launches[0] == "rows")


def test_registers_decide_whether_queries_find_delta() -> None:
    """On sm_80 above 64 columns they have none for a gradient of the log-sum-exp."""
    assert planned("sm_80", D=128, dlse=True).launches == ("delta", "queries", "keys")
    assert planned("sm_90", D=128, dlse=True).launches == ("queries", "keys")


def test_a_bias_of_values_has_a_second_pass_for_rows_far_from_0() -> None:
    bias = torch.empty(2, 4, 1024, 1024)
    assert planned("sm_90", bias=bias).finds_far
    assert not planned("sm_90", bias=bias.bool()).finds_far
    assert not planned("sm_90", bias=bias, far=True).finds_far


def test_a_gradient_summed_over_keys_or_rows_is_exact_there() -> None:
    of_rows, of_keys = torch.empty(2, 4, 1024, 1), torch.empty(2, 4, 1, 1024)
    assert planned("sm_90", bias=of_rows, bias_grad=True).exact
    assert not planned("sm_90", bias=of_rows).exact
    summed = planned("sm_90", bias=of_keys, bias_grad=True)
    assert not summed.exact
    assert summed.launches == ("rows", "queries", "keys")
    assert summed.row_blocks * summed.config.q.block_m >= 1024


def test_workspaces_are_padded_where_rows_do_not_fill_blocks() -> None:
    even, uneven, packed = (
        planned("sm_90"),
        planned("sm_90", S=1000),
        planned("sm_90", packed=True),
    )
    assert even.padded == 0
    assert uneven.padded == uneven.config.kv.block_m
    assert packed.padded in (0, packed.config.kv.block_m)


def test_exact_gradients_need_no_correction() -> None:
    assert planned("sm_90", corrected=True).marked
    assert not planned("sm_90", S=16, corrected=True).marked

"""flash_attention_varlen in fp8, interpreted: errors within their bounds, neighbours, operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.attention_fp8_cases import run
from tests.kernels.interpreted import Worker
from tests.kernels.varlen_fp8_cases import Case

CASES = [
    Case(scales="tensor"),
    Case(causal=True, scales="sequences", spare=40),
    Case(H=4, G=1, D=32, DV=16, causal=True, scales="sequences", view="transposed", out="float32"),
    Case(H=4, window=(10, 4), k=(90, 90, 5, 0), scales="heads", out="float16", spare=3),
    Case(window=(70, -1), causal=True, q=(200, 3), k=(200, 60), view="skipping", D=72, DV=40),
    Case(q=(1, 1, 1), k=(130, 7, 64), causal=True, D=128, DV=128, view="padded"),
    Case(H=4, causal=True, scales="signs", flavour="float8_e4m3fnuz"),
    # The longest fills its blocks of keys, the others do not.
    Case(q=(64, 30), k=(128, 33), scale=-0.1, scales="sequences"),
    Case(q=(70, 1, 9, 33), causal=True, used=(40, 0, 100, 20), spare=5),
    Case(q=(2, 3), k=(2, 3), used=(0, 0), spare=5),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_the_bounds_of_rounded_weights(interpreter: Worker, case: Case) -> None:
    found = interpreter.run(run, case)
    assert found["excess"] <= 0.0, found
    assert found["lse"] <= found["lse_bound"], found
    assert found["rms"] <= 1.1 * found["rounded_rms"] + 1e-12, found
    hidden = any(q > k for q, k in case.lengths if case.causal or case.window[1] >= 0 or not k)
    assert (found["empty_rows"] > 0) == hidden, found


def run_beside_nan() -> tuple[torch.Tensor, torch.Tensor]:
    """The second of three sequences, whose neighbours are NaN in all."""
    import kernels

    case = Case(q=(30, 100, 70), k=(30, 100, 70), scales="sequences")
    made = case.arguments()
    q, k, v = (made.pop(name) for name in "qkv")
    for one in (q, k, v):
        one[:30] = one[130:] = float("nan")
    out, lse = kernels.flash_attention_varlen(
        q, k, v, *case.ends(), 100, 100, return_lse=True, **made
    )
    return out[30:130], lse[:, 30:130]


def test_nothing_comes_over_from_neighbours(interpreter: Worker) -> None:
    assert all(torch.isfinite(one).all() for one in interpreter.run(run_beside_nan))


def run_without_sequences() -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    q = Case(q=(5,), k=(5,), spare=0).arguments()["q"]
    ends = torch.zeros(1, dtype=torch.int32)
    scale = torch.ones(0, 2)
    out, lse = kernels.flash_attention_varlen(
        q, q, q, ends, ends, 0, 0, q_scale=scale, return_lse=True
    )
    return out, lse


def test_of_no_sequence_all_rows_are_cleared(interpreter: Worker) -> None:
    out, lse = interpreter.run(run_without_sequences)
    assert out.dtype == torch.bfloat16 and not out.any()
    assert lse.shape == (2, 5) and (lse == float("-inf")).all()


def run_operator() -> tuple[dict[str, str], list[tuple[torch.Tensor, torch.Tensor]]]:
    import kernels.public

    case = Case(scales="sequences", H=4, D=16, DV=16)
    made = case.arguments()
    cu_q, cu_k = case.ends()
    tensors = [made[name] for name in "qkv"]
    scales = {name: made[name] for name in ("q_scale", "k_scale", "v_scale")}
    outcome = torch.library.opcheck(
        torch.ops.warpwatch.flash_attention_varlen_fp8,
        (
            *(*tensors, cu_q, cu_k, 70, 90, *scales.values(), True, 0, -3, 0.25),
            *(cu_q[1:].clone(), None, 9.0, torch.float16),
        ),
        # test_schema compares its inputs by an operation torch lacks for float8 on CPUs.
        test_utils=("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )

    def model(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, **scales: Any) -> Any:
        options = {"causal": True, "return_lse": True, **scales}
        out, lse = kernels.flash_attention_varlen(q, k, v, cu_q, cu_k, 70, 90, **options)
        return out * 2.0, lse

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    by_key = scales | {"q_scale": scales["q_scale"][:, ::2]}  # of key heads
    found = []
    for given in (scales, by_key):
        pair = [call(*tensors, cu_q, cu_k, **given) for call in (compiled, model)]
        found += zip(*pair, strict=True)
    return outcome, found


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, found = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"}
    for compiled, eager in found:
        assert torch.equal(compiled, eager)

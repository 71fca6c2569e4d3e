"""flash_attention in fp8, interpreted: errors within their bounds, NaN, and torch's operator."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.kernels.attention_fp8_cases import Case, run
from tests.kernels.fp8_unit import unit_scores
from tests.kernels.interpreted import Worker

CASES = [
    Case(scales="tensor"),
    Case(S=33, KV=90, H=4, G=2, D=32, DV=16, causal=True, scales="heads", view="transposed"),
    Case(S=90, KV=20, D=40, causal=True, out="float32", view="padded"),
    Case(window=(10, 4), KV=130, D=72, DV=40, out="float16", view="skipping"),
    Case(S=1, KV=65, D=128, DV=128, causal=True, scales="heads"),
    Case(flavour="float8_e4m3fnuz", H=4, G=1, causal=True, window=(30, -1), scales="tensor"),
    Case(flavour="float8_e4m3fnuz", KV=0, out="float32"),
    Case(scale=-0.1, D=16, DV=16),
    Case(H=4, scales="zeros"),
    Case(H=4, causal=True, scales="zeros"),
    Case(window=(10, 4), KV=130, scales="zeros"),
    Case(scale=-0.1, scales="zeros", causal=True),
    Case(H=4, scales="signs"),
    Case(H=4, causal=True, scales="signs", flavour="float8_e4m3fnuz"),
    Case(H=4, window=(10, 4), KV=130, scales="signs"),
    Case(H=4, scale=-0.1, scales="signs", causal=True),
    Case(H=4, causal=True, scales="sequences"),
    Case(H=4, G=1, window=(10, 4), KV=130, scales="sequences", flavour="float8_e4m3fnuz"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_within_the_bounds_of_rounded_weights(interpreter: Worker, case: Case) -> None:
    found = interpreter.run(run, case)
    assert found["excess"] <= 0.0, found
    assert found["lse"] <= found["lse_bound"], found
    assert found["rms"] <= 1.1 * found["rounded_rms"] + 1e-12, found
    assert (found["empty_rows"] > 0) == (case.S > case.KV), found


def test_the_units_sums_keep_13_places() -> None:
    terms = torch.zeros(7, 40, dtype=torch.float64)
    terms[:, 0] = 1.75  # of the power of 2 it is 1 that counts
    terms[0, 1:3] = 2.0**-13
    terms[1, 1:3] = -(2.0**-14)  # towards zero, each by itself
    terms[2, 1] = 1.5 * 2.0**-13
    terms[3, 32] = -1.5 * 2.0**-13  # to the sum so far
    terms[4, 1], terms[4, 2:4] = -1.75, 2.0**-14  # though the largest cancel
    terms[5, 1], terms[5, 2] = 0.25, 2.0**-13  # beyond 2 the sum has one place less
    terms[6, 1], terms[6, 2:4] = 0.25, 2.0**-13  # but its terms have not
    dropped = unit_scores(terms, torch.ones(1, 40, dtype=torch.float64))[:, 0] - 1.75
    places = [2.0**-12, 0.0, 2.0**-13, -(2.0**-13), -1.75, 0.25, 0.25 + 2.0**-12]
    assert dropped.tolist() == places
    # The exponents of 1.5 and 1.5 are 0, though their product is beyond 2; a subnormal's is -6.
    q = torch.tensor([[1.5, 2.0**-13, 2.0**-13], [2.0**-9, 2.0**-20, 0.0]], dtype=torch.float64)
    k = torch.tensor([[1.5, 1.0, 1.0]], dtype=torch.float64)
    assert unit_scores(q, k)[:, 0].tolist() == [2.25 + 2.0**-12, 1.5 * 2.0**-9]


def small_weights() -> list[float]:
    """One key of weight 1 whose value is 0, and one of weight 2^-e whose value is 256."""
    import kernels

    found = []
    for exponent in (6, 10, 13):
        q = torch.zeros(1, 1, 1, 32)
        q[..., 0] = 1.0
        k = torch.zeros(1, 2, 1, 32)
        k[0, 1, 0, 0] = -exponent
        v = torch.zeros(1, 2, 1, 32)
        v[0, 1] = 256.0
        q, k, v = (one.to(torch.float8_e4m3fn) for one in (q, k, v))
        out = kernels.flash_attention(q, k, v, softmax_scale=0.6931471805599453)
        assert isinstance(out, torch.Tensor)
        found.append(float(out[0, 0, 0, 0]) * (1 + 2.0**-exponent) / 256 * 2.0**exponent)
    return found


def test_weights_below_the_smallest_of_e4m3_still_count(interpreter: Worker) -> None:
    # Unscaled, 2^-10 and 2^-13 would be zero: e4m3 ends at 2^-9.
    assert interpreter.run(small_weights) == pytest.approx([1.0] * 3, rel=2.0**-7)


def propagation() -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    q, k, v = (Case(S=20, KV=20, G=1).arguments()[name] for name in "qkv")
    broken = v.clone()
    broken[0, 10, 0, 3] = float("nan")
    in_v = kernels.flash_attention(q, k, broken, causal=True)
    k[1, 12] = float("nan")
    in_k = kernels.flash_attention(q, k, v, causal=True)
    assert isinstance(in_v, torch.Tensor) and isinstance(in_k, torch.Tensor)
    return in_v, in_k


def test_nan_goes_where_the_formula_takes_it(interpreter: Worker) -> None:
    in_v, in_k = interpreter.run(propagation)
    # A masked weight is 0, and 0 times NaN is NaN in the formula, too.
    assert in_v[0, 10:, :, 3].isnan().all()
    assert not in_v[..., torch.arange(64) != 3].isnan().any() and not in_v[1].isnan().any()
    wanted = torch.zeros(in_k.shape, dtype=torch.bool)
    wanted[1, 12:] = True
    assert torch.equal(in_k.isnan(), wanted)


def run_scales_of_one_value() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of shape (1,) beside (), of several heads: attention, decoding and what it appends."""
    import kernels

    made = Case(H=4, G=2, scales="tensor", D=32, DV=32).arguments()
    names = ("q_scale", "k_scale", "v_scale")
    scales = [{name: made[name].reshape(shape) for name in names} for shape in ((1,), ())]
    q, k, v = (made[name] for name in "qkv")
    found = [kernels.flash_attention(q, k, v, **each) for each in scales]
    new, caches = k[:, :2].half(), [(k.clone(), v.clone()) for _ in scales]
    for each, (k_cache, v_cache) in zip(scales, caches, strict=True):
        of_keys = {name: each[name] for name in names[1:]}
        cache = (k_cache, v_cache, new, v[:, :2].half())
        decoded = kernels.flash_attention_kvcache(q.half(), *cache, cache_seqlens=3, **of_keys)
        found.append(decoded)
    pairs = [(found[0], found[1]), (found[2], found[3])]
    return pairs + [(a.float(), b.float()) for a, b in zip(*caches, strict=True)]


def test_a_scale_may_be_of_one_value_on_an_axis(interpreter: Worker) -> None:
    for of_one, of_none in interpreter.run(run_scales_of_one_value):
        assert torch.equal(of_one, of_none)


def run_scales_of_key_heads() -> list[torch.Tensor]:
    """Of q by sequence and key head beside the same by query head, and beside one for all."""
    import kernels

    made = Case(H=4, G=2, D=32, DV=32).arguments()
    shared = torch.tensor([[0.5, 3.0], [1.0, 2.0]])
    found = []
    for scale in (shared, shared.repeat_interleave(2, 1), shared[:1, 0]):
        out = kernels.flash_attention(**made, q_scale=scale, out_dtype=torch.float32)
        assert isinstance(out, torch.Tensor)
        found.append(out)
    return found


def test_a_scale_of_q_may_be_of_key_heads(interpreter: Worker) -> None:
    by_key, by_query, of_all = interpreter.run(run_scales_of_key_heads)
    assert torch.equal(by_key, by_query)
    same = (by_key == of_all).all(3).all(1)
    assert same.tolist() == [[True, True, False, False], [False] * 4]


def run_operator() -> tuple[dict[str, str], bool, torch.Tensor, torch.Tensor]:
    import kernels.public

    given = Case(scales="sequences", D=32, DV=32).arguments()
    made = {name: given[name] for name in ("q", "k", "v", "q_scale", "k_scale", "v_scale")}
    before = [one.clone() for one in made.values()]
    operator = torch.ops.warpwatch.flash_attention_fp8
    outcome = torch.library.opcheck(
        operator,
        (*made.values(), True, 0, -3, 0.25, None, torch.float16),
        # test_schema compares its inputs by an operation torch lacks for float8 on CPUs: below.
        test_utils=("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
    both = zip(before, made.values(), strict=True)
    untouched = all(one.float().equal(other.float()) for one, other in both)

    def model(q: Any, k: Any, v: Any, **scales: Any) -> Any:
        return kernels.flash_attention(q, k, v, causal=True, **scales) * 2.0

    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(**made)
    return outcome, untouched, compiled, model(**made)


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, untouched, compiled, eager = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"} and untouched
    assert torch.equal(compiled, eager)


def run_scales_compiled_for_all_sizes(
    which: str,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    def low(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to(torch.float8_e4m3fn)

    calls: dict[str, tuple[Any, Any]] = {
        "attention": (
            lambda q, s, t: kernels.flash_attention(q, q, q, q_scale=s, k_scale=t),
            lambda n: (low(n, 20, n, 16), torch.rand(n), torch.rand(n, n)),
        ),
        "key heads": (
            lambda q, k, s: kernels.flash_attention(q, k, k, q_scale=s),
            lambda n: (low(n, 20, 2 * n, 16), low(n, 9, n, 16), torch.rand(n, n)),
        ),
        "decode": (
            lambda q, k, s: kernels.flash_attention_kvcache(q, k, k, k_scale=s),
            lambda n: (torch.randn(n, 1, n, 16), low(n, 32, n, 16), torch.rand(n)),
        ),
        "matmul": (
            lambda a, b, s, t: kernels.matmul(a, b, a_scale=s, b_scale=t),
            lambda n: (low(n, 128 * n), low(128 * n, 9), torch.rand(n), torch.rand(n, 1)),
        ),
    }
    call, draw = calls[which]
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    return [(compiled(*given), call(*given)) for given in (draw(2), draw(3))]


@pytest.mark.parametrize("which", ["attention", "key heads", "decode", "matmul"])
def test_scales_compile_with_dynamic_shapes(interpreter: Worker, which: str) -> None:
    for compiled, eager in interpreter.run(run_scales_compiled_for_all_sizes, which):
        assert torch.equal(compiled, eager)

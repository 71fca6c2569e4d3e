"""On a Hopper GPU: the Gluon attention agrees with its portable twins and with fp64."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from kernels.attention.common.numerics import fp8_scales
from tests.hopper.twins import PACKED, between_nan, packed_of, relative
from tests.kernels.interpreted import measure
from tests.problems import problem_of

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_hopper")]


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [16, 40, 64, 72, 96, 128, 192, 256], ids="D{}".format)
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 1, 1),
        (2, 4, 2, 333, 500),
        (1, 2, 1, 700, 300),
        (2, 40, 8, 515, 515),
        (3, 8, 8, 640, 1280),
        (4, 8, 8, 2048, 256),
        (1, 14, 7, 2100, 130),
        (2, 16, 4, 4096, 128),
        (2, 40, 8, 300, 197),
        (2, 40, 8, 200, 330),
    ],
    ids=lambda shape: "B{}-H{}-KV{}-S{}-K{}".format(*shape),
)
def test_attention_agrees_with_its_twin(
    shape: tuple[int, int, int, int, int], head_dim: int, causal: bool
) -> None:
    from kernels.attention.hopper.forward import launch as hopper
    from kernels.attention.portable.forward import kernel as forward

    B, H, KV, S, K = shape
    q = torch.randn((B, S, H, head_dim), device="cuda").bfloat16()
    k = torch.randn((B, K, KV, head_dim), device="cuda").bfloat16()
    v = torch.randn((B, KV, K, head_dim), device="cuda").bfloat16().transpose(1, 2)
    options = {"causal": causal, "causal_offset": K - S, "scale": head_dim**-0.5}
    results = []
    for launch in (hopper.launch, forward.launch):
        out = torch.full_like(q, math.nan)
        lse = torch.full((B, H, S), math.nan, device="cuda")
        launch(problem_of(q, k, v, **options), out, lse)
        results.append((out, lse))
    (found, found_lse), (twin, twin_lse) = results
    assert relative(found, twin) < 4e-3
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("window", [(300, 0), (1000, 0), (257, 100)], ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["batch", "packed"])
@pytest.mark.parametrize("head_dim", [96, 128, 256], ids="D{}".format)
def test_windows_agree_with_their_twin(
    head_dim: int, packed: bool, window: tuple[int, int]
) -> None:
    from kernels.attention.common.packed.sequences import Packed
    from kernels.attention.hopper.forward import launch as hopper
    from kernels.attention.portable.forward import kernel as forward

    B, H, KV, S, K = 2, 8, 2, 615, 1500
    left, right = window
    hidden = K - S
    q = torch.randn((B, S, H, head_dim), device="cuda").bfloat16()
    k, v = (torch.randn((B, K, KV, head_dim), device="cuda").bfloat16() for _ in range(2))
    given = {"causal": True, "scale": head_dim**-0.5}
    offsets = {"causal_offset": hidden + right, "left_offset": hidden - left}
    if packed:
        given["packed"] = Packed(
            *(torch.arange(B + 1, dtype=torch.int32, device="cuda") * n for n in (S, K)), S, K
        )
        offsets = {"causal_offset": right, "left_offset": -left}
    results = []
    for launch in (hopper.launch, forward.launch):
        out = torch.full_like(q, math.nan)
        lse = torch.full((H, B * S) if packed else (B, H, S), math.nan, device="cuda")
        tensors = [q, k, v, out]
        if packed:
            tensors = [x.flatten(0, 1).unsqueeze(0).expand(B, -1, -1, -1) for x in tensors]
        problem = problem_of(*tensors[:3], **given, **offsets)
        launch(problem, tensors[3], lse)
        results.append((out, lse))
    assert hopper.supported(problem)
    (found, found_lse), (twin, twin_lse) = results
    assert relative(found, twin) < 4e-3
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-4, rtol=1e-4)
    plain, true = (
        plain_attention(
            q, k, v, causal_offset=hidden + right, left_offset=hidden - left, dtype=dtype
        )[0]
        for dtype in ("bfloat16", "float64")
    )
    measure(found, plain, true).check("out")


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [40, 64, 96, 128, 192, 256], ids="D{}".format)
@PACKED
def test_packed_attention_agrees_with_its_twin(
    lengths_q: tuple[int, ...],
    lengths_k: tuple[int, ...],
    heads: tuple[int, int],
    longest: int | None,
    head_dim: int,
    causal: bool,
) -> None:
    """Between rows of NaN, which belong to no sequence."""
    from kernels.attention.hopper.forward import launch as hopper
    from kernels.attention.portable.forward import kernel as forward

    H, KV = heads
    rows = ((lengths_q, H), (lengths_k, KV), (lengths_k, KV))
    q, k, v = (between_nan(*each, head_dim, torch.bfloat16) for each in rows)
    packed = packed_of(lengths_q, lengths_k, longest)
    inputs = [packed.spread(x) for x in (q, k, v)]
    options = {"causal": causal, "causal_offset": 0, "scale": head_dim**-0.5, "packed": packed}
    problem = problem_of(*inputs, **options)
    assert hopper.supported(problem)
    results = []
    for launch in (hopper.launch, hopper.launch, forward.launch):
        out = torch.full_like(q, math.nan)
        lse = torch.full((H, len(q)), math.nan, device="cuda")
        launch(problem, packed.spread(out), lse)
        for one in (out, lse.T):
            assert one[:7].isnan().all()
            assert one[-7:].isnan().all()
        results.append((out[7:-7], lse[:, 7:-7]))
    (found, found_lse), (again, again_lse), (twin, twin_lse) = results
    assert torch.equal(found, again)
    assert torch.equal(found_lse, again_lse)
    assert relative(found, twin) < 4e-3
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-4, rtol=1e-4)
    outs: dict[str, list[torch.Tensor]] = {"bfloat16": [], "float64": []}
    lses: dict[str, list[torch.Tensor]] = {"bfloat16": [], "float64": []}
    all_ends = (packed.cu_q[1:].tolist(), packed.cu_k[1:].tolist())
    for end_q, end_k, S, K in zip(*all_ends, lengths_q, lengths_k, strict=True):
        own = (q[None, end_q - S : end_q], *(x[None, end_k - K : end_k] for x in (k, v)))
        for dtype in outs:
            offset = K - S if causal else None
            out, lse = plain_attention(*own, causal_offset=offset, dtype=dtype)
            outs[dtype].append(out[0])
            lses[dtype].append(lse[0])
    measure(found, *(torch.cat(one) for one in outs.values())).check("out")
    measure(found_lse, *(torch.cat(one, 1) for one in lses.values())).check("lse")


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [48, 64, 128, 256], ids="D{}".format)
def test_fp8_attention_agrees_with_its_twin(head_dim: int, causal: bool) -> None:
    """Weights are rounded to fp8 below maxima that each kernel finds in blocks of its own."""
    from kernels.attention.hopper.fp8 import launch as hopper_fp8
    from kernels.attention.portable.forward import kernel as portable

    B, H, KV, S, K = 2, 8, 2, 615, 1500
    kind = torch.float8_e4m3fn
    q = torch.randn((B, S, H, head_dim), device="cuda").to(kind)
    k, v = (torch.randn((B, K, KV, head_dim), device="cuda").to(kind) for _ in range(2))
    scales = fp8_scales.Scales(*(torch.rand(n, device="cuda") + 0.5 for n in (H, KV, KV)))
    options = {"causal": causal, "causal_offset": K - S, "scale": head_dim**-0.5}
    problem = problem_of(q, k, v, **options)
    assert hopper_fp8.supported(problem)
    results = []
    for launch in (hopper_fp8.launch, hopper_fp8.launch, portable.launch):
        out = torch.full(q.shape, math.nan, dtype=torch.bfloat16, device="cuda")
        lse = torch.full((B, H, S), math.nan, device="cuda")
        launch(problem, out, lse, scales=scales)
        results.append((out, lse))
    (found, found_lse), (again, again_lse), (twin, twin_lse) = results
    assert torch.equal(found, again)
    assert torch.equal(found_lse, again_lse)
    assert relative(found, twin) < 0.05
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [48, 64, 128, 256], ids="D{}".format)
@PACKED
def test_packed_fp8_attention_agrees_with_its_twin(
    lengths_q: tuple[int, ...],
    lengths_k: tuple[int, ...],
    heads: tuple[int, int],
    longest: int | None,
    head_dim: int,
    causal: bool,
) -> None:
    """Between rows of NaN, and each sequence as one of a plain batch, to the last bit."""
    from kernels.attention.hopper.fp8 import launch as hopper_fp8
    from kernels.attention.portable.forward import kernel as portable

    H, KV = heads
    rows = ((lengths_q, H), (lengths_k, KV), (lengths_k, KV))
    q, k, v = (between_nan(*each, head_dim, torch.float8_e4m3fn) for each in rows)
    packed = packed_of(lengths_q, lengths_k, longest)
    inputs = [packed.spread(x) for x in (q, k, v)]
    by_sequence = torch.rand((len(lengths_q), H), device="cuda") + 0.5
    scales = fp8_scales.Scales(
        by_sequence, *(torch.rand(KV, device="cuda") + 0.5 for _ in range(2))
    )
    scale = head_dim**-0.5
    problem = problem_of(*inputs, causal=causal, scale=scale, packed=packed)
    assert hopper_fp8.supported(problem)
    results = []
    for launch in (hopper_fp8.launch, hopper_fp8.launch, portable.launch):
        out = torch.full(q.shape, math.nan, dtype=torch.bfloat16, device="cuda")
        lse = torch.full((H, len(q)), math.nan, device="cuda")
        launch(problem, packed.spread(out), lse, scales=scales)
        for one in (out, lse.T):
            assert one[:7].isnan().all()
            assert one[-7:].isnan().all()
        results.append((out[7:-7], lse[:, 7:-7]))
    (found, found_lse), (again, again_lse), (twin, twin_lse) = results
    assert torch.equal(found, again)
    assert torch.equal(found_lse, again_lse)
    assert relative(found, twin) < 0.05
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-3, rtol=1e-4)
    config = hopper_fp8.choose(head_dim, packed.max_q, causal, len(q) // len(lengths_q))
    ends = zip(packed.cu_q[1:].tolist(), packed.cu_k[1:].tolist(), strict=True)
    for i, (end_q, end_k) in enumerate(ends):
        S, K = lengths_q[i], lengths_k[i]
        if not (S and K) or i >= 10:
            continue
        own = (q[None, end_q - S : end_q], *(x[None, end_k - K : end_k] for x in (k, v)))
        own = [one.clone() for one in own]
        out = torch.full(own[0].shape, math.nan, dtype=torch.bfloat16, device="cuda")
        lse = torch.full((1, H, S), math.nan, device="cuda")
        single = problem_of(*own, causal=causal, causal_offset=K - S, scale=scale)
        hopper_fp8.launch(single, out, lse, scales.of(slice(i, i + 1)), config)
        assert torch.equal(out[0], found[end_q - 7 - S : end_q - 7])
        assert torch.equal(lse[0], found_lse[:, end_q - 7 - S : end_q - 7])


@pytest.mark.parametrize("spoilt", ["infinity", "two infinities", "infinity and NaN"])
@pytest.mark.parametrize(
    ("head_dim", "keys"),
    [(64, 300), (64, 256), (40, 256), (128, 300), (128, 1300), (256, 300)],
    ids=str,
)
@pytest.mark.parametrize("heads", [2, 40], ids="H{}".format)
def test_infinite_scores_are_the_formulas(
    head_dim: int, keys: int, heads: int, spoilt: str
) -> None:
    from kernels import flash_attention

    q, dout = (torch.randn((1, 300, heads, head_dim), device="cuda").bfloat16() for _ in range(2))
    k, v = (torch.randn((1, keys, heads, head_dim), device="cuda").bfloat16() for _ in range(2))
    q[0, 77, 1, 5] = math.inf
    if spoilt == "two infinities":  # of unlike signs for half of the keys
        q[0, 77, 1, 6] = math.inf
    if spoilt == "infinity and NaN":
        k[0, 200, 1, 6] = math.nan
    found = []
    for kind in (torch.bfloat16, torch.float64):
        leaves = [one.to(kind).requires_grad_() for one in (q, k, v)]
        attention = plain_attention if kind == torch.float64 else flash_attention
        options = {} if kind == torch.float64 else {"return_lse": True}
        out, lse = attention(*leaves, **options)
        gradients = torch.autograd.grad(out, leaves, dout.to(kind))
        found.append([one.detach() for one in (out, lse, *gradients)])
    for what, one, truth in zip(("out", "lse", "dq", "dk", "dv"), *found, strict=True):
        assert torch.equal(one.isnan(), truth.isnan()), what
        assert torch.equal(one.isinf(), truth.isinf()), what
    assert found[0][1][0, 1, 77].isposinf() == (spoilt == "infinity")

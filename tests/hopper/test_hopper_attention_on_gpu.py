"""On a Hopper GPU: the Gluon attention agrees with its portable twins and with fp64."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
import torch

from benchmarks.workloads.attention import plain_attention
from kernels.targets import current
from tests.hopper.test_hopper_matmul_on_gpu import relative
from tests.kernels.interpreted import measure

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def _on_hopper() -> None:
    if not current().has_wgmma:
        pytest.skip(f"the kernels are for Hopper, this GPU is {current().name}")
    torch.manual_seed(0)  # whatever ran before


def gradients(
    inputs: list[torch.Tensor],
    dout: torch.Tensor,
    dlse: torch.Tensor,
    dtype: str,
    causal: bool,
    scale: float | None = None,
    window: tuple[int, int] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Of q, k and v by PyTorch through the plain formula; of rows that see no key, 0."""
    kind = getattr(torch, dtype)
    q, k, v = leaves = [one.detach().to(kind).requires_grad_() for one in inputs]
    left, right = window or (None, 0)
    more = k.shape[1] - q.shape[1]
    hidden = max(-more - right, 0) if causal else 0
    mask = {"causal_offset": more + right + hidden} if causal else {}
    if left is not None:
        mask["left_offset"] = more - left + hidden
    out, lse = plain_attention(q[:, hidden:], k, v, dtype=dtype, scale=scale, **mask)
    loss = (out * dout[:, hidden:].to(kind)).sum() + (lse * dlse[:, :, hidden:]).sum()
    return torch.autograd.grad(loss, leaves)


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [40, 64, 96, 128, 192, 256], ids="D{}".format)
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
    ],
    ids=lambda shape: "B{}-H{}-KV{}-S{}-K{}".format(*shape),
)
def test_attention_agrees_with_its_twin(
    shape: tuple[int, int, int, int, int], head_dim: int, causal: bool
) -> None:
    from kernels.attention import forward, hopper

    B, H, KV, S, K = shape
    q = torch.randn((B, S, H, head_dim), device="cuda").bfloat16()
    k = torch.randn((B, K, KV, head_dim), device="cuda").bfloat16()
    v = torch.randn((B, KV, K, head_dim), device="cuda").bfloat16().transpose(1, 2)
    options = {"causal": causal, "causal_offset": K - S, "scale": head_dim**-0.5}
    results = []
    for launch in (hopper.launch, forward.launch):
        out = torch.full_like(q, math.nan)
        lse = torch.full((B, H, S), math.nan, device="cuda")
        launch(q, k, v, out, lse, **options)
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
    from kernels.attention import forward, hopper
    from kernels.attention.packed import Packed

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
        launch(*tensors, lse, **given, **offsets)
        results.append((out, lse))
    assert hopper.supported(
        *tensors[:3], given["scale"], given.get("packed"), causal=True, **offsets
    )
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
@pytest.mark.parametrize(
    ("lengths_q", "lengths_k", "heads", "longest"),
    [
        ((333, 0, 1, 700, 64, 129, 2), (500, 10, 77, 300, 0, 129, 1500), (8, 2), None),
        ((2100, 5, 300), (2100, 70, 2500), (4, 1), None),
        ((100, 200, 192), (100, 300, 5), (2, 2), 9000),
        (tuple(i * 37 % 201 for i in range(300)),) * 2 + ((2, 2), None),
    ],
    ids=["uneven", "long", "longest-overstated", "300-sequences"],
)
def test_packed_attention_agrees_with_its_twin(
    lengths_q: tuple[int, ...],
    lengths_k: tuple[int, ...],
    heads: tuple[int, int],
    longest: int | None,
    head_dim: int,
    causal: bool,
) -> None:
    """Between rows of NaN, which belong to no sequence."""
    from kernels.attention import forward, hopper
    from kernels.attention.packed import Packed

    def drawn(lengths: tuple[int, ...], n_heads: int) -> torch.Tensor:
        x = torch.randn((sum(lengths) + 14, n_heads, head_dim), device="cuda").bfloat16()
        x[:7] = x[-7:] = math.nan
        return x

    def ends(lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([*accumulate(lengths, initial=7)], dtype=torch.int32, device="cuda")

    H, KV = heads
    q, k, v = drawn(lengths_q, H), drawn(lengths_k, KV), drawn(lengths_k, KV)
    packed = Packed(
        ends(lengths_q), ends(lengths_k), longest or max(lengths_q), longest or max(lengths_k)
    )
    inputs = [packed.spread(x) for x in (q, k, v)]
    options = {"causal": causal, "causal_offset": 0, "scale": head_dim**-0.5, "packed": packed}
    assert hopper.supported(*inputs, options["scale"], packed)
    results = []
    for launch in (hopper.launch, hopper.launch, forward.launch):
        out = torch.full_like(q, math.nan)
        lse = torch.full((H, len(q)), math.nan, device="cuda")
        launch(*inputs, packed.spread(out), lse, **options)
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
    from kernels.attention import fp8, hopper_fp8

    B, H, KV, S, K = 2, 8, 2, 615, 1500
    kind = torch.float8_e4m3fn
    q = torch.randn((B, S, H, head_dim), device="cuda").to(kind)
    k, v = (torch.randn((B, K, KV, head_dim), device="cuda").to(kind) for _ in range(2))
    scales = fp8.Scales(*(torch.rand(n, device="cuda") + 0.5 for n in (H, KV, KV)))
    options = {"scales": scales, "causal": causal, "causal_offset": K - S, "scale": head_dim**-0.5}
    assert hopper_fp8.supported(q, k, v, options["scale"])
    results = []
    for launch, given in (
        (hopper_fp8.launch, {}),
        (hopper_fp8.launch, {}),
        (fp8.launch, {"left_offset": None}),
    ):
        out = torch.full(q.shape, math.nan, dtype=torch.bfloat16, device="cuda")
        lse = torch.full((B, H, S), math.nan, device="cuda")
        launch(q, k, v, out, lse, **options, **given)
        results.append((out, lse))
    (found, found_lse), (again, again_lse), (twin, twin_lse) = results
    assert torch.equal(found, again)
    assert torch.equal(found_lse, again_lse)
    assert relative(found, twin) < 0.05
    torch.testing.assert_close(found_lse, twin_lse, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("head_dim", "short"),
    [(D, 0) for D in (40, 64, 72, 128, 136, 192, 256)] + [(D, 1 << 20) for D in (72, 128)],
    ids=lambda value: ("short" if value else "long") if value in (0, 1 << 20) else f"D{value}",
)
@pytest.mark.parametrize(
    ("shape", "outliers"),
    [
        ((1, 1, 1, 65, 25), None),
        ((2, 4, 2, 333, 500), None),
        ((1, 2, 1, 700, 300), None),
        ((2, 40, 8, 515, 515), None),
        ((100, 8, 4, 200, 330), None),
        ((3, 8, 8, 640, 1280), "v"),
        ((1, 4, 4, 1024, 1024), "k"),
        ((1, 4, 1, 1000, 1024), "dout"),
    ],
    ids=lambda value: "B{}-H{}-KV{}-S{}-K{}".format(*value) if isinstance(value, tuple) else value,
)
def test_attention_backward_agrees_with_its_twin(
    shape: tuple[int, int, int, int, int],
    outliers: str | None,
    head_dim: int,
    short: int,
    causal: bool,
    kind: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums in fixed point too: outliers leave the other numbers fewer of their bits."""
    from kernels.attention import backward, forward, hopper_backward_launch
    from kernels.attention.hopper_backward_rows import Tensors

    B, H, KV, S, K = shape
    # Head dims from 65 to 128 have kernels of both kinds.
    monkeypatch.setattr(hopper_backward_launch, "SHORT", short)
    q, dout = (torch.randn((B, S, H, head_dim), device="cuda").to(kind) for _ in range(2))
    k = torch.randn((B, K, KV, head_dim), device="cuda").to(kind)
    v = torch.randn((B, KV, K, head_dim), device="cuda").to(kind).transpose(1, 2)
    if outliers == "v":
        v[:, 7::301] *= 300
    elif outliers == "k":
        k[..., 3] *= 30
        q[..., 3] *= 0.03
    elif outliers == "dout":
        dout[:, 5::97] *= 300
    dlse = torch.randn((B, H, S), device="cuda")
    options = {"causal": causal, "causal_offset": K - S, "scale": head_dim**-0.5}
    out, lse = torch.empty_like(q), torch.empty((B, H, S), device="cuda")
    forward.launch(q, k, v, out, lse, left_offset=None, **options)
    twins = backward.launch(dout, dlse, q, k, v, out, lse, left_offset=None, **options)
    runs = []
    for _ in range(3):
        made = [torch.full(x.shape, math.nan, dtype=kind, device="cuda") for x in (q, k, v)]
        assert hopper_backward_launch.supported(q, k, v, dout, options["scale"])
        tensors = Tensors(dout, dlse, q, k, v, out, lse, *made)
        hopper_backward_launch.launch(tensors, **options)
        runs.append(made)
    plain, truth = (
        gradients([q, k, v], dout, dlse, dtype, causal)
        for dtype in (str(kind).removeprefix("torch."), "float64")
    )
    # In bf16 some weights are rounded before the product, all of them above head dim 128.
    alike = 4e-3 if kind == torch.float16 else 6e-3
    # Rows of few keys go to kernels that are exact there.
    called = backward.keys_seen(K, causal, K - S, None, S) > backward.FEW_KEYS
    named = zip(("dq", "dk", "dv"), *runs, twins, plain, truth, strict=True)
    for name, found, again, third, twin, simple, true in named:
        if called:
            measure(found, simple, true).check(name)
        assert relative(found, twin) < alike
        assert torch.equal(found, again)
        assert torch.equal(found, third)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize(
    ("head_dim", "short"),
    [(D, 0) for D in (40, 64, 72, 128, 136, 256)] + [(D, 1 << 20) for D in (72, 128)],
    ids=lambda value: ("short" if value else "long") if value in (0, 1 << 20) else f"D{value}",
)
@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ((2, 4, 2, 333, 500), (100, 0)),
        ((1, 2, 1, 700, 300), (120, 0)),  # rows that see nothing
        ((1, 4, 4, 640, 1280), (64, 0)),  # keys that nothing sees
        ((3, 8, 4, 1000, 1024), (130, 20)),
        ((1, 2, 2, 1200, 1200), (40, 0)),
        ((1, 3, 1, 1024, 1024), (128, 0)),
        ((1, 2, 1, 300, 500), (2000, 0)),
        ((20, 8, 8, 700, 700), (150, 0)),
        ((1, 2, 1, 64, 2000), (90, 0)),
    ],
    ids=str,
)
def test_gradients_of_windows_agree_with_their_twin(
    shape: tuple[int, int, int, int, int],
    window: tuple[int, int],
    head_dim: int,
    short: int,
    kind: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kernels.attention import backward, forward, hopper_backward_launch
    from kernels.attention.hopper_backward_rows import Tensors

    B, H, KV, S, K = shape
    monkeypatch.setattr(hopper_backward_launch, "SHORT_WINDOW", short)
    q, dout = (torch.randn((B, S, H, head_dim), device="cuda").to(kind) for _ in range(2))
    k, v = (torch.randn((B, K, KV, head_dim), device="cuda").to(kind) for _ in range(2))
    dlse = torch.randn((B, H, S), device="cuda")
    mask = {"causal": True, "causal_offset": K - S + window[1], "left_offset": K - S - window[0]}
    options = {"scale": head_dim**-0.5, **mask}
    out, lse = torch.empty_like(q), torch.empty((B, H, S), device="cuda")
    forward.launch(q, k, v, out, lse, **options)
    twins = backward.launch(dout, dlse, q, k, v, out, lse, **options)
    assert hopper_backward_launch.supported(q, k, v, dout, **options)
    runs = []
    for _ in range(2):
        made = [torch.full(x.shape, math.nan, dtype=kind, device="cuda") for x in (q, k, v)]
        hopper_backward_launch.launch(Tensors(dout, dlse, q, k, v, out, lse, *made), **options)
        runs.append(made)
    plain, truth = (
        gradients([q, k, v], dout, dlse, dtype, True, window=window)
        for dtype in (str(kind).removeprefix("torch."), "float64")
    )
    alike = 4e-3 if kind == torch.float16 else 6e-3
    named = zip(("dq", "dk", "dv"), *runs, twins, plain, truth, strict=True)
    for name, found, again, twin, simple, true in named:
        measure(found, simple, true).check(name)
        assert relative(found, twin) < alike
        assert torch.equal(found, again)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("head_dim", [40, 64, 96, 128], ids="D{}".format)
@pytest.mark.parametrize(
    ("lengths_q", "lengths_k", "heads", "longest"),
    [
        ((333, 0, 1, 700, 64, 129, 2), (500, 10, 77, 300, 0, 129, 1500), (8, 2), None),
        ((2100, 5, 300), (2100, 70, 2500), (4, 1), None),
        ((100, 200, 192), (100, 300, 5), (2, 2), 9000),
        (tuple(i * 37 % 201 for i in range(300)),) * 2 + ((2, 2), None),
    ],
    ids=["uneven", "long", "longest-overstated", "300-sequences"],
)
def test_gradients_of_packed_sequences_agree_with_their_twin(
    lengths_q: tuple[int, ...],
    lengths_k: tuple[int, ...],
    heads: tuple[int, int],
    longest: int | None,
    head_dim: int,
    causal: bool,
    kind: torch.dtype,
) -> None:
    """Between rows of NaN, which belong to no sequence."""
    from kernels.attention import backward, forward, hopper_backward_launch
    from kernels.attention.hopper_backward_rows import Tensors
    from kernels.attention.packed import Packed

    def drawn(lengths: tuple[int, ...], n_heads: int) -> torch.Tensor:
        x = torch.randn((sum(lengths) + 14, n_heads, head_dim), device="cuda").to(kind)
        x[:7] = x[-7:] = math.nan
        return x

    def ends(lengths: tuple[int, ...]) -> torch.Tensor:
        return torch.tensor([*accumulate(lengths, initial=7)], dtype=torch.int32, device="cuda")

    H, KV = heads
    q, k, v, dout = (
        drawn(lengths, n_heads)
        for lengths, n_heads in ((lengths_q, H), (lengths_k, KV), (lengths_k, KV), (lengths_q, H))
    )
    packed = Packed(
        ends(lengths_q), ends(lengths_k), longest or max(lengths_q), longest or max(lengths_k)
    )
    inputs = [packed.spread(x) for x in (q, k, v)]
    options = {"causal": causal, "causal_offset": 0, "scale": head_dim**-0.5, "packed": packed}
    out, lse = torch.empty_like(q), torch.full((H, len(q)), math.nan, device="cuda")
    forward.launch(*inputs, packed.spread(out), lse, left_offset=None, **options)
    dlse = torch.where(lse == -math.inf, 0.0, torch.randn_like(lse))
    done = (packed.spread(dout), dlse, *inputs, packed.spread(out), lse)
    twins = backward.launch(*done, left_offset=None, **options)
    assert hopper_backward_launch.supported(*inputs, done[0], options["scale"], packed)
    runs = []
    for _ in range(3):
        made = [torch.full_like(x, math.nan) for x in (q, k, v)]
        hopper_backward_launch.launch(Tensors(*done, *made), **options)
        runs.append(made)
    plain: list[list[torch.Tensor]] = [[], [], []]
    truth: list[list[torch.Tensor]] = [[], [], []]
    all_ends = (packed.cu_q[1:].tolist(), packed.cu_k[1:].tolist())
    for end_q, end_k, S, K in zip(*all_ends, lengths_q, lengths_k, strict=True):
        own = [
            x[None, end - n : end] for x, end, n in ((q, end_q, S), (k, end_k, K), (v, end_k, K))
        ]
        rest = (dout[None, end_q - S : end_q], dlse[None, :, end_q - S : end_q])
        for into, dtype in ((plain, str(kind).removeprefix("torch.")), (truth, "float64")):
            seen = gradients(own, *rest, dtype, causal) if S and K else [x * 0 for x in own]
            for parts, one in zip(into, seen, strict=True):
                parts.append(one[0].to(getattr(torch, dtype)))
    named = zip(("dq", "dk", "dv"), *runs, twins, plain, truth, strict=True)
    for name, found, again, third, twin, simple, true in named:
        assert found[:7].isnan().all()
        assert found[-7:].isnan().all()
        within = slice(7, -7)
        measure(found[within], torch.cat(simple), torch.cat(true)).check(name)
        assert relative(found[within], twin[within]) < 6e-3
        assert torch.equal(found[within], again[within])
        assert torch.equal(found[within], third[within])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("head_dim", "short"),
    [(D, 0) for D in (40, 64, 128, 256)] + [(D, 1 << 20) for D in (72, 128)],
    ids=lambda value: ("short" if value else "long") if value in (0, 1 << 20) else f"D{value}",
)
def test_gradients_of_small_scores_are_as_good(
    head_dim: int, short: int, causal: bool, kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The formula rounds scores to 16 bits, which small ones hardly notice: its errors, else the
    larger, are those of dp, of the product and of the result, and a rounding more shows."""
    from kernels.attention import forward, hopper_backward_launch
    from kernels.attention.hopper_backward_rows import Tensors

    monkeypatch.setattr(hopper_backward_launch, "SHORT", short)
    B, H, KV, S, K = 2, 4, 2, 300, 500
    q, dout = (torch.randn((B, S, H, head_dim), device="cuda").to(kind) for _ in range(2))
    k, v = (torch.randn((B, K, KV, head_dim), device="cuda").to(kind) for _ in range(2))
    dlse = torch.randn((B, H, S), device="cuda")
    options = {"causal": causal, "causal_offset": K - S, "scale": 0.01}
    out, lse = torch.empty_like(q), torch.empty((B, H, S), device="cuda")
    forward.launch(q, k, v, out, lse, left_offset=None, **options)
    made = [torch.full(x.shape, math.nan, dtype=kind, device="cuda") for x in (q, k, v)]
    hopper_backward_launch.launch(Tensors(dout, dlse, q, k, v, out, lse, *made), **options)
    plain, truth = (
        gradients([q, k, v], dout, dlse, dtype, causal, options["scale"])
        for dtype in (str(kind).removeprefix("torch."), "float64")
    )
    for name, *each in zip(("dq", "dk", "dv"), made, plain, truth, strict=True):
        measure(*each).check(name)


@pytest.mark.parametrize("head_dim", [64, 128, 256], ids="D{}".format)
@pytest.mark.parametrize("broken", ["q", "k", "v", "dout"])
def test_nan_reaches_the_gradients_that_fixed_point_sums(broken: str, head_dim: int) -> None:
    from kernels import flash_attention_backward
    from kernels.attention import backward, forward

    inputs = {
        name: torch.randn((1, 300, 2, head_dim), device="cuda").bfloat16()
        for name in ("q", "k", "v", "dout")
    }
    inputs[broken][0, 77, 1, 5] = math.nan
    q, k, v, dout = inputs.values()
    options = {"causal": True, "causal_offset": 0, "scale": head_dim**-0.5}
    out, lse = torch.empty_like(q), torch.empty((1, 2, 300), device="cuda")
    forward.launch(q, k, v, out, lse, left_offset=None, **options)
    twins = backward.launch(dout, None, q, k, v, out, lse, left_offset=None, **options)
    found = flash_attention_backward(dout, q, k, v, out, lse, causal=True)
    # A tile's rows that do not see the key, and its keys that a row does not see, may be NaN too:
    # 0 times NaN. Which ones differs from tile to tile.
    at = torch.arange(300, device="cuda")
    queries, keys = (at >= 77, at >= 0) if broken in ("k", "v") else (at == 77, at <= 77)
    for one, twin, seen in zip(found, twins, (queries, keys, keys), strict=True):
        assert (one.isnan() | ~twin.isnan())[:, seen].all()
        assert not one[:, :, 0].isnan().any()


@pytest.mark.parametrize("spoilt", ["infinity", "two infinities", "infinity and NaN"])
@pytest.mark.parametrize(
    ("head_dim", "keys"), [(64, 300), (40, 256), (128, 300), (128, 1300), (256, 300)], ids=str
)
def test_infinite_scores_are_the_formulas(head_dim: int, keys: int, spoilt: str) -> None:
    from kernels import flash_attention

    q, dout = (torch.randn((1, 300, 2, head_dim), device="cuda").bfloat16() for _ in range(2))
    k, v = (torch.randn((1, keys, 2, head_dim), device="cuda").bfloat16() for _ in range(2))
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

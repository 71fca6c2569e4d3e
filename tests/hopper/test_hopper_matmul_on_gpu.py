"""On a Hopper GPU: the Gluon matmuls agree with their portable twins and with fp64."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from kernels.matmul.common.product import Product
from tests.hopper.twins import relative

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("on_hopper")]


def stored(order: str, rows: int, columns: int) -> torch.Tensor:
    if order == "t":
        return torch.randn((columns, rows), device="cuda").t()
    return torch.randn((rows, columns), device="cuda")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "shape",
    [
        (8, 8, 8),
        (64, 512, 512),
        (304, 520, 136),
        (1024, 1024, 1024),
        (1104, 1200, 136),
        (2000, 1000, 1000),
        (2000, 2048, 200),
        (2048, 2048, 320),
        (2304, 2048, 136),
        (3264, 5376, 136),
        (3800, 3776, 200),
        (1496, 1536, 328),
        (2296, 4096, 136),
        (1000, 1000, 1000),
        (72, 520, 4104),
        (200, 1000, 4040),
        (16, 4096, 520),
        (40, 6144, 264),
        (64, 14336, 136),
        (2040, 2056, 520),
        (3048, 1032, 136),
    ],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_matmul_agrees_with_its_twin(
    shape: tuple[int, int, int], layout: str, dtype: torch.dtype
) -> None:
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.portable import kernel as portable

    M, N, K = shape
    a = stored(layout[0], M, K).to(dtype)
    b = stored(layout[1], K, N).to(dtype)
    bias = torch.randn(N, device="cuda").to(dtype)
    found, twin = (torch.full((M, N), math.nan, device="cuda", dtype=dtype) for _ in range(2))
    product = Product(a, b, found, bias, "gelu")
    assert hopper.supported(product)
    hopper.launch(product)
    portable.launch(replace(product, out=twin), False)
    exact = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
    assert relative(found, exact) <= 1.05 * relative(twin, exact) + 1e-5


@pytest.mark.parametrize("in_place", [False, True], ids=["apart", "in-place"])
@pytest.mark.parametrize("activation", [None, "gelu"])
@pytest.mark.parametrize(
    "shape", [(4096, 4096, 520), (2050, 4104, 40)], ids=lambda shape: "x".join(map(str, shape))
)
def test_a_residual_is_added_as_its_twin_adds_it(
    shape: tuple[int, int, int], activation: str | None, in_place: bool
) -> None:
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.portable import kernel as portable

    M, N, K = shape
    a, b = stored("n", M, K).bfloat16(), stored("t", K, N).bfloat16()
    bias = torch.randn(N, device="cuda").bfloat16()
    residual = torch.randn(M, N + 8, device="cuda").bfloat16()[:, :N]
    found, twin = (torch.full((M, N), math.nan, device="cuda").bfloat16() for _ in range(2))
    exact = a.double() @ b.double() + bias.double()
    exact = (exact if activation is None else torch.nn.functional.gelu(exact)) + residual.double()
    portable.launch(Product(a, b, twin, bias, activation, residual), False)
    found = residual if in_place else found
    product = Product(a, b, found, bias, activation, residual)
    assert hopper.supported(product)
    hopper.launch(product)
    assert relative(found, exact) <= 1.05 * relative(twin, exact) + 1e-5


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "shape",
    [(512, 512, 40), (600, 36, 2052), (1024, 1024, 1024), (2500, 1996, 300)],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_tf32_agrees_with_its_twin(shape: tuple[int, int, int], layout: str) -> None:
    from kernels.matmul.hopper.tf32 import launch as hopper_tf32
    from kernels.matmul.portable import kernel as portable

    M, N, K = shape
    a, b = stored(layout[0], M, K), stored(layout[1], K, N)
    bias = torch.randn(N, device="cuda")
    found, twin = (torch.full((M, N), math.nan, device="cuda") for _ in range(2))
    product = Product(a, b, found, bias, "gelu")
    assert hopper_tf32.supported(product)
    hopper_tf32.launch(product)
    portable.launch(replace(product, out=twin), True)
    exact = torch.nn.functional.gelu(a.double() @ b.double() + bias.double())
    assert relative(found, exact) <= 1.05 * relative(twin, exact) + 1e-6


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("scaled", ["tensor", "rows", "blocks"])
@pytest.mark.parametrize(
    "shape",
    [
        (5, 136, 16),
        (77, 136, 16),
        (301, 264, 400),
        (70, 264, 8208),
        (1001, 2056, 4096),
        (90, 4104, 8336),  # more blocks of K than scales are held of
        (1500, 5136, 144),  # two tiles and three a program, of a block of K and a part
    ],
    ids=lambda shape: "x".join(map(str, shape)),
)
def test_fp8_agrees_with_its_twin(
    shape: tuple[int, int, int], scaled: str, kind: torch.dtype
) -> None:
    from kernels.matmul.hopper.fp8 import launch as hopper_fp8
    from kernels.matmul.operators import fp8 as fp8_interface
    from kernels.matmul.portable import kernel as portable

    M, N, K = shape
    # 448 is the largest e4m3 has; beyond 464 a value becomes NaN.
    drawn = ((stored("n", rows, K) * 100).clamp(-448, 448) for rows in (M, N))
    a, b = (one.to(torch.float8_e4m3fn) for one in drawn)
    b = b.t()
    blocks = -(-K // 128)
    shapes = {
        "tensor": ((), ()),
        "rows": ((M,), (N,)),
        "blocks": ((M, blocks), (blocks, -(-N // 128))),
    }
    a_scale, b_scale = (torch.rand(one, device="cuda") * 0.01 + 0.005 for one in shapes[scaled])
    scales = (
        fp8_interface._scale("a_scale", a, a_scale),
        fp8_interface._scale("b_scale", b, b_scale),
    )
    bias = torch.randn(N, device="cuda").to(kind)
    twin = torch.full((M, N), math.nan, device="cuda", dtype=kind)
    product = Product(a, b, twin, bias, "gelu", None, *scales)
    portable.launch(product)
    left, right = a.double(), b.double()
    if scaled == "blocks":
        a_scale = a_scale.repeat_interleave(128, 1)[:, :K]
        b_scale = b_scale.repeat_interleave(128, 0)[:K].repeat_interleave(128, 1)[:, :N]
    elif scaled == "rows":
        a_scale = a_scale[:, None]
    exact = torch.nn.functional.gelu((left * a_scale) @ (right * b_scale) + bias.double())
    several = [hopper_fp8.NARROW] if scaled == "blocks" else [hopper_fp8.WIDE, hopper_fp8.NARROW]
    once = (*hopper_fp8.FEW, hopper_fp8.FEW_TWICE, hopper_fp8.SQUARE, hopper_fp8.OBLONG)
    for config in (*several, *once, hopper_fp8.LARGE):
        found = torch.full((M, N), math.nan, device="cuda", dtype=kind)
        hopper_fp8.launch(replace(product, out=found), config)
        assert relative(found, exact) <= 1.05 * relative(twin, exact) + 1e-6

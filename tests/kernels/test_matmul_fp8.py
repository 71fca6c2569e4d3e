"""matmul of fp8 operands against fp64 of the same dequantised operands, in Triton's interpreter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from benchmarks.workloads.matmul_fp8 import Fp8MatmulWorkload
from kernels.matmul.common import tuning as configs
from tests.kernels.interpreted import Worker, strided

# What is added between the operands and the output: e4m3 products are exact in fp32, so that the
# error is that of K fp32 additions, of the scales' products and of one rounding of the output.
FP32 = torch.finfo(torch.float32).eps
AT_ONCE = 32  # products that Hopper's matrix unit adds at once


@dataclass(frozen=True, kw_only=True)
class Case:
    M: int = 40
    N: int = 50
    K: int = 90
    flavour: str = "float8_e4m3fn"
    a_view: str = "contiguous"
    b_view: str = "transposed"
    a_scale: str = "tensor"
    b_scale: str = "tensor"
    bias: bool = False
    activation: str | None = None
    residual: bool = False
    out: str = "bfloat16"
    tma: bool = False
    splits: int = 1
    decode: bool = False

    def __str__(self) -> str:
        parts = [self.flavour, f"{self.M}x{self.N}x{self.K}", self.a_view, self.b_view]
        parts += [self.a_scale, self.b_scale] + ["bias"] * self.bias + ["residual"] * self.residual
        parts += [self.activation or "linear", self.out] + ["tma"] * self.tma
        parts += ["decode"] * self.decode
        return "-".join(parts + [f"splits{self.splits}"] * (self.splits > 1))


BASE = Case()
CASES = [
    *(replace(BASE, decode=decode) for decode in (False, True)),
    *(replace(BASE, flavour="float8_e4m3fnuz", decode=decode) for decode in (False, True)),
    replace(BASE, a_scale="rows", b_scale="columns", out="float32"),
    replace(BASE, a_scale="none", b_scale="columns", out="float16", bias=True, activation="relu"),
    replace(BASE, K=300, N=140, a_scale="blocks", b_scale="blocks", out="float32"),
    replace(BASE, K=300, N=140, a_scale="blocks", b_scale="tensor", decode=True),
    replace(BASE, K=200, N=140, a_scale="rows", b_scale="blocks", residual=True),
    *(
        replace(BASE, a_view=a, b_view=b)
        for a, b in (
            ("contiguous", "contiguous"),
            ("transposed", "contiguous"),
            ("transposed", "transposed"),
            ("padded", "skipping"),
        )
    ),
    replace(BASE, M=32, N=48, K=272, a_scale="blocks", b_scale="blocks", tma=True),
    replace(BASE, M=3, K=600, a_scale="blocks", b_scale="blocks", splits=4, activation="silu"),
    replace(BASE, M=1, N=1, K=1, splits=1, bias=True, activation="gelu", residual=True),
    # A few of its values are beyond fp16.
    replace(BASE, a_scale="none", b_scale="none", residual=True, out="float16"),
]


def drawn(shape: tuple[int, int], view: str, flavour: torch.dtype, seed: int) -> torch.Tensor:
    """As ``strided``, whose values torch cannot draw in fp8; what it pads with stays NaN."""
    wide = strided(shape, view, torch.float32, seed) * 100.0
    rows = max((shape[0] - 1) * wide.stride(0) + (shape[1] - 1) * wide.stride(1) + 1, 1)
    room = torch.as_strided(wide, (rows,), (1,)).clamp(-240.0, 240.0).to(flavour)
    return torch.as_strided(room, shape, wide.stride())


def scales(kind: str, rows: int, columns: int, seed: int) -> tuple[Any, torch.Tensor]:
    """What matmul is given, and the same spread over the operand in fp64."""
    generator = torch.Generator().manual_seed(seed)
    blocks = -(-columns // 128) if seed == 5 else -(-rows // 128)
    shape: tuple[int, ...] = {
        "none": (),
        "tensor": (),
        "rows": (rows,),
        "columns": (columns,),
        "blocks": (rows, blocks) if seed == 5 else (blocks, -(-columns // 128)),
    }[kind]
    values = torch.rand(shape, generator=generator) * 0.02 + 0.001
    wide = values.double()
    if kind == "none":
        return None, torch.ones((), dtype=torch.float64)
    if kind == "rows":
        wide = wide[:, None]
    if kind == "blocks":
        wide = wide.repeat_interleave(128, 1)[:, :columns]
        wide = wide if seed == 5 else wide.repeat_interleave(128, 0)[:rows]
    return values, wide


def operands(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    flavour = getattr(torch, case.flavour)
    a = drawn((case.M, case.K), case.a_view, flavour, 1)
    return a, drawn((case.K, case.N), case.b_view, flavour, 2)


def run(case: Case, added: float = FP32) -> tuple[torch.Tensor, ...]:
    """The output, the truth, and a bound on the error of each value where an addition loses
    ``added`` of what is summed."""
    import kernels

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=case.tma, splits=case.splits)
    configs.INTERPRETED_DECODES = case.decode
    kind = getattr(torch, case.out)
    a, b = operands(case)
    a_scale, wide_a_scale = scales(case.a_scale, case.M, case.K, 5)
    b_scale, wide_b_scale = scales(case.b_scale, case.K, case.N, 6)
    bias = torch.randn(case.N).to(kind) if case.bias else None
    residual = torch.randn(case.M, case.N).to(kind) if case.residual else None
    got = kernels.matmul(
        a,
        b,
        a_scale=a_scale,
        b_scale=b_scale,
        bias=bias,
        activation=case.activation,
        residual=residual,
        out_dtype=None if case.out == "bfloat16" else kind,
    )
    left, right = a.double() * wide_a_scale, b.double() * wide_b_scale
    return got, *judged(left, right, bias, case.activation, residual, kind, added)


def judged(
    left: torch.Tensor,
    right: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str | None,
    residual: torch.Tensor | None,
    kind: torch.dtype,
    added: float = FP32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The truth of a product of dequantised operands in fp64, and the bound on each error of one
    that is rounded to ``kind``."""
    K = left.shape[1]
    truth = left @ right + (0.0 if bias is None else bias.double())
    # No activation is steeper than 1.13 (gelu); that of the interpreter's exp and erf is fp32's.
    size = left.abs() @ right.abs() + truth.abs()
    bound = 1.13 * (K + 8) * added * size
    if added > FP32 and K <= AT_ONCE:
        # Added at once, every product but the largest loses what is below the largest's last place.
        largest = torch.zeros_like(truth)
        for i in range(K):
            product = left[:, i, None].abs() * right[None, i].abs()
            largest = torch.maximum(largest, product)
        lost = (K - 1) * AT_ONCE * added * largest
        bound = 1.13 * (lost + (K + 8) * FP32 * size)
    if activation is not None:
        truth = getattr(torch.nn.functional, activation)(truth)
    truth = truth if residual is None else truth + residual.double()
    bound += 0.5 * torch.finfo(kind).eps * truth.abs() * (1 + 1e-3) + torch.finfo(kind).tiny
    return truth, bound


def shares(got: torch.Tensor, truth: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    """Each error by its bound. What may round to infinity may be infinite, with its sign."""
    largest = torch.finfo(got.dtype).max
    beyond = got.isinf() & (got.sign() == truth.sign()) & (truth.abs() + bound > largest)
    error = (got.double() - truth).abs().masked_fill(beyond, 0.0)
    return error / bound


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_of_fp8_matches_its_dequantised_operands(interpreter: Worker, case: Case) -> None:
    got, truth, bound = interpreter.run(run, case)
    assert got.dtype == getattr(torch, case.out) and got.shape == (case.M, case.N)
    share = shares(got, truth, bound)
    assert bool((share <= 1.0).all()), f"{float(share.max()):.2f} of the bound"
    assert float(truth.abs().max()) > 0.01


def run_values(flavour: str, decode: bool) -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=False, splits=1)
    configs.INTERPRETED_DECODES = decode
    kind = getattr(torch, flavour)
    every = torch.arange(256, dtype=torch.uint8).view(kind)[:, None]
    one = torch.ones(1, 1).to(kind)
    return kernels.matmul(every, one, out_dtype=torch.float32), every.float()


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize("flavour", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_every_value_of_a_flavour_is_exact(interpreter: Worker, flavour: str, decode: bool) -> None:
    got, want = interpreter.run(run_values, flavour, decode)
    assert torch.equal(got.nan_to_num(999.0), want.nan_to_num(999.0))
    assert int(got.isnan().sum()) == int(want.isnan().sum()) >= 1


def run_operator() -> tuple[dict[str, str], bool, torch.Tensor, torch.Tensor]:
    import kernels.public

    configs.INTERPRETED = replace(configs.INTERPRETED, tma=False, splits=1)
    configs.INTERPRETED_DECODES = False
    a, b = (torch.randn(16, 16).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.full((16,), 0.5)

    def model(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return kernels.matmul(a, b.t(), a_scale=scale, out_dtype=torch.float16) * 2.0

    before = [one.view(torch.uint8).clone() for one in (a, b)]
    checked = torch.library.opcheck(
        torch.ops.warpwatch.matmul_fp8,
        (a, b, scale, None, None, "relu", None, torch.bfloat16),
        # test_schema compares its inputs by an operation torch lacks for float8 on CPUs: below.
        test_utils=("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"),
    )
    untouched = all(map(torch.equal, before, [one.view(torch.uint8) for one in (a, b)]))
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(a, b, scale)
    return checked, untouched, compiled, model(a, b, scale)


def test_operator_of_fp8_passes_opcheck_and_compiles(interpreter: Worker) -> None:
    checked, untouched, compiled, eager = interpreter.run(run_operator)
    assert set(checked.values()) == {"SUCCESS"} and untouched
    assert torch.equal(compiled, eager)


def run_edges() -> tuple[torch.Tensor, tuple[int, ...], bool]:
    import kernels

    a = torch.ones(5, 4).to(torch.float8_e4m3fn)
    scale = torch.tensor(0.5)
    no_k = kernels.matmul(a[:, :0], a.t()[:0], a_scale=torch.ones(5, 0), out_dtype=torch.float32)
    no_rows = kernels.matmul(a[:0], a.t(), b_scale=scale)
    out = torch.full((5, 5), float("nan"))
    got = kernels.matmul(a, a.t(), a_scale=scale, out_dtype=torch.float32, out=out)
    with torch.autocast("cpu", torch.bfloat16):
        same = kernels.matmul(a, a.t(), a_scale=scale, out_dtype=torch.float32)
    return (
        no_k,
        tuple(no_rows.shape),
        got is out and torch.equal(out, same) and bool(out[0, 0] == 2.0),
    )


def test_empty_fp8_operands_a_given_output_and_autocast(interpreter: Worker) -> None:
    no_k, no_rows, written = interpreter.run(run_edges)
    assert torch.equal(no_k, torch.zeros(5, 5)) and no_rows == (0, 5) and written


def test_workload_dequantises_what_it_quantised() -> None:
    case = Fp8MatmulWorkload(group="test", M=3, N=130, K=200, scales="blocks", residual=True)
    made = case.inputs("cpu", seed=3)
    assert made["a_scale"].shape == (3, 2) and made["b_scale"].shape == (2, 2)
    assert made["b"].stride() == (1, 200)
    a = made["a"].double() * made["a_scale"].double().repeat_interleave(128, 1)[:, :200]
    want = made["residual"].double()
    for i in range(2):
        for j in range(2):
            rows, columns = slice(128 * i, 128 * (i + 1)), slice(128 * j, 128 * (j + 1))
            b = made["b"][rows, columns].double() * made["b_scale"][i, j].double()
            want[:, columns] += a[:, rows] @ b
    assert torch.allclose(case.reference(made, "float64"), want)
    assert case.name == "matmul-fp8-3x130x200-nt-residual-blocks"
    assert case.bytes_moved == 133 * 200 + 2 * 2 * 3 * 130 + 4 * (6 + 4)

"""matmul against fp64, in Triton's interpreter."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pytest
import torch
import triton
import triton.language as tl

from kernels.device.products import nearest_tf32
from kernels.matmul.common import tuning as configs
from kernels.runtime.targets import Target
from tests.kernels.interpreted import Errors, Worker, measure, strided


@dataclass(frozen=True, kw_only=True)
class Case:
    M: int = 70
    N: int = 50
    K: int = 90
    dtype: str = "float16"
    a_view: str = "contiguous"
    b_view: str = "contiguous"
    bias: bool = False
    activation: str | None = None
    residual: str | None = None
    tf32: bool = False
    tma: bool = False
    splits: int = 1
    one_row: bool = False

    def __str__(self) -> str:
        parts = [self.dtype, f"{self.M}x{self.N}x{self.K}"]
        if (self.a_view, self.b_view) != ("contiguous", "contiguous"):
            parts += [self.a_view, self.b_view]
        parts += ["bias"] * self.bias + [self.activation or "linear"] + ["tf32"] * self.tf32
        parts += [] if self.residual is None else ["residual", self.residual]
        parts += ["tma"] * self.tma + [f"splits{self.splits}"] * (self.splits > 1)
        parts += ["one-row"] * self.one_row
        return "-".join(parts)


BASE = Case()
DTYPES = ("float16", "bfloat16", "float32")
CASES = [
    *(replace(BASE, dtype=dtype) for dtype in DTYPES),
    *(replace(BASE, M=M, N=N, K=K) for M, N, K in ((1, 1, 1), (1, 130, 64), (64, 64, 128))),
    replace(BASE, M=257, N=33, K=17),
    *(
        replace(BASE, a_view=a, b_view=b)
        for a, b in (
            ("transposed", "contiguous"),
            ("contiguous", "transposed"),
            ("transposed", "transposed"),
            ("padded", "skipping"),
        )
    ),
    *(replace(BASE, dtype=d, bias=True, activation="gelu") for d in DTYPES),
    *(replace(BASE, bias=bias, activation=a) for bias, a in ((True, "relu"), (False, "silu"))),
    replace(BASE, dtype="float32", tf32=True),
    *(
        replace(BASE, M=72, N=56, K=88, a_view=a, b_view=b, dtype="bfloat16", tma=True)
        for a in ("contiguous", "transposed")
        for b in ("contiguous", "transposed")
    ),
    replace(BASE, tma=True, bias=True, activation="silu"),
    *(replace(BASE, dtype=d, bias=True, activation="relu", residual="padded") for d in DTYPES),
    replace(BASE, activation="gelu", residual="transposed"),
    replace(BASE, tma=True, residual="expanded"),
    replace(BASE, M=5, K=300, splits=3),
    replace(BASE, M=5, N=300, K=300, splits=3, dtype="bfloat16"),
    replace(BASE, M=5, N=33, K=300, splits=3, dtype="float32"),
    replace(BASE, M=1, K=300, splits=2, bias=True, activation="gelu", residual="padded"),
    replace(BASE, M=40, splits=2, a_view="padded", b_view="skipping", activation="silu"),
    replace(BASE, M=8, N=56, K=200, b_view="transposed", splits=4, tma=True, residual="expanded"),
    replace(BASE, M=3, K=1, splits=1, residual="transposed"),
    *(
        replace(BASE, M=1, N=N, K=K, b_view="transposed", dtype=dtype, one_row=True)
        for N, K, dtype in ((50, 90, "float16"), (4, 64, "bfloat16"), (1, 7, "float16"))
    ),
    replace(
        BASE,
        M=1,
        a_view="skipping",
        b_view="transposed",
        bias=True,
        activation="silu",
        residual="padded",
        one_row=True,
    ),
]


def added(case: Case, dtype: torch.dtype) -> torch.Tensor | None:
    if case.residual is None:
        return None
    if case.residual == "expanded":
        return strided((case.N,), "contiguous", dtype, 4).expand(case.M, case.N)
    return strided((case.M, case.N), case.residual, dtype, 4)


def in_tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounded to the nearest of tf32's ten bits of mantissa, ties away from zero."""
    bits = x.contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & -0x2000).view(torch.float32)
    return torch.where(x.isnan(), x, rounded)


def operands(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    dtype = getattr(torch, case.dtype)
    a = strided((case.M, case.K), case.a_view, dtype, 1)
    return a, strided((case.K, case.N), case.b_view, dtype, 2)


def run(case: Case) -> Errors:
    import kernels
    from kernels.runtime import targets

    # The interpreter has no architecture whose table would choose between the two ways to load.
    configs.INTERPRETED = replace(configs.INTERPRETED, tma=case.tma, splits=case.splits)
    configs.INTERPRETED_ONE_ROW = configs.OneRowConfig(4, 32, 4) if case.one_row else None
    dtype = getattr(torch, case.dtype)
    a, b = operands(case)
    bias = strided((case.N,), "contiguous", dtype, 3) if case.bias else None
    residual = added(case, dtype)

    def plain(kind: torch.dtype) -> torch.Tensor:
        x, y = a.to(kind), b.to(kind)
        # cuBLAS takes tf32 for some shapes only: its operands are always rounded here.
        if kind != torch.float64 and case.tf32 and targets.current().has_tf32:
            x, y = in_tf32(x), in_tf32(y)
        out = x @ y
        out = out if bias is None else out + bias.to(kind)
        if case.activation is not None:
            out = getattr(torch.nn.functional, case.activation)(out)
        return out if residual is None else out + residual.to(kind)

    got = kernels.matmul(
        a,
        b,
        bias=bias,
        activation=case.activation,
        residual=residual,
        allow_tf32=case.tf32,
    )
    return measure(got, plain(dtype), plain(torch.float64))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_product_matches_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, names=("out",))


@triton.jit
def round_kernel(source, target, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(target + at, nearest_tf32(tl.load(source + at)))


def run_rounding() -> tuple[torch.Tensor, torch.Tensor]:
    bits = [0, 0x7F800000, -0x800000, 0x7FC00000, 0x7FFFFFFF, -1, 0x7F7FFFFF, 0x3F800FFF]
    bits += [0x3F801000, 0x3F801001, 0x3F803000, -0x407FF000, 1, 0x1000, 0x3FFFFFFF, 0x40000000]
    source = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    found = torch.full_like(source, -7.0)
    round_kernel[(1,)](source, found, len(bits))
    return source, found


def test_fp32_is_rounded_to_the_nearest_tf32(interpreter: Worker) -> None:
    source, found = interpreter.run(run_rounding)
    torch.testing.assert_close(found, in_tf32(source), rtol=0.0, atol=0.0, equal_nan=True)
    assert found[3:6].isnan().all() and not found[6:].isnan().any()
    # The largest number is nearer to what would be the next one; a tie goes away from zero.
    assert found[1] == found[6] == math.inf and found[2] == -math.inf
    step = 2.0**-10
    expected = [1.0, 1.0 + step, 1.0 + step, 1.0 + 2 * step, -1.0 - step]
    assert found[7:12].tolist() == expected and found[14:].tolist() == [2.0, 2.0]


def run_edges() -> tuple[torch.Tensor, tuple[int, ...], torch.Tensor, int, int]:
    import kernels

    bias = torch.arange(5.0)
    no_k = kernels.matmul(torch.empty(3, 0), torch.empty(0, 5), bias=bias)
    no_rows = kernels.triton_matmul(torch.empty(0, 4), torch.empty(4, 5))
    out = torch.full((4, 4), float("nan")).t()
    got = kernels.matmul(torch.eye(4), torch.eye(4), out=out)
    assert kernels.matmul(torch.eye(4), torch.eye(4), residual=got, out=got) is got  # in place
    return no_k, tuple(no_rows.shape), out, got.data_ptr(), out.data_ptr()


def test_empty_operands_and_a_given_output(interpreter: Worker) -> None:
    no_k, no_rows, out, got, given = interpreter.run(run_edges)
    assert torch.equal(no_k, torch.arange(5.0).expand(3, 5))
    assert no_rows == (0, 5)
    assert torch.equal(out, 2 * torch.eye(4))
    assert got == given


@pytest.mark.parametrize("name", configs.PROCESSORS)
def test_k_is_split_where_it_gives_processors_work(name: str) -> None:
    target = Target(name, "hip" if name.startswith("gfx") else "cuda")
    for M in (1, 8, 16, 17, 64, 65):
        for N, K in ((4096, 4096), (4096, 14336), (28672, 4096), (64, 100), (512, 65536)):
            config = configs.choose(target, M, N, K, torch.bfloat16)
            tiles = -(-M // config.block_m) * -(-N // config.block_n)
            steps = -(-K // config.block_k)
            if config.splits == 1:
                continue
            each = -(-steps // config.splits)
            assert M <= 64 and each >= 4 and each * (config.splits - 1) < steps, (M, N, K)
            room = configs.PROCESSORS[name] * configs.RESIDENT[name]
            assert tiles * config.splits <= room, (M, N, K)
            assert 8 * config.splits * M * N <= 2 * K * N / 4, (M, N, K)
    splits = [configs.choose(target, M, 1024, 4096, torch.bfloat16).splits for M in (16, 64, 65)]
    assert splits[0] > 1 and splits[1] > 1 and splits[2] == 1


def test_columns_are_read_whole_where_they_occupy_most_processors() -> None:
    target = Target("sm_90", "cuda", 90)

    def cut(N: int, K: int = 4096) -> tuple[int, int, int]:
        config = configs.choose(target, 16, N, K, torch.bfloat16)
        return config.block_n, config.num_stages, config.splits

    assert [cut(N) for N in (4096, 6144, 8192)] == [(32, 6, 1), (64, 5, 1), (64, 5, 1)]
    assert [cut(N) for N in (14336, 28672)] == [(64, 3, 1)] * 2
    assert cut(2048)[2] > 1  # too few tiles
    assert cut(5120) == (32, 4, 1)  # a few more than processors: two run side by side
    assert cut(4096, 640)[1] != 6
    a, b = torch.empty(16, 4096).bfloat16(), torch.empty(4096, 4096).bfloat16()
    assert configs.for_few_rows(target, a, b) and configs.for_few_rows(target, a, b.t())
    assert not configs.for_few_rows(target, torch.empty(65, 4096).bfloat16(), b)
    odd = torch.empty(4096, 4104).bfloat16()[:, :4096]
    assert not configs.for_few_rows(target, a, odd)


def run_gradients(
    dtype: str, activation: str | None, residual: bool, M: int = 70, N: int = 50, K: int = 90
) -> list[Errors]:
    import kernels

    kind = getattr(torch, dtype)
    torch.backends.cuda.matmul.allow_tf32 = False
    shapes = ((M, K), (K, N), (N,), (M, N))[: 4 if residual else 3]
    values = [strided(shape, "contiguous", kind, seed) for seed, shape in enumerate(shapes)]
    dout = strided((M, N), "contiguous", kind, 9)

    def gradients(kind: torch.dtype | None) -> tuple[torch.Tensor, ...]:
        leaves = [one.to(kind or one.dtype).detach().requires_grad_() for one in values]
        a, b, bias, *rest = leaves
        if kind is None:
            options = {"residual": rest[0]} if rest else {}
            out = kernels.matmul(a, b, bias=bias, activation=activation, **options)
        else:
            out = a @ b + bias
            out = out if activation is None else getattr(torch.nn.functional, activation)(out)
            out = out + rest[0] if rest else out
        return torch.autograd.grad(out, leaves, dout.to(out.dtype))

    return [
        measure(*each)
        for each in zip(gradients(None), gradients(kind), gradients(torch.float64), strict=True)
    ]


GRADIENTS = [
    *((dtype, kind, False) for dtype in DTYPES for kind in (None, "relu", "gelu", "silu")),
    *(("bfloat16", kind, True) for kind in (None, "relu", "silu")),
]


@pytest.mark.parametrize(("dtype", "activation", "residual"), GRADIENTS)
def test_gradients_match_fp64(
    interpreter: Worker, dtype: str, activation: str | None, residual: bool
) -> None:
    names = ("da", "db", "dbias", "dresidual")[: 3 + residual]
    interpreter.check(run_gradients, dtype, activation, residual, names=names)


def run_opcheck(activation: str | None, residual: bool) -> dict[str, str]:
    import kernels.public  # noqa: F401  (registers the operators)

    a, b, more = (torch.randn(16, 16, requires_grad=True) for _ in range(3))
    given = (a, b, None, activation, False, more if residual else None)
    return torch.library.opcheck(torch.ops.warpwatch.matmul, given)


@pytest.mark.parametrize(
    ("activation", "residual"), [(None, False), ("relu", False), ("relu", True), ("silu", True)]
)
def test_operator_passes_opcheck(
    interpreter: Worker, activation: str | None, residual: bool
) -> None:
    assert set(interpreter.run(run_opcheck, activation, residual).values()) == {"SUCCESS"}


def run_compiled() -> tuple[torch.Tensor, torch.Tensor]:
    import kernels

    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = kernels.matmul(x, w, activation="relu", residual=x.repeat(1, 2)).view(1, 32, 2, 16)
        y = kernels.flash_attention(y, y, y, causal=True)
        return kernels.flash_attention(y, y, y, window_size=(5, 2)) * 2.0

    x, w = torch.randn(32, 16), torch.randn(16, 32)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    return compiled(x, w), model(x, w)


def test_torch_compile_takes_both_kernels_in_one_graph(interpreter: Worker) -> None:
    compiled, eager = interpreter.run(run_compiled)
    assert torch.equal(compiled, eager)

"""Calls that Hopper's kernels may serve, compiled for it: what tests read the code of."""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from kernels import flash_attention, flash_attention_backward, flash_attention_varlen, matmul
from kernels.attention.common.options import Options
from kernels.attention.common.packed.sequences import Packed
from kernels.attention.common.problem import Given
from kernels.attention.dispatch import backward as gradients
from kernels.attention.operators.varlen import flash_attention_varlen_backward_op
from tests.problems import problem_of
from tools.kernels import sanitizer_log
from warpwatch.config import targets
from warpwatch.instruments.compiled.formats.recording import Kernel, Recording
from warpwatch.instruments.compiled.measure.reading import read_code
from warpwatch.instruments.compiled.record.call import record

SM_90 = targets.get("sm_90")


def product(M: int, N: int, K: int, *, layout: str = "nn", **options: object) -> Recording:
    def call() -> None:
        a = torch.empty((K, M), dtype=torch.bfloat16).t()
        b = torch.empty((N, K), dtype=torch.bfloat16).t()
        a = a if layout[0] == "t" else torch.empty((M, K), dtype=torch.bfloat16)
        b = b if layout[1] == "t" else torch.empty((K, N), dtype=torch.bfloat16)
        matmul(a, b, **options)

    return record(call, SM_90)


def in_tf32(M: int, N: int, K: int, *, layout: str = "nn", **options: object) -> Recording:
    def call() -> None:
        a = torch.empty((K, M)).t() if layout[0] == "t" else torch.empty((M, K))
        b = torch.empty((N, K)).t() if layout[1] == "t" else torch.empty((K, N))
        matmul(a, b, allow_tf32=True, **options)

    return record(call, SM_90)


def product_of_fp8(
    M: int,
    N: int,
    K: int,
    *,
    layout: str = "nt",
    scales: str = "tensor",
    out: torch.dtype = torch.bfloat16,
    **options: object,
) -> Recording:
    def call() -> None:
        kind = torch.float8_e4m3fn
        a = (
            torch.empty((K, M), dtype=kind).t()
            if layout[0] == "t"
            else torch.empty((M, K), dtype=kind)
        )
        b = (
            torch.empty((N, K), dtype=kind).t()
            if layout[1] == "t"
            else torch.empty((K, N), dtype=kind)
        )
        blocks = -(-K // 128)
        shapes = {
            "tensor": ((), ()),
            "rows": ((M,), (N,)),
            "blocks": ((M, blocks), (blocks, -(-N // 128))),
        }
        a_scale, b_scale = map(torch.empty, shapes.get(scales, ((), ())))
        given = {} if scales == "none" else {"a_scale": a_scale, "b_scale": b_scale}
        if scales.startswith("only "):
            given = {f"{name}_scale": given[f"{name}_scale"] for name in scales[5:]}
        matmul(a, b, out_dtype=out, **given, **options)

    return record(call, SM_90)


def attention(
    head_dim: int,
    *,
    causal: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    window: int = -1,
    seqlen_q: int = 1024,
    seqlen_k: int = 1024,
    batch: int = 2,
) -> Recording:
    def call() -> None:
        q = torch.empty((batch, seqlen_q, 8, head_dim), dtype=dtype)
        k, v = (torch.empty((batch, seqlen_k, 2, head_dim), dtype=dtype) for _ in range(2))
        flash_attention(q, k, v, causal=causal, window_size=(window, -1))

    return record(call, SM_90)


def packed(
    head_dim: int,
    *,
    longest: int = 1024,
    dtype: torch.dtype = torch.bfloat16,
    columns: int | None = None,
    **options: object,
) -> Recording:
    def call() -> None:
        q = torch.empty((2048, 8, columns or head_dim), dtype=dtype)[..., -head_dim:]
        k, v = (torch.empty((2048, 2, head_dim), dtype=dtype) for _ in range(2))
        cu = torch.zeros(5, dtype=torch.int32)
        flash_attention_varlen(q, k, v, cu, cu, longest, longest, **options)

    return record(call, SM_90)


def in_fp8(
    head_dim: int,
    *,
    causal: bool = False,
    seqlen_q: int = 1024,
    window: int = -1,
    out: torch.dtype = torch.bfloat16,
    scales: tuple[int, ...] | None = (),
) -> Recording:
    """``scales``: the shape of each."""

    def call() -> None:
        q = torch.empty((2, seqlen_q, 8, head_dim), dtype=torch.float8_e4m3fn)
        k, v = (torch.empty((2, 1024, 2, head_dim), dtype=q.dtype) for _ in range(2))
        scale = None if scales is None else torch.ones(scales)
        given = dict.fromkeys(("q_scale", "k_scale", "v_scale"), scale)
        options = {"causal": causal, "window_size": (window, -1), "out_dtype": out}
        flash_attention(q, k, v, **given, **options)

    return record(call, SM_90)


def packed_in_fp8(
    head_dim: int,
    *,
    longest: int = 1024,
    out: torch.dtype = torch.bfloat16,
    scales: tuple[int, ...] | None = (),
    used: bool = False,
    batch: int = 4,
    **options: object,
) -> Recording:
    """``scales``: the shape of each."""

    def call() -> None:
        q = torch.empty((2048, 8, head_dim), dtype=torch.float8_e4m3fn)
        k, v = (torch.empty((2048, 2, head_dim), dtype=q.dtype) for _ in range(2))
        cu = torch.zeros(batch + 1, dtype=torch.int32)
        scale = None if scales is None else torch.ones(scales)
        given = dict.fromkeys(("q_scale", "k_scale", "v_scale"), scale)
        most = dict.fromkeys(("seqused_q", "seqused_k"), cu[1:] if used else None)
        given |= {"out_dtype": out, **most, **options}
        flash_attention_varlen(q, k, v, cu, cu, longest, longest, **given)

    return record(call, SM_90)


def backward(
    head_dim: int,
    *,
    causal: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    seqlen_q: int = 1024,
    seqlen_k: int = 1024,
    batch: int = 2,
    kv_heads: int = 2,
    window: int = -1,
    dout_like: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Recording:
    def call() -> None:
        q, out, dout = (torch.empty((batch, seqlen_q, 8, head_dim), dtype=dtype) for _ in range(3))
        k, v = (torch.empty((batch, seqlen_k, kv_heads, head_dim), dtype=dtype) for _ in range(2))
        lse = torch.empty((batch, 8, seqlen_q))
        dout = dout if dout_like is None else dout_like(dout)
        options = {"causal": causal, "window_size": (window, -1)}
        flash_attention_backward(dout, q, k, v, out, lse, **options)

    return record(call, SM_90)


def packed_backward(
    head_dim: int,
    *,
    causal: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    longest: int = 2048,
    tokens: int = 16384,
) -> Recording:
    def call() -> None:
        q, out, dout = (torch.empty((tokens, 32, head_dim), dtype=dtype) for _ in range(3))
        k, v = (torch.empty((tokens, 8, head_dim), dtype=dtype) for _ in range(2))
        cu = torch.zeros(9, dtype=torch.int32)
        done = (out, torch.empty((32, tokens)), cu, cu, longest, longest)
        flash_attention_varlen_backward_op(
            dout,
            None,
            q,
            k,
            v,
            *done,
            causal,
            0,
            None,
            head_dim**-0.5,
        )

    return record(call, SM_90)


def corrected(
    head_dim: int,
    *,
    causal: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    left_offset: int | None = None,
    heads: int = 8,
    kv_heads: int | None = None,
    tokens: int = 2048,
    dlse: bool = False,
    packed: bool = False,
) -> Recording:
    """What gradients of rows of one heavy weight take beside the others' launches."""

    def call() -> None:
        q, out, dout = (torch.empty((1, tokens, heads, head_dim), dtype=dtype) for _ in range(3))
        k, v = (
            torch.empty((1, tokens, kv_heads or heads, head_dim), dtype=dtype) for _ in range(2)
        )
        lse = torch.empty((heads, tokens) if packed else (1, heads, tokens))
        sequences = None
        if packed:
            cu = torch.zeros(5, dtype=torch.int32)
            sequences = Packed(cu, cu, 1024, 1024)
            q, out, dout, k, v = (sequences.spread(one[0]) for one in (q, out, dout, k, v))
        masks = {"causal": causal, "causal_offset": 0, "left_offset": left_offset}
        options = Options(exact_gradients=True)
        problem = problem_of(q, k, v, scale=0.1, packed=sequences, options=options, **masks)
        gradients.corrected(problem, Given(dout, lse if dlse else None, out, lse))

    return record(call, SM_90)


def only_kernel(recording: Recording) -> Kernel:
    assert recording.failures == ()
    assert len(recording.launches) == 1
    return recording.launches[0].kernel


def named_barriers(kernel: Kernel) -> set[int]:
    """Numbers of barriers that ``kernel`` names in its code; of some registers have them."""
    found = re.findall(r"\bbar(?:rier)?\.(?:sync|arrive)\s+(\d+)", kernel.texts["ptx"])
    return set(map(int, found))


def check_specialised(kernel: Kernel, name: str) -> None:
    """That ``kernel`` is the warp-specialised one called ``name``, and its code as it should be."""
    code = read_code(kernel)
    assert kernel.name == name
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    assert sanitizer_log.hand_over(code.program)  # what racecheck's hazards are held against
    for feature in ("setmaxnreg", "cp.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]

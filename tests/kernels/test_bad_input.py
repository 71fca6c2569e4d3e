"""Every wrong argument is one error that names it, what was expected, what came and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import kernels

HALF = torch.float16
Q = torch.empty(2, 8, 4, 64, dtype=HALF)
K = torch.empty(2, 8, 2, 64, dtype=HALF)
LSE = torch.empty(2, 4, 8)
A = torch.empty(4, 6, dtype=HALF)
B = torch.empty(6, 8, dtype=HALF)
A8, B8 = A.to(torch.float8_e4m3fn), B.to(torch.float8_e4m3fn)


def attend(q: Any = Q, k: Any = K, v: Any = K) -> Any:
    return kernels.flash_attention(q, k, v)


CU = torch.tensor([0, 8], dtype=torch.int32)


def varlen(q: Any = Q[0], k: Any = K[0], v: Any = K[0], cu_k: Any = CU, longest: Any = 8) -> Any:
    return kernels.flash_attention_varlen(q, k, v, CU, cu_k, longest, 8)


FP8 = torch.float8_e4m3fn
LENGTHS = torch.tensor([3, 8], dtype=torch.int32)
PAGES = torch.empty(5, 16, 2, 64, dtype=HALF)
TABLE = torch.zeros(2, 4, dtype=torch.int32)


def decode(
    q: Any = Q, k: Any = K, v: Any = K, k_new: Any = None, v_new: Any = None, **options: Any
) -> Any:
    return kernels.flash_attention_kvcache(q, k, v, k_new, v_new, **options)


def grouped(a: Any = A, b: Any = B[None], offsets: Any = CU) -> Any:
    return kernels.grouped_matmul(a, b, offsets)


def sdpa(**options: Any) -> Any:
    q = Q.transpose(1, 2)
    return kernels.scaled_dot_product_attention(q, q, q, **options)


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "attention-no-tensor": (lambda: attend(q=[1]), TypeError, r"^q: expected a torch.Tensor.*list"),
    "attention-rank": (
        lambda: attend(k=K[0]),
        ValueError,
        r"^k: expected 4 dim.*got 3.*\(8, 2, 64",
    ),
    "attention-dtype": (
        lambda: attend(q=Q.double()),
        ValueError,
        r"^q: .*float16.*float64.*\.to\(",
    ),
    "attention-mixed": (
        lambda: attend(v=K.bfloat16()),
        ValueError,
        r"^v: .*float16.*bfloat16.*\.to",
    ),
    "attention-batch": (lambda: attend(k=K[:1]), ValueError, r"^k: expected batch 2.*got 1"),
    "attention-head-dim": (lambda: attend(k=K[..., :32]), ValueError, r"^k: .*head_dim 64.*got 32"),
    "attention-wide": (
        lambda: attend(*[torch.empty(1, 1, 1, 512, dtype=HALF)] * 3),
        ValueError,
        r"^q: expected head_dim 1 to 256, got 512",
    ),
    "attention-v-shape": (lambda: attend(v=K[:, :4]), ValueError, r"^v: expected shape \(2, 8, 2"),
    "attention-v-wide": (
        lambda: attend(v=torch.empty(2, 8, 2, 264, dtype=HALF)),
        ValueError,
        r"^v: expected head_dim 1 to 256, got 264",
    ),
    "attention-heads": (
        lambda: attend(k=Q[:, :, :3], v=Q[:, :, :3]),
        ValueError,
        r"^k: .*divides the 4 of q, got 3; layout is \(batch, seqlen",
    ),
    "attention-window": (
        lambda: kernels.flash_attention(Q, K, K, window_size=(4, -2)),
        ValueError,
        r"^window_size: expected \(left, right\).*-1 for all, got \(4, -2\)",
    ),
    "attention-softcap": (
        lambda: kernels.flash_attention(Q, K, K, softcap=-1.0),
        ValueError,
        r"^softcap: expected a finite number above 0, or None, got -1.0",
    ),
    "attention-slopes": (
        lambda: kernels.flash_attention(Q, K, K, alibi_slopes=LSE),
        ValueError,
        r"^alibi_slopes: expected shape \(4,\) or \(2, 4\) for q of 4 heads, got \(2, 4, 8\)",
    ),
    "attention-sinks": (
        lambda: kernels.flash_attention(Q, K, K, sinks=LSE[0, :, 0].half()),
        ValueError,
        r"^sinks: expected dtype float32, got float16",
    ),
    "attention-fp8-softcap": (
        lambda: kernels.flash_attention(*[Q.to(torch.float8_e4m3fn)] * 3, softcap=9.0),
        NotImplementedError,
        r"^q: expected float16.*got torch.float8_e4m3fn; convert",
    ),
    "varlen-sinks": (
        lambda: kernels.flash_attention_varlen(Q[0], K[0], K[0], CU, CU, 8, 8, sinks=[1.0]),
        TypeError,
        r"^sinks: expected a torch.Tensor of shape \(4,\), got list",
    ),
    "attention-device": (lambda: attend(k=K.to("meta")), ValueError, r"^k: .*cpu.*meta.*\.to\("),
    "attention-cpu": (attend, ValueError, r"^q: expected a tensor on a GPU.*cpu.*\.cuda\(\)"),
    "sdpa-mask": (
        lambda: sdpa(attn_mask=Q),
        ValueError,
        r"^attn_mask: expected a shape that broadcasts to .*\(2, 4, 8, 8\), got \(2, 8, 4, 64\)",
    ),
    "sdpa-mask-causal": (
        lambda: sdpa(attn_mask=LSE, is_causal=True),
        ValueError,
        r"^attn_mask: expected None with is_causal=True",
    ),
    "attention-bias": (
        lambda: kernels.flash_attention(Q, K, K, bias=LSE.double()),
        ValueError,
        r"^bias: expected dtype float16.*bool, got float64",
    ),
    "sdpa-dropout": (
        lambda: sdpa(dropout_p=1.5),
        ValueError,
        r"^dropout_p: expected a probability from 0 to 1, got 1.5",
    ),
    "attention-block-size": (
        lambda: kernels.flash_attention(Q, K, K, block_mask=LSE > 0, block_size=(64, 128)),
        ValueError,
        r"^block_size: expected \(queries, keys\), each a multiple of 128, got \(64, 128\)",
    ),
    "attention-block-mask": (
        lambda: kernels.flash_attention(Q, K, K, block_mask=torch.ones(2, 4, 8, 8) > 0),
        ValueError,
        r"^block_mask: expected \(2, 4, 1, 1\), or 1 for.*\(128, 128\), got \(2, 4, 8, 8\)",
    ),
    "attention-seed": (
        lambda: kernels.flash_attention(Q, K, K, dropout_p=0.1, dropout_seed=0.5),
        TypeError,
        r"^dropout_seed: expected an int, an int64 tensor.*got float",
    ),
    "attention-seed-range": (
        lambda: kernels.flash_attention(Q, K, K, dropout_p=0.1, dropout_seed=2**63),
        ValueError,
        r"^dropout_seed: expected an int that 64 bits hold, got 9223372036854775808; take it",
    ),
    "attention-dropout-type": (
        lambda: kernels.flash_attention(Q, K, K, dropout_p=None),  # type: ignore[arg-type]
        TypeError,
        r"^dropout_p: expected a probability from 0 to 1, got None",
    ),
    "attention-softcap-type": (
        lambda: kernels.flash_attention(Q, K, K, softcap="on"),  # type: ignore[arg-type]
        TypeError,
        r"^softcap: expected a finite number above 0, or None, got 'on'",
    ),
    "attention-block-size-type": (
        lambda: kernels.flash_attention(
            Q,
            K,
            K,
            block_mask=LSE > 0,
            block_size=128,  # type: ignore[arg-type]
        ),
        ValueError,
        r"^block_size: expected \(queries, keys\), each a multiple of 128, got 128",
    ),
    "attention-block-size-float": (
        lambda: kernels.flash_attention(
            Q,
            K,
            K,
            block_mask=LSE > 0,
            block_size=(128.0, 128),  # type: ignore[arg-type]
        ),
        ValueError,
        r"^block_size: expected \(queries, keys\), each a multiple of 128, got \(128.0, 128\)",
    ),
    "sdpa-heads": (
        lambda: kernels.scaled_dot_product_attention(
            Q.transpose(1, 2), K.transpose(1, 2), K.transpose(1, 2)
        ),
        ValueError,
        r"^key: expected 4 heads.*got 2.*enable_gqa=True",
    ),
    "varlen-rank": (lambda: varlen(q=Q), ValueError, r"^q: expected 3 dim.*tokens.*got 4"),
    "varlen-lengths": (
        lambda: varlen(cu_k=CU.long()),
        ValueError,
        r"^cu_seqlens_k: expected dtype int32, got int64; convert",
    ),
    "varlen-batch": (
        lambda: varlen(cu_k=CU[:1]),
        ValueError,
        r"^cu_seqlens_k: expected 2 entries as cu_seqlens_q has, got 1",
    ),
    "varlen-longest": (
        lambda: varlen(longest=torch.tensor(8)),
        ValueError,
        r"^max_seqlen_q: expected the longest.*int, got tensor\(8\).*item",
    ),
    "varlen-heads": (
        lambda: varlen(k=Q[0, :, :3], v=Q[0, :, :3]),
        ValueError,
        r"^k: .*divides the 4 of q, got 3; layout is \(tokens",
    ),
    "kvcache-rank": (
        lambda: decode(k=K[0]),
        ValueError,
        r"^k_cache: expected 4 dim.*seqlen_cache.*got 3",
    ),
    "kvcache-dtype": (
        lambda: decode(v=K.bfloat16()),
        ValueError,
        r"^v_cache: .*float16.*bfloat16.*\.to\(",
    ),
    "kvcache-batch": (
        lambda: decode(k=K[:1], v=K[:1]),
        ValueError,
        r"^k_cache: expected batch 2.*got 1",
    ),
    "kvcache-heads": (
        lambda: decode(k=Q[:, :, :3], v=Q[:, :, :3]),
        ValueError,
        r"^k_cache: .*divides the 4 of q, got 3; layout is \(batch, seqlen_cache",
    ),
    "kvcache-lengths": (
        lambda: decode(cache_seqlens=LENGTHS.long()),
        ValueError,
        r"^cache_seqlens: expected dtype int32, got int64; convert",
    ),
    "kvcache-lengths-list": (
        lambda: decode(cache_seqlens=[3, 8]),
        TypeError,
        r"^cache_seqlens: expected an int32 tensor.*got \[3, 8\]",
    ),
    "kvcache-lengths-batch": (
        lambda: decode(cache_seqlens=LENGTHS[:1]),
        ValueError,
        r"^cache_seqlens: expected 2 entries as q has sequences, got 1",
    ),
    "kvcache-page-size": (
        lambda: decode(k=PAGES[:, :12], v=PAGES[:, :12], block_table=TABLE),
        ValueError,
        r"^k_cache: expected a page_size.*power of two from 16 on, got 12.*num_pages",
    ),
    "kvcache-pages": (
        lambda: decode(k=PAGES, v=PAGES[:4], block_table=TABLE),
        ValueError,
        r"^v_cache: expected as many pages.*got 4 and 5",
    ),
    "kvcache-table": (
        lambda: decode(k=PAGES, v=PAGES, block_table=TABLE[0]),
        ValueError,
        r"^block_table: expected 2 dim.*max_pages.*got 1",
    ),
    "kvcache-rows-and-pages": (
        lambda: decode(k=PAGES, v=PAGES, block_table=TABLE, cache_batch_idx=LENGTHS),
        ValueError,
        r"^cache_batch_idx: expected None with block_table",
    ),
    "kvcache-splits": (
        lambda: decode(num_splits=-1),
        ValueError,
        r"^num_splits: expected 1 to 128, or 0 to have it chosen, got -1",
    ),
    "kvcache-k-alone": (
        lambda: decode(k_new=Q[:, :1, :2]),
        ValueError,
        r"^v: expected both k and v or neither, got None",
    ),
    "kvcache-k-shape": (
        lambda: decode(k_new=Q[:, :1], v_new=Q[:, :1], cache_seqlens=3),
        ValueError,
        r"^k: expected shape \(2, 1, 2, 64\) as q and k_cache ask for, got \(2, 1, 4, 64\)",
    ),
    "kvcache-full": (
        lambda: decode(k_new=K[:, :1], v_new=K[:, :1]),
        ValueError,
        r"^cache_seqlens: expected how many keys.*got None",
    ),
    "kvcache-rotary-alone": (
        lambda: decode(rotary_cos=A.new_empty(8, 32), rotary_sin=A.new_empty(8, 32)),
        ValueError,
        r"^rotary_cos: expected None without new keys",
    ),
    "kvcache-rotary-positions": (
        lambda: decode(rotary_cos=A.new_empty(7, 32), rotary_sin=A.new_empty(7, 32)),
        ValueError,
        r"^rotary_cos: expected 8 positions at least.*at most 32 angles, got \(7, 32\)",
    ),
    "kvcache-rotary-half": (
        lambda: decode(rotary_cos=A.new_empty(8, 32)),
        TypeError,
        r"^rotary_sin: expected a torch.Tensor.*positions.*NoneType",
    ),
    "kvcache-scale": (
        lambda: decode(k_scale=torch.ones(())),
        ValueError,
        r"^k_scale: expected None unless the caches are float8.*k_cache is float16",
    ),
    "kvcache-scale-float": (
        lambda: decode(k=K.to(FP8), v=K.to(FP8), v_scale=0.5),
        TypeError,
        r"^v_scale: expected a float32 tensor.*\(2,\).*got float; torch\.tensor",
    ),
    "kvcache-scale-shape": (
        lambda: decode(k=K.to(FP8), v=K.to(FP8), v_scale=torch.ones(4)),
        ValueError,
        r"^v_scale: expected a float32 tensor of shape \(\) or \(2,\).*got float32.*\(4,\)",
    ),
    "kvcache-fp8-mixed": (
        lambda: decode(k=K.to(FP8), v=K.to(torch.float8_e4m3fnuz)),
        ValueError,
        r"^v_cache: expected dtype torch\.float8_e4m3fn as k_cache has.*fnuz",
    ),
    "kvcache-fp8-heads": (
        lambda: decode(k=Q[:, :, :3].to(FP8), v=Q[:, :, :3].to(FP8)),
        ValueError,
        r"^k_cache: .*divides the 4 of q, got 3",
    ),
    "kvcache-softcap": (
        lambda: decode(softcap=-1.0),
        ValueError,
        r"^softcap: expected a finite number above 0",
    ),
    "kvcache-slopes": (
        lambda: decode(alibi_slopes=torch.ones(3)),
        ValueError,
        r"^alibi_slopes: expected shape \(4,\) or \(2, 4\).*got \(3,\)",
    ),
    "kvcache-gradient": (
        lambda: decode(q=Q.clone().requires_grad_()),
        NotImplementedError,
        r"^q: expected no gradient.*torch\.no_grad\(\)",
    ),
    "kvcache-cpu": (decode, ValueError, r"^q: expected a tensor on a GPU.*cpu.*\.cuda\(\)"),
    "matmul-no-tensor": (lambda: kernels.matmul(A, None), TypeError, r"^b: .*NoneType"),
    "matmul-rank": (lambda: kernels.matmul(Q, B), ValueError, r"^a: expected 2 dim.*got 4"),
    "matmul-dtype": (lambda: kernels.matmul(A.int(), B), ValueError, r"^a: .*float16.*int32"),
    "matmul-mixed": (lambda: kernels.matmul(A, B.float()), ValueError, r"^b: .*float16.*float32"),
    "matmul-inner": (
        lambda: kernels.matmul(A, B.t()),
        ValueError,
        r"^b: expected 6 rows.*b\.t\(\)",
    ),
    "matmul-bias": (
        lambda: kernels.matmul(A, B, bias=A[0]),
        ValueError,
        r"^bias: expected 8 values.*got 6",
    ),
    "matmul-activation": (
        lambda: kernels.matmul(A, B, activation="tanh"),
        ValueError,
        r"^activation: .*relu, gelu, silu.*'tanh'",
    ),
    "matmul-out": (
        lambda: kernels.matmul(A, B, out=A),
        ValueError,
        r"^out: expected shape \(4, 8\), got \(4, 6\)",
    ),
    "matmul-out-shared": (
        lambda: kernels.matmul(A, B, out=A.new_empty(1, 8).expand(4, 8)),
        ValueError,
        r"^out: expected memory of its own.*shape \(4, 8\) with strides \(0, 1\); pass out.cont",
    ),
    "matmul-out-gradient": (
        lambda: kernels.matmul(A, B, out=A.new_empty(4, 8, requires_grad=True)),
        NotImplementedError,
        r"^out: expected None where a gradient is asked for",
    ),
    "decode-append-shared": (
        lambda: decode(
            k=K[:1].expand(2, -1, -1, -1), k_new=K[:, :1], v_new=K[:, :1], cache_seqlens=LENGTHS
        ),
        ValueError,
        r"^k_cache: expected memory of its own.*strides \(0, 128, 64, 1\)",
    ),
    "matmul-residual": (
        lambda: kernels.matmul(A, B, residual=B),
        ValueError,
        r"^residual: expected shape \(4, 8\), got \(6, 8\)",
    ),
    "matmul-residual-dtype": (
        lambda: kernels.matmul(A, B, residual=torch.empty(4, 8)),
        ValueError,
        r"^residual: expected dtype torch.float16 as a has, got torch.float32; convert",
    ),
    "fp8-mixed": (lambda: kernels.matmul(A8, B), ValueError, r"^b: expected dtype .*e4m3fn.*as a"),
    "fp8-flavour": (lambda: kernels.matmul(A.to(torch.float8_e5m2), B), ValueError, r"^a: .*e5m2"),
    "fp8-scale-number": (
        lambda: kernels.matmul(A8, B8, a_scale=0.5),
        TypeError,
        r"^a_scale: expected a torch.Tensor of fp32 scales, got float; wrap",
    ),
    "fp8-scale-dtype": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones(8, dtype=HALF)),
        ValueError,
        r"^b_scale: expected dtype float32, got float16; convert",
    ),
    "fp8-scale-of-a": (
        lambda: kernels.matmul(A8, B8, a_scale=torch.ones(6)),
        ValueError,
        r"^a_scale: expected shape \(\).*\(4,\) for rows or \(4, 1\) for blocks.*; got \(6,\)",
    ),
    "fp8-scale-of-b": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones(8, 1)),
        ValueError,
        r"^b_scale: expected shape \(\).*\(8,\) for columns or \(1, 1\).*; got \(8, 1\)",
    ),
    "fp8-out-dtype": (
        lambda: kernels.matmul(A8, B8, out_dtype=torch.float8_e4m3fn),
        ValueError,
        r"^out_dtype: expected torch.bfloat16.*got torch.float8_e4m3fn",
    ),
    "fp8-bias": (
        lambda: kernels.matmul(A8, B8, bias=torch.zeros(8, dtype=HALF)),
        ValueError,
        r"^bias: expected the output's dtype torch.bfloat16, got torch.float16; convert",
    ),
    "fp8-gradient": (
        lambda: kernels.matmul(A8, B8, b_scale=torch.ones((), requires_grad=True)),
        NotImplementedError,
        r"^a: expected no gradient.*torch\.no_grad",
    ),
    "fp8-scales-of-halves": (
        lambda: kernels.matmul(A, B, a_scale=torch.ones(())),
        ValueError,
        r"^a_scale: expected None where a is no fp8 tensor, got a of torch.float16; convert",
    ),
    "fp8-out-dtype-of-halves": (
        lambda: kernels.matmul(A, B, out_dtype=torch.float32),
        ValueError,
        r"^out_dtype: expected None where a is no fp8 tensor.*drop out_dtype",
    ),
    "grouped-rank": (lambda: grouped(b=B), ValueError, r"^b: expected 3 dim.*groups.*got 2"),
    "grouped-inner": (
        lambda: grouped(b=B[None].transpose(1, 2)),
        ValueError,
        r"^b: expected 6 rows a group.*transpose\(1, 2\)",
    ),
    "grouped-offsets": (
        lambda: grouped(offsets=CU.long()),
        ValueError,
        r"^group_offsets: expected dtype int32, got int64; convert",
    ),
    "grouped-groups": (
        lambda: grouped(offsets=CU[:1]),
        ValueError,
        r"^group_offsets: expected 2 entries, one more than b has groups, got 1; start",
    ),
    "grouped-device": (
        lambda: grouped(offsets=CU.to("meta")),
        ValueError,
        r"^group_offsets: expected device cpu as a has, got meta; move",
    ),
    "matmul-gradient": (
        lambda: kernels.matmul(A.clone().requires_grad_(), B, out=torch.empty(4, 8, dtype=HALF)),
        NotImplementedError,
        r"^out: expected None where a gradient.*torch\.no_grad",
    ),
    "backward-dout": (
        lambda: kernels.flash_attention_backward(K, Q, K, K, Q, LSE),
        ValueError,
        r"^dout: expected shape \(2, 8, 4, 64\) as q and v ask for, got \(2, 8, 2, 64\)",
    ),
    "backward-lse": (
        lambda: kernels.flash_attention_backward(Q, Q, K, K, Q, LSE.transpose(1, 2)),
        ValueError,
        r"^lse: expected contiguous \(2, 4, 8\) as flash_attention returns it, got \(2, 8, 4\)",
    ),
    "matmul-cpu": (lambda: kernels.matmul(A, B), ValueError, r"^a: expected a tensor on a GPU"),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_names_argument_expectation_and_remedy(
    mistake: tuple[Callable[[], Any], type[Exception], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call, error, message = mistake
    monkeypatch.setattr("kernels.targets.accepts_cpu_tensors", lambda: False)
    with pytest.raises(error, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)

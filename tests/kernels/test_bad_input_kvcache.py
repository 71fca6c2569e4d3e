"""Every wrong argument of decoding over a cache is one error that names it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels
from tests.kernels.mistakes import Mistake, told

HALF = torch.float16
Q = torch.empty(2, 8, 4, 64, dtype=HALF)
K = torch.empty(2, 8, 2, 64, dtype=HALF)
A = torch.empty(4, 6, dtype=HALF)
FP8 = torch.float8_e4m3fn
LENGTHS = torch.tensor([3, 8], dtype=torch.int32)
PAGES = torch.empty(5, 16, 2, 64, dtype=HALF)
TABLE = torch.zeros(2, 4, dtype=torch.int32)


def decode(
    q: Any = Q, k: Any = K, v: Any = K, k_new: Any = None, v_new: Any = None, **options: Any
) -> Any:
    return kernels.flash_attention_kvcache(q, k, v, k_new, v_new, **options)


STARTS = torch.tensor([0, 3, 8], dtype=torch.int32)
PACKED = {"cu_seqlens_q": STARTS, "max_seqlen_q": 5}


MISTAKES: dict[str, Mistake] = {
    "kvcache-packed-rank": (
        lambda: decode(**PACKED),
        ValueError,
        r"^q: expected 3 dim.*\(tokens, heads, head_dim\).*got 4",
    ),
    "kvcache-packed-batch": (
        lambda: decode(q=Q[0], cu_seqlens_q=STARTS[:2], max_seqlen_q=5),
        ValueError,
        r"^k_cache: expected batch 1.*got 2",
    ),
    "kvcache-packed-dtype": (
        lambda: decode(q=Q[0], cu_seqlens_q=STARTS.long(), max_seqlen_q=5),
        ValueError,
        r"^cu_seqlens_q: expected dtype int32, got int64; convert",
    ),
    "kvcache-packed-longest": (
        lambda: decode(q=Q[0], cu_seqlens_q=STARTS),
        ValueError,
        r"^max_seqlen_q: expected the longest sequence as an int, got None",
    ),
    "kvcache-packed-new": (
        lambda: decode(q=Q[0], k_new=K[0], v_new=K[0], cache_seqlens=LENGTHS, **PACKED),
        ValueError,
        r"^k: expected 4 dim.*\(batch, seqlen_new, kv_heads, head_dim\).*got 3",
    ),
    "kvcache-chunk": (
        lambda: decode(attention_chunk=2.5),
        ValueError,
        r"^attention_chunk: expected how many keys a chunk has, or None, got 2.5",
    ),
    "kvcache-new-bounds-alone": (
        lambda: decode(cu_seqlens_k_new=STARTS),
        ValueError,
        r"^cu_seqlens_k_new: expected None without k and v, got a tensor",
    ),
    "kvcache-new-bounds-dtype": (
        lambda: decode(
            k_new=K[0], v_new=K[0], cache_seqlens=LENGTHS, cu_seqlens_k_new=STARTS.long()
        ),
        ValueError,
        r"^cu_seqlens_k_new: expected dtype int32, got int64; convert",
    ),
    "kvcache-new-bounds-device": (
        lambda: decode(
            k_new=K[0], v_new=K[0], cache_seqlens=LENGTHS, cu_seqlens_k_new=STARTS.to("meta")
        ),
        ValueError,
        r"^cu_seqlens_k_new: expected device cpu as q has, got meta; move",
    ),
    "kvcache-new-bounds-batch": (
        lambda: decode(k_new=K[0], v_new=K[0], cache_seqlens=LENGTHS, cu_seqlens_k_new=STARTS[:2]),
        ValueError,
        r"^cu_seqlens_k_new: expected 3 entries, one more than q has sequences, got 2",
    ),
    "kvcache-new-packed-rank": (
        lambda: decode(k_new=K, v_new=K, cache_seqlens=LENGTHS, cu_seqlens_k_new=STARTS),
        ValueError,
        r"^k: expected 3 dim.*\(tokens_new, kv_heads, head_dim\).*got 4",
    ),
    "kvcache-new-packed-shape": (
        lambda: decode(k_new=K[0], v_new=K[0, :4], cache_seqlens=8, cu_seqlens_k_new=STARTS),
        ValueError,
        r"^v: expected shape \(8, 2, 64\) as q and v_cache ask for, got \(4, 2, 64\)",
    ),
    "kvcache-new-packed-full": (
        lambda: decode(k_new=K[0], v_new=K[0], cu_seqlens_k_new=STARTS),
        ValueError,
        r"^cache_seqlens: expected how many keys.*got None",
    ),
    "kvcache-packed-rotary": (
        lambda: decode(
            q=Q[0], rotary_cos=A.new_empty(8, 32), rotary_sin=A.new_empty(8, 32), **PACKED
        ),
        ValueError,
        r"^rotary_cos: expected None without new keys, got a tensor; pass k and v",
    ),
    "kvcache-longest-alone": (
        lambda: decode(max_seqlen_q=5),
        ValueError,
        r"^max_seqlen_q: expected None without cu_seqlens_q, got 5",
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
    "kvcache-causal": (
        lambda: decode(causal=torch.ones(1)),
        TypeError,
        r"^causal: expected True or False, got a tensor",
    ),
    "kvcache-device": (
        lambda: decode(k=K.to("meta")),
        ValueError,
        r"^k_cache: expected device cpu as q has, got meta; move",
    ),
    "kvcache-lengths-device": (
        lambda: decode(cache_seqlens=LENGTHS.to("meta")),
        ValueError,
        r"^cache_seqlens: expected device cpu as q has, got meta; move",
    ),
    "kvcache-table-device": (
        lambda: decode(k=PAGES, v=PAGES, block_table=TABLE.to("meta")),
        ValueError,
        r"^block_table: expected device cpu as q has, got meta; move",
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
    "kvcache-lengths-bool": (
        lambda: decode(cache_seqlens=True),
        TypeError,
        r"^cache_seqlens: expected an int32 tensor.*one int for all.*got True",
    ),
    "kvcache-lengths-batch": (
        lambda: decode(cache_seqlens=LENGTHS[:1]),
        ValueError,
        r"^cache_seqlens: expected 2 entries as q has sequences, got 1",
    ),
    "kvcache-leftpad": (
        lambda: decode(cache_leftpad=LENGTHS.long()),
        ValueError,
        r"^cache_leftpad: expected dtype int32, got int64; convert",
    ),
    "kvcache-leftpad-int": (
        lambda: decode(cache_leftpad=3),
        TypeError,
        r"^cache_leftpad: expected a torch.Tensor of shape \(batch,\), got int",
    ),
    "kvcache-leftpad-rank": (
        lambda: decode(cache_leftpad=LENGTHS[0]),
        ValueError,
        r"^cache_leftpad: expected 1 dimensions \(batch,\), got 0",
    ),
    "kvcache-leftpad-batch": (
        lambda: decode(q=Q[0], cache_leftpad=LENGTHS[:1], **PACKED),
        ValueError,
        r"^cache_leftpad: expected 2 entries as q has sequences, got 1",
    ),
    "kvcache-leftpad-device": (
        lambda: decode(cache_leftpad=LENGTHS.to("meta")),
        ValueError,
        r"^cache_leftpad: expected device cpu as q has, got meta; move",
    ),
    "kvcache-leftpad-sparse": (
        lambda: decode(cache_leftpad=LENGTHS.to_sparse()),
        ValueError,
        r"^cache_leftpad: expected a dense tensor, got layout torch.sparse_coo",
    ),
    "kvcache-page-size": (
        lambda: decode(k=PAGES[:, :0], v=PAGES[:, :0], block_table=TABLE),
        ValueError,
        r"^k_cache: expected a page_size of at least 1, got 0.*num_pages",
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
    "kvcache-no-pages": (
        lambda: decode(k=PAGES, v=PAGES, block_table=TABLE[:0], cache_batch_idx=LENGTHS),
        ValueError,
        r"^block_table: expected a row of pages at least, got none; layout is",
    ),
    "kvcache-q-scale": (
        lambda: decode(k=K.to(FP8), v=K.to(FP8), q_scale=torch.ones(2)),
        ValueError,
        r"^q_scale: expected None unless q is float8.*and q is float16; multiply q by it",
    ),
    "kvcache-q-in-fp8": (
        lambda: decode(q=Q.to(FP8)),
        ValueError,
        r"^q: expected the dtype of k_cache, which is float16, got float8_e4m3fn; multiply it by",
    ),
    "kvcache-q-scale-shape": (
        lambda: decode(q=Q.to(FP8), k=K.to(FP8), v=K.to(FP8), q_scale=torch.ones(2, 4)),
        ValueError,
        r"^q_scale: expected a float32 tensor of shape \(\), \(2,\) or \(2, 2\).*\(2, 4\)",
    ),
    "kvcache-new-in-16-bits": (
        lambda: decode(q=Q.to(FP8), k=K.to(FP8), v=K.to(FP8), k_new=K, v_new=K, cache_seqlens=3),
        ValueError,
        r"^k: expected dtype torch.float8_e4m3fn as q has, got torch.float16; divide it by a scale",
    ),
    "kvcache-qv-shape": (
        lambda: decode(qv=Q[..., :9]),
        ValueError,
        r"^qv: expected shape \(2, 8, 4, 64\), that of q with the head dim of v_cache, got \(2,",
    ),
    "kvcache-qv-dtype": (
        lambda: decode(qv=Q.bfloat16()),
        ValueError,
        r"^qv: expected dtype torch.float16 as q has, got torch.bfloat16; convert",
    ),
    "kvcache-qv-fp8": (
        lambda: decode(k=K.to(FP8), v=K.to(FP8), qv=Q),
        NotImplementedError,
        r"^qv: expected None with an fp8 cache, got a tensor; keep the caches in 16 bits",
    ),
    "kvcache-wide-values": (
        lambda: decode(v=K.new_empty(2, 8, 2, 520)),
        ValueError,
        r"^v_cache: expected head_dim 1 to 512, got 520",
    ),
    "kvcache-rotary-lengths": (
        lambda: decode(rotary_seqlens=LENGTHS[:1]),
        ValueError,
        r"^rotary_seqlens: expected 2 entries as q has sequences, got 1",
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
        r"^v_scale: expected a float32 tensor of shape \(\), \(2,\) or \(2, 2\).*float32.*\(4,\)",
    ),
    "kvcache-e5m2": (
        lambda: decode(k=K.to(torch.float8_e5m2), v=K.to(torch.float8_e5m2)),
        ValueError,
        r"^k_cache: expected the dtype of q, float8_e4m3fn or .*got float8_e5m2; convert",
    ),
    "kvcache-fp8-mixed": (
        lambda: decode(k=K.to(FP8), v=K.to(torch.float8_e4m3fnuz)),
        ValueError,
        r"^v_cache: expected dtype torch\.float8_e4m3fn as k_cache has.*fnuz; divide it by a scale",
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
    "kvcache-scale-gradient": (
        lambda: decode(k=K.to(FP8), v=K.to(FP8), v_scale=torch.ones((), requires_grad=True)),
        NotImplementedError,
        r"^v_scale: expected no gradient.*torch\.no_grad\(\)",
    ),
    "kvcache-rotary-gradient": (
        lambda: decode(
            k_new=K[:, :1],
            v_new=K[:, :1],
            cache_seqlens=3,
            rotary_cos=A.new_empty(8, 32).requires_grad_(),
            rotary_sin=A.new_empty(8, 32),
        ),
        NotImplementedError,
        r"^rotary_cos: expected no gradient.*torch\.no_grad\(\)",
    ),
    "decode-append-to-one-cache": (
        lambda: decode(k=K, v=K, k_new=K[:, :1].clone(), v_new=K[:, :1].clone(), cache_seqlens=3),
        ValueError,
        r"^v_cache: expected memory of its own, got that of k_cache, which is read.*as v_cache$",
    ),
    "decode-append-shared": (
        lambda: decode(
            k=K[:1].expand(2, -1, -1, -1), k_new=K[:, :1], v_new=K[:, :1], cache_seqlens=LENGTHS
        ),
        ValueError,
        r"^k_cache: expected memory of its own.*strides \(0, 128, 64, 1\)",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_names_argument_expectation_and_remedy(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(mistake, monkeypatch)

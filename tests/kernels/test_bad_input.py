"""Every wrong argument of attention is one error: what was expected, what came, the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import kernels
from tests.kernels.mistakes import Mistake, told

HALF = torch.float16
Q = torch.empty(2, 8, 4, 64, dtype=HALF)
K = torch.empty(2, 8, 2, 64, dtype=HALF)
LSE = torch.empty(2, 4, 8)


def lower_right(rows: int, columns: int) -> Any:
    """Torch's own mask. With it comes torch's compiler: whoever collects need not wait."""
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(rows, columns)


def attend(q: Any = Q, k: Any = K, v: Any = K) -> Any:
    return kernels.flash_attention(q, k, v)


def decode(
    q: Any = Q, k: Any = K, v: Any = K, k_new: Any = None, v_new: Any = None, **options: Any
) -> Any:
    return kernels.flash_attention_kvcache(q, k, v, k_new, v_new, **options)


def sdpa(**options: Any) -> Any:
    q = Q.transpose(1, 2)
    return kernels.scaled_dot_product_attention(q, q, q, **options)


MISTAKES: dict[str, Mistake] = {
    "attention-no-tensor": (lambda: attend(q=[1]), TypeError, r"^q: expected a torch.Tensor.*list"),
    "attention-sparse": (
        lambda: attend(q=Q.to_sparse()),
        ValueError,
        r"^q: expected a dense tensor, got layout torch.sparse_coo.*to_dense",
    ),
    "attention-nested": (
        lambda: attend(q=torch.nested.nested_tensor([Q[0], Q[0, :4]], layout=torch.jagged)),
        ValueError,
        r"^q: expected a dense tensor, got a nested one; pad it with.*to_padded_tensor\(q, 0.0\)",
    ),
    "attention-bias-sparse": (
        lambda: kernels.flash_attention(Q, K, K, bias=LSE.to_sparse()),
        ValueError,
        r"^bias: expected a dense tensor, got layout torch.sparse_coo.*to_dense",
    ),
    "attention-sinks-sparse": (
        lambda: kernels.flash_attention(Q, K, K, sinks=LSE[0, :, 0].to_sparse()),
        ValueError,
        r"^sinks: expected a dense tensor, got layout torch.sparse_coo.*to_dense",
    ),
    "attention-rank": (
        lambda: attend(k=K[0]),
        ValueError,
        r"^k: expected 4 dim.*got 3.*\(8, 2, 64",
    ),
    "attention-dtype": (
        lambda: attend(q=Q.double()),
        ValueError,
        r"^q: .*float16.*float64.*\.to\(torch.float32\)$",
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
        lambda: attend(v=torch.empty(2, 8, 2, 520, dtype=HALF)),
        ValueError,
        r"^v: expected head_dim 1 to 512, got 520",
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
    "attention-chunk": (
        lambda: kernels.flash_attention(Q, K, K, attention_chunk=-32),
        ValueError,
        r"^attention_chunk: expected how many keys a chunk has, or None, got -32",
    ),
    "attention-chunk-bias": (
        lambda: kernels.flash_attention(Q, K, K, attention_chunk=8, bias=LSE[0, 0]),
        ValueError,
        r"^bias: expected None beside attention_chunk, got Tensor; hide other chunks by it",
    ),
    "attention-softcap": (
        lambda: kernels.flash_attention(Q, K, K, softcap=-1.0),
        ValueError,
        r"^softcap: expected a finite number above 0, or None, got -1.0",
    ),
    "attention-scale": (
        lambda: kernels.flash_attention(Q, K, K, softmax_scale="a"),
        TypeError,
        r"^softmax_scale: expected a finite number, or None for 1 / sqrt\(head_dim\), got 'a'",
    ),
    "attention-scale-infinite": (
        lambda: kernels.flash_attention(Q, K, K, softmax_scale=float("nan")),
        ValueError,
        r"^softmax_scale: expected a finite number, or None for 1 / sqrt.*, got nan",
    ),
    "sdpa-scale-infinite": (
        lambda: sdpa(scale=float("inf")),
        ValueError,
        r"^scale: expected a finite number, or None for.*, got inf",
    ),
    "attention-causal": (
        lambda: kernels.flash_attention(Q, K, K, causal="no"),
        TypeError,
        r"^causal: expected True or False, got 'no'",
    ),
    "attention-return-lse": (
        lambda: kernels.flash_attention(Q, K, K, return_lse="x"),
        TypeError,
        r"^return_lse: expected True or False, got 'x'",
    ),
    "attention-exact-gradients": (
        lambda: kernels.flash_attention(Q, K, K, exact_gradients=torch.tensor(True)),
        TypeError,
        r"^exact_gradients: expected True or False, got a tensor",
    ),
    "backward-exact-gradients": (
        lambda: kernels.flash_attention_backward(Q, Q, K, K, Q, LSE, exact_gradients="all"),
        TypeError,
        r"^exact_gradients: expected True or False, got 'all'",
    ),
    "sdpa-exact-gradients": (
        lambda: sdpa(exact_gradients="yes"),
        TypeError,
        r"^exact_gradients: expected True or False, got 'yes'",
    ),
    "sdpa-causal": (
        lambda: sdpa(is_causal="no"),
        TypeError,
        r"^is_causal: expected True or False, got 'no'",
    ),
    "attention-seed-bool": (
        lambda: kernels.flash_attention(Q, K, K, dropout_p=0.1, dropout_seed=True),
        TypeError,
        r"^dropout_seed: expected an int, an int64 tensor.*got bool",
    ),
    "attention-no-heads": (
        lambda: attend(q=Q[:, :, :0], k=K[:, :, :0], v=K[:, :, :0]),
        ValueError,
        r"^k: expected at least one head, got 0; layout is \(batch, seqlen",
    ),
    "attention-softcap-tensor": (
        lambda: kernels.flash_attention(Q, K, K, softcap=torch.ones(())),
        TypeError,
        r"^softcap: expected a finite number above 0, or None, got a tensor",
    ),
    "decode-splits-bool": (
        lambda: decode(num_splits=True),
        ValueError,
        r"^num_splits: expected 1 to \d+, or 0 to have it chosen, got True",
    ),
    "attention-slopes": (
        lambda: kernels.flash_attention(Q, K, K, alibi_slopes=LSE),
        ValueError,
        r"^alibi_slopes: expected shape \(4,\) or \(2, 4\) for q of 4 heads, got \(2, 4, 8\)",
    ),
    "attention-sinks": (
        lambda: kernels.flash_attention(Q, K, K, sinks=LSE[0, :, 0].double()),
        ValueError,
        r"^sinks: expected dtype float32, float16, bfloat16, got float64.*\.to\(torch.float32\)",
    ),
    "attention-fp8-dropout": (
        lambda: kernels.flash_attention(*[Q.to(torch.float8_e4m3fn)] * 3, dropout_p=0.1),
        NotImplementedError,
        r"^q: expected float16.*got torch.float8_e4m3fn; convert",
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
    "sdpa-mask-of-torch": (
        lambda: sdpa(attn_mask=lower_right(8, 9)),
        ValueError,
        r"^attn_mask: expected a causal mask of \(8, 8\) as query and key have, got .*\(8, 9\)",
    ),
    "attention-bias-of-torch": (
        lambda: kernels.flash_attention(Q, K, K, bias=lower_right(8, 8)),
        TypeError,
        r"^bias: expected a tensor of values, got torch's CausalBias.*causal=True",
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
        lambda: kernels.flash_attention(Q, K, K, dropout_p=None),
        TypeError,
        r"^dropout_p: expected a probability from 0 to 1, got None",
    ),
    "attention-softcap-type": (
        lambda: kernels.flash_attention(Q, K, K, softcap="on"),
        TypeError,
        r"^softcap: expected a finite number above 0, or None, got 'on'",
    ),
    "attention-block-size-type": (
        lambda: kernels.flash_attention(
            Q,
            K,
            K,
            block_mask=LSE > 0,
            block_size=128,
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
            block_size=(128.0, 128),
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
    "sdpa-batch": (
        lambda: kernels.scaled_dot_product_attention(Q, Q[:1].expand(3, -1, -1, -1), Q),
        ValueError,
        r"^key: expected batch axes that broadcast with \(2,\), got \(3,\)",
    ),
    "sdpa-rank": (
        lambda: kernels.scaled_dot_product_attention(Q, Q, LSE[0, 0]),
        ValueError,
        r"^value: expected \(\.\.\., heads, seqlen, head_dim\) or .*got shape \(8,\); reshape it",
    ),
    "sdpa-no-tensor": (
        lambda: kernels.scaled_dot_product_attention(Q, Q.numpy()[0], Q),
        TypeError,
        r"^key: expected a torch.Tensor of shape \(\.\.\., heads, seqlen, head_dim\).*got ndarray",
    ),
    "sdpa-mask-batch": (
        lambda: kernels.scaled_dot_product_attention(*[Q[None]] * 3, attn_mask=Q[[0, 0, 0]]),
        ValueError,
        r"^attn_mask: expected a shape that broadcasts to .*\(1, 2, 8, 4, 4\), got \(3, 8, 4, 64\)",
    ),
    "sdpa-nested": (
        lambda: kernels.scaled_dot_product_attention(torch.nested.nested_tensor([Q[0]]), Q, Q),
        ValueError,
        r"^query: expected a dense tensor, got a nested one",
    ),
    "kvcache-cpu": (decode, ValueError, r"^q: expected a tensor on a GPU.*cpu.*\.cuda\(\)"),
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
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_names_argument_expectation_and_remedy(
    mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(mistake, monkeypatch)

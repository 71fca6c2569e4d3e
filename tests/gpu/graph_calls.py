"""Every public operator on inputs that stay where they are, as CUDA graphs and compiled models call
it: other numbers come into the same memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import kernels

Tensors = dict[str, torch.Tensor]
ROWS = 300  # of queries; keys a few more


@dataclass(frozen=True)
class Call:
    """``run`` of the tensors that ``draw`` makes, whose values alone change from call to call.
    ``leaves`` are inputs whose gradients by ``dout`` are outputs too, ``written`` those that the
    call writes to. ``beside``: bytes it may take beside outputs, where more than all inputs."""

    draw: Callable[[], Tensors]
    run: Callable[[Tensors], Any]
    leaves: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    beside: int = 0

    def outputs(self, given: Tensors, compiled: Any = None) -> list[torch.Tensor]:
        """Of ``run``, or of what was compiled of it."""
        given = given | {name: given[name].detach().requires_grad_() for name in self.leaves}
        dout = given.pop("dout", None)
        found = (compiled or self.run)(given)
        outputs = [found] if isinstance(found, torch.Tensor) else list(found)
        if not self.leaves:
            return outputs
        leaves = [given[name] for name in self.leaves]
        gradients = torch.autograd.grad(outputs[0], leaves, dout)
        return [*(one.detach() for one in outputs), *gradients]


def _randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def _ends(total: int, inner: int = 3) -> torch.Tensor:
    cuts = torch.randint(total + 1, (inner,), device="cuda").sort().values
    return torch.nn.functional.pad(torch.nn.functional.pad(cuts, (1, 0)), (0, 1), value=total).int()


def attention(
    dtype: torch.dtype = torch.bfloat16,
    D: int = 128,
    S: int = ROWS,
    extra: str = "",
    **options: Any,
) -> Call:
    """With its gradients; ``extra`` names options that are tensors."""

    def draw() -> Tensors:
        found = {"q": _randn(2, S, 4, D, dtype=dtype), "dout": _randn(2, S, 4, D, dtype=dtype)}
        found |= {name: _randn(2, S + 40, 2, D, dtype=dtype) for name in "kv"}
        if "sinks" in extra:
            found["sinks"] = torch.randn(4, device="cuda")
        if "bias" in extra:
            found["bias"] = _randn(4, 1, S + 40, dtype=dtype)
        if "seed" in extra:
            found["dropout_seed"] = torch.randint(2**40, (1,), device="cuda")
        if "blocks" in extra:
            found["block_mask"] = _randn(1, 4, -(-S // 128), -(-(S + 40) // 128)) > 0.0
        return found

    def run(given: Tensors) -> Any:
        more = dict(given)
        first = [more.pop(name) for name in "qkv"]
        return kernels.flash_attention(*first, **more, **options, return_lse=True)

    wanted = ("q", "k", "v", *(name for name in ("sinks", "bias") if name in extra))
    # The gradient of a bias that broadcasts is summed from one of all scores, fp32.
    scores = 2 * 4 * S * (S + 40) * 4 if "bias" in extra else 0
    return Call(draw, run, wanted, beside=2 * scores)


def backward() -> Call:
    def draw() -> Tensors:
        return {name: _randn(2, ROWS, 2, 128) for name in ("q", "k", "v", "last")}

    def run(given: Tensors) -> Any:
        q, k, v = (given[name] for name in "qkv")
        out, lse = kernels.flash_attention(q, k, v, causal=True, return_lse=True)
        return kernels.flash_attention_backward(given["last"], q, k, v, out, lse, causal=True)

    return Call(draw, run)


def dropped_in() -> Call:
    def draw() -> Tensors:
        found = {name: _randn(2, 4, ROWS, 64) for name in ("query", "key", "value")}
        return found | {"attn_mask": _randn(ROWS, ROWS) > -1.0}

    return Call(draw, lambda given: kernels.scaled_dot_product_attention(**given))


def few_queries(D: int = 128, S: int = 4, keys: int = 2000) -> Call:
    """Without gradients these are decoded."""

    def draw() -> Tensors:
        return {"q": _randn(2, S, 8, D)} | {name: _randn(2, keys, 2, D) for name in "kv"}

    return Call(draw, lambda given: kernels.flash_attention(**given, causal=True, return_lse=True))


def packed(D: int = 128, extra: bool = False, used: bool = False, **options: Any) -> Call:
    """``extra``: sinks, which have a gradient, and a seed of dropout. ``used``: of each sequence
    the first rows alone."""

    def draw() -> Tensors:
        found = {"q": _randn(2 * ROWS, 4, D), "dout": _randn(2 * ROWS, 4, D)}
        found |= {name: _randn(2 * ROWS, 2, D) for name in "kv"}
        if extra:
            found["sinks"] = torch.randn(4, device="cuda")
            found["dropout_seed"] = torch.randint(2**40, (1,), device="cuda")
        if used:
            for name in ("seqused_q", "seqused_k"):
                found[name] = torch.randint(ROWS, (4,), device="cuda").int()
        # Of the buffer's last rows some are no sequence's.
        return found | {"ends": _ends(2 * ROWS - 30)}

    def run(given: Tensors) -> Any:
        more = dict(given)
        q, k, v, ends = (more.pop(name) for name in ("q", "k", "v", "ends"))
        return kernels.flash_attention_varlen(
            q, k, v, ends, ends, 2 * ROWS, 2 * ROWS, causal=True, **more, **options
        )

    return Call(draw, run, ("q", "k", "v", "sinks") if extra else ("q", "k", "v"))


def decoding(
    page: int = 0,
    new: int = 0,
    fp8: bool = False,
    splits: int = 0,
    packed: bool = False,
    padded: bool = False,
    **options: Any,
) -> Call:
    kind = torch.float8_e4m3fn if fp8 else torch.bfloat16
    pages = 4 * 512 // page if page else 4

    def draw() -> Tensors:
        found = {"q": _randn(4, max(1, new), 8, 128)}
        for name in ("k_cache", "v_cache"):
            found[name] = _randn(pages, page or 512, 2, 128).to(kind)
        found["cache_seqlens"] = torch.randint(1, 500, (4,), device="cuda").int()
        if padded:
            found["cache_leftpad"] = torch.randint(0, 400, (4,), device="cuda").int()
        if page:
            table = torch.randperm(pages, device="cuda").reshape(4, -1)
            found["block_table"] = table.int()
        if packed:
            found["q"] = _randn(60, 8, 128)
            starts = torch.randint(0, 57, (5,), device="cuda").sort().values
            found["cu_seqlens_q"] = starts.int()
            found["cu_seqlens_q"][0] = 0
        if packed and new:
            found["cu_seqlens_k_new"] = found["cu_seqlens_q"].clone()
        if new:
            shape = (60, 2, 128) if packed else (4, new, 2, 128)
            found |= {name: _randn(*shape) for name in "kv"}
            found |= {name: _randn(512, 32) for name in ("rotary_cos", "rotary_sin")}
        if fp8:
            found |= {f"{name}_scale": torch.rand(2, device="cuda") + 0.5 for name in "kv"}
        return found

    def run(given: Tensors) -> Any:
        more = dict(given)
        first = [more.pop(name) for name in ("q", "k_cache", "v_cache")]
        more |= {"max_seqlen_q": 60} if packed else {}
        return kernels.flash_attention_kvcache(
            *first, **more, causal=True, num_splits=splits, return_lse=True, **options
        )

    return Call(draw, run, written=("k_cache", "v_cache") if new else ())


def attention_fp8(D: int) -> Call:
    def draw() -> Tensors:
        found = {"q": _randn(2, ROWS, 4, D)} | {name: _randn(2, ROWS, 2, D) for name in "kv"}
        found = {name: one.to(torch.float8_e4m3fn) for name, one in found.items()}
        # Of heads, of sequences and heads, and of q by heads of k.
        shapes = {"v_scale": (2,), "k_scale": (2, 2), "q_scale": (2, 2)}
        scales = {name: torch.rand(each, device="cuda") + 0.5 for name, each in shapes.items()}
        return found | scales

    def run(given: Tensors) -> Any:
        return kernels.flash_attention(**given, causal=True, return_lse=True)

    return Call(draw, run)


def packed_fp8(D: int) -> Call:
    def draw() -> Tensors:
        found = {"q": _randn(2 * ROWS, 4, D)} | {name: _randn(2 * ROWS, 2, D) for name in "kv"}
        found = {name: one.to(torch.float8_e4m3fn) for name, one in found.items()}
        found["ends"] = _ends(2 * ROWS - 30)
        return found | {"k_scale": torch.rand(len(found["ends"]) - 1, 2, device="cuda") + 0.5}

    def run(given: Tensors) -> Any:
        more = dict(given)
        q, k, v, ends = (more.pop(name) for name in ("q", "k", "v", "ends"))
        longest = (2 * ROWS, 2 * ROWS)
        options = {"causal": True, "return_lse": True, **more}
        return kernels.flash_attention_varlen(q, k, v, ends, ends, *longest, **options)

    return Call(draw, run)


def product(
    M: int,
    N: int,
    K: int,
    dtype: torch.dtype = torch.bfloat16,
    gradients: bool = False,
    into: bool = False,
    **options: Any,
) -> Call:
    def draw() -> Tensors:
        found = {"a": _randn(M, K, dtype=dtype), "b": _randn(N, K, dtype=dtype), "bias": _randn(N)}
        found["bias"] = found["bias"].to(dtype)
        found |= {"dout": _randn(M, N, dtype=dtype)} if gradients else {}
        return found | ({"out": _randn(M, N, dtype=dtype)} if into else {})

    def run(given: Tensors) -> Any:
        more = dict(given)
        return kernels.matmul(more.pop("a"), more.pop("b").t(), **more, **options)

    # Not of the bias: inductor adds in another order than torch.
    leaves = ("a", "b") if gradients else ()
    return Call(draw, run, leaves, ("out",) if into else ())


def product_fp8(M: int = 300, N: int = 256, K: int = 512, blocks: bool = True) -> Call:
    """Scales of ``blocks``, or one a tensor."""

    def draw() -> Tensors:
        found = {"a": _randn(M, K), "b": _randn(N, K)}
        found = {name: one.to(torch.float8_e4m3fn) for name, one in found.items()}
        a_shape, b_shape = ((M, K // 128), (K // 128, N // 128)) if blocks else ((), ())
        scales = {"a_scale": torch.rand(a_shape, device="cuda")}
        return found | scales | {"b_scale": torch.rand(b_shape, device="cuda")}

    def run(given: Tensors) -> Any:
        return kernels.matmul(**given | {"b": given["b"].t()})

    return Call(draw, run)


def grouped() -> Call:
    def draw() -> Tensors:
        found = {"a": _randn(ROWS, 256), "b": _randn(4, 256, 128), "dout": _randn(ROWS, 128)}
        return found | {"ends": _ends(ROWS)}

    def run(given: Tensors) -> Any:
        return kernels.grouped_matmul(given["a"], given["b"], given["ends"])

    return Call(draw, run, ("a", "b"))


CALLS: dict[str, Call] = {
    "attention D64": attention(torch.float16, 64, causal=True),
    "attention D128": attention(S=1500, causal=True),
    "attention D128 short": attention(),
    "attention D256": attention(D=256, causal=True),
    "attention fp32": attention(torch.float32, 64, causal=True),
    "attention D128 window": attention(S=1500, causal=True, window_size=(300, 0)),
    "attention window": attention(D=64, causal=True, window_size=(100, 0)),
    "attention softcap sinks bias": attention(D=64, extra="sinks bias", softcap=5.0),
    "attention dropout blocks": attention(D=64, extra="seed blocks", dropout_p=0.2),
    "attention chunks": attention(S=1500, causal=True, attention_chunk=512),
    "attention few keys": attention(D=64, S=20, causal=True),
    "attention few queries": few_queries(),
    "attention backward": backward(),
    "attention in SDPA's place": dropped_in(),
    "attention packed": packed(),
    "attention packed, rows used": packed(used=True),
    "attention packed D256": packed(256, extra=True, softcap=5.0, dropout_p=0.2),
    "attention fp8": attention_fp8(128),
    "attention packed fp8": packed_fp8(128),
    "decoding": decoding(splits=1),
    "decoding paged, new keys": decoding(page=16, new=2, splits=3),
    "decoding, new keys": decoding(new=1, rotary_interleaved=False),
    "packed queries of a paged cache": decoding(page=16, packed=True, splits=3),
    "packed queries and new keys": decoding(page=16, packed=True, new=60),
    "decoding in fp8": decoding(page=64, fp8=True),
    "decoding behind padding": decoding(splits=3, padded=True),
    "matmul": product(500, 2048, 512, activation="gelu"),
    "matmul with gradients": product(500, 512, 256, gradients=True, activation="relu"),
    "matmul split K": product(8, 1024, 8192),
    "matmul one row": product(1, 4096, 4096),
    "matmul tf32": product(600, 1024, 512, torch.float32, allow_tf32=True),
    "matmul fp32": product(200, 256, 136, torch.float32),
    "matmul into out": product(500, 512, 256, into=True),
    "matmul 1000 cubed": product(1000, 1000, 1000),
    "matmul fp8": product_fp8(),
    "matmul fp8 large": product_fp8(4096, 4096, 512, blocks=False),
    "matmul fp8 split K": product_fp8(16, 512, 8192, blocks=False),
    "matmul fp8 split K of tiles": product_fp8(256, 256, 8192, blocks=False),
    "grouped_matmul": grouped(),
}

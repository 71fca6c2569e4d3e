"""What may be asked of attention's scores, as it comes from the user and as kernels take it."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch

from kernels.runtime import checks
from kernels.runtime.addressing import near

from .addressing import HeadStrides, near_bias
from .scores import ScoreOptions


@dataclass(frozen=True, eq=False)
class Options:
    """Checked: ``softcap`` above 0, ``slopes`` (batch, heads) and ``sinks`` (heads,) in fp32;
    ``bias`` expands to (batch, heads, seqlen_q, seqlen_k), of bool where it hides.
    ``seed`` is int64 (1,). ``block_mask`` is (batch or 1, heads or 1,
    blocks of queries, blocks of keys) of bool. ``exact_gradients`` asks nothing of scores: it
    says that log-sum-exps have marks (common/numerics/heavy_rows.py)."""

    softcap: float | None = None
    slopes: torch.Tensor | None = None
    sinks: torch.Tensor | None = None
    dropout: float | None = None
    seed: torch.Tensor | None = None
    exact_gradients: bool = False
    bias: torch.Tensor | None = None
    block_mask: torch.Tensor | None = None
    block_rows: int | None = None
    block_columns: int | None = None

    @property
    def plain(self) -> bool:
        others = (self.sinks, self.dropout, self.block_mask)
        return not self.modifies and all(one is None for one in others)

    @property
    def modifies(self) -> bool:
        """Whether a score is more than a scaled product."""
        return any(one is not None for one in (self.softcap, self.slopes, self.bias))

    @property
    def crowded(self) -> bool:
        """Whether what costs most registers is asked."""
        return self.dropout is not None or self.block_mask is not None

    @property
    def biased_blocks(self) -> bool:
        return self.bias is not None and self.block_mask is not None

    @property
    def alone(self) -> str | None:
        """What is asked of scores, where it is one thing."""
        kinds = ("softcap", "slopes", "sinks", "dropout", "bias", "block_mask")
        asked = [kind for kind in kinds if getattr(self, kind) is not None]
        return asked[0] if len(asked) == 1 else None

    def uneven(self, scores: tuple[int, int, int, int]) -> str | None:
        """Of a bias that no loads of 16 bytes fetch for ``scores`` of this shape ``fp32`` or
        ``short``, after its values, and ``row`` where one value serves all keys of a row."""
        if self.bias is None:
            return None
        bias = near_bias(self.bias, scores)
        steps = bias.expand(scores).stride()
        counts = (bias.data_ptr(), *scores[2:], *(n for n in steps if n != 1))
        if steps[3] and not any(n % 16 for n in counts):
            return None
        if not steps[3]:
            return "row"
        return "fp32" if bias.dtype == torch.float32 else "short"

    def alone_in_gradients(self, scores: tuple[int, int, int, int]) -> str | None:
        """As ``alone``; of a bias for ``scores`` of this shape what it costs the gradients' loops
        in registers: ``bias``, ``bias_fp32``, or ``bias_uneven`` where it is ``uneven``."""
        if self.alone != "bias" or self.bias is None:
            return self.alone
        if self.uneven(scores):
            return "bias_uneven"
        return "bias_fp32" if self.bias.dtype == torch.float32 else "bias"

    def arguments(self, scale: float, scores: tuple[int, int, int, int]) -> ScoreOptions:
        """As every kernel takes them, for ``scores`` of this shape."""
        slopes = near(self.slopes)
        strides = HeadStrides(*((None, None) if slopes is None else slopes.stride()))
        bias = None if self.bias is None else near_bias(self.bias, scores)
        bias_strides = (None,) * 4 if bias is None else bias.expand(scores).stride()
        hides = bias is not None and bias.dtype == torch.bool
        chances: tuple[Any, Any, Any] = (None, None, None)
        if self.dropout is not None:
            keep = 0.0 if self.dropout == 1.0 else 1.0 / (1.0 - self.dropout)
            chances = (self.seed, min(round(self.dropout * 2**32), 2**32 - 1) - 2**31, keep)
        return ScoreOptions(
            scale if self.modifies else None,
            self.softcap,
            slopes,
            strides,
            self.sinks,
            *chances,
            # Viewed here, inside of the operator: inductor cannot view bool as another type.
            bias.view(torch.uint8) if bias is not None and hides else bias,
            HeadStrides(*bias_strides),
        )


def checked(
    q: torch.Tensor,
    scores: tuple[int, int, int, int],
    softcap: Any = None,
    slopes: Any = None,
    sinks: Any = None,
    dropout: Any = 0.0,
    seed: Any = None,
    bias: Any = None,
    bias_name: str = "bias",
    block_mask: Any = None,
    block_size: Any = (128, 128),
    exact_gradients: Any = True,
) -> tuple[Any, ...]:
    """What ``Options`` takes, for ``scores`` of shape (batch, heads, seqlen_q, seqlen_k)."""
    by_head = scores[:2]
    checks.no_tangent(sinks=sinks, **{bias_name: bias})
    if softcap is not None:
        # 0 is what FlashAttention's callers write for none.
        softcap = checks.number("softcap", softcap, "a finite number above 0, or None") or None
    if softcap is not None and not 0.0 < softcap < math.inf:
        raise ValueError(f"softcap: expected a finite number above 0, or None, got {softcap}")
    if slopes is not None:
        slopes = _fp32("alibi_slopes", slopes, q, (by_head[1:], by_head))
        slopes = slopes.detach().expand(by_head)
    if sinks is not None:
        sinks = _fp32("sinks", sinks, q, (by_head[1:],)).contiguous()
    if bias is not None:
        bias = _bias(bias_name, bias, q, scores)
    blocks = _blocks(q, scores, block_mask, block_size)
    exact = checks.flag("exact_gradients", exact_gradients)
    return softcap, slopes, sinks, *_dropout(q, dropout, seed), exact, bias, *blocks


def _blocks(q: torch.Tensor, scores: tuple[int, ...], mask: Any, size: Any) -> tuple[Any, ...]:
    if mask is None:
        return None, None, None
    sizes = [checks.whole(n) for n in size] if isinstance(size, (tuple, list)) else []
    if len(sizes) != 2 or any(n is None or n < 128 or n % 128 for n in sizes):
        raise ValueError(
            f"block_size: expected (queries, keys), each a multiple of 128, got {size!r}"
        )
    checks.tensor("block_mask", mask, rank=4, layout="(batch, heads, blocks, blocks)")
    checks.dtype("block_mask", mask, (torch.bool,))
    checks.same_device("q", q, block_mask=mask)
    wanted = (*scores[:2], -(-scores[2] // sizes[0]), -(-scores[3] // sizes[1]))
    pairs = zip(mask.shape, wanted, strict=True)
    if any(a != b and not (a == 1 and i < 2) for i, (a, b) in enumerate(pairs)):
        raise ValueError(
            f"block_mask: expected {wanted}, or 1 for batch or heads, for blocks of "
            f"{tuple(sizes)}, got {tuple(mask.shape)}"
        )
    return mask, *sizes


def _dropout(q: torch.Tensor, dropout: Any, seed: Any) -> tuple[float | None, torch.Tensor | None]:
    dropout = checks.number("dropout_p", dropout, "a probability from 0 to 1")
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout_p: expected a probability from 0 to 1, got {dropout}")
    if isinstance(seed, torch.Tensor):
        checks.dtype("dropout_seed", seed, (torch.int64,))
        checks.same_device("q", q, dropout_seed=seed)
        if seed.numel() != 1:
            raise ValueError(f"dropout_seed: expected one number, got shape {tuple(seed.shape)}")
    elif seed is not None:
        number = checks.whole(seed)
        if number is None:
            raise TypeError(
                "dropout_seed: expected an int, an int64 tensor of one number or None, got "
                f"{type(seed).__name__}"
            )
        if not -(2**63) <= number < 2**63:
            raise ValueError(
                f"dropout_seed: expected an int that 64 bits hold, got {number}; take it modulo "
                "2**63"
            )
        seed = number
    if not dropout:
        return None, None
    if seed is None:
        seed = torch.randint(2**62, (1,), dtype=torch.int64, device=q.device)
    elif not isinstance(seed, torch.Tensor):
        seed = torch.full((1,), seed, dtype=torch.int64, device=q.device)
    return dropout, seed


def is_causal_bias(value: torch.Tensor) -> bool:
    """Whether it is a mask of ``torch.nn.attention.bias``, told by its attributes: its memory holds
    nothing. By name, since to import that module takes seconds."""
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("torch.nn.attention.bias", "CausalBias")


def _bias(name: str, value: Any, q: torch.Tensor, scores: tuple[int, ...]) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor that broadcasts to {scores}, got "
            f"{type(value).__name__}"
        )
    if is_causal_bias(value):
        raise TypeError(
            f"{name}: expected a tensor of values, got torch's CausalBias, which holds none; pass "
            "causal=True, or it as attn_mask to scaled_dot_product_attention"
        )
    checks.dense(name, value)
    checks.dtype(name, value, (torch.float16, torch.bfloat16, torch.float32, torch.bool))
    checks.same_device("q", q, **{name: value})
    shape = (1,) * (4 - value.dim()) + tuple(value.shape)
    if len(shape) != 4 or any(a not in (1, b) for a, b in zip(shape, scores, strict=True)):
        raise ValueError(
            f"{name}: expected a shape that broadcasts to (batch, heads, seqlen_q, seqlen_k) = "
            f"{scores}, got {tuple(value.shape)}"
        )
    value = value.reshape(shape) if value.dim() < 4 else value
    return value


def _fp32(name: str, value: Any, q: torch.Tensor, shapes: tuple[tuple[int, ...], ...]) -> Any:
    def expected() -> str:
        """Where it is asked for: dynamo traces no string of a shape that is symbols."""
        return " or ".join(str(shape) for shape in shapes)

    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"{name}: expected a torch.Tensor of shape {expected()}, got {type(value).__name__}"
        )
    checks.dense(name, value)
    checks.dtype(name, value, (torch.float32, torch.float16, torch.bfloat16))
    checks.same_device("q", q, **{name: value})
    if not checks.shaped(value, *shapes):
        raise ValueError(
            f"{name}: expected shape {expected()} for q of {shapes[0][0]} heads, got "
            f"{tuple(value.shape)}"
        )
    # One small launch; a gradient comes back in their own dtype.
    return value if value.dtype == torch.float32 else value.float()


PLAIN = Options()
# As every operator takes them, after what is its own.
NAMES = tuple(field.name for field in fields(Options))

"""An attention problem as one object: its tensors, mask, scale, packing and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import torch

from kernels.runtime.targets import Target

from .addressing import near
from .block_masks import Blocks, listed
from .columns import columns
from .numerics import exactness
from .options import PLAIN, Options
from .packed.sequences import Begins, Packed


class Mask(NamedTuple):
    """Query i sees key j up to i + ``offset`` if ``causal`` and, unless that is None, from i +
    ``left`` on. In packed sequences both count from the end of each."""

    causal: bool
    offset: int
    left: int | None


@dataclass(frozen=True, eq=False)
class Problem:
    """Checked tensors (batch, rows, heads, head_dim); of packed sequences as ``Packed.spread``
    makes them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    mask: Mask
    scale: float
    packed: Packed | None = None
    options: Options = PLAIN

    @property
    def batch(self) -> int:
        return self.q.shape[0]

    @property
    def heads(self) -> int:
        return self.q.shape[2]

    @property
    def kv_heads(self) -> int:
        return self.k.shape[2]

    @property
    def head_dims(self) -> tuple[int, int]:
        return self.q.shape[3], self.v.shape[3]

    @property
    def lengths(self) -> tuple[int, int]:
        """Queries and keys, of the longest of packed sequences."""
        if self.packed is None:
            return self.q.shape[1], self.k.shape[1]
        return self.packed.max_q, self.packed.max_k

    @property
    def tokens(self) -> int | None:
        """Rows of all packed sequences together."""
        return None if self.packed is None else self.q.shape[1]

    @property
    def sequences(self) -> tuple[Begins | None, Begins | None]:
        """Packed queries and keys as one argument of a kernel; None of both where a batch has
        them."""
        return (None, None) if self.packed is None else (self.packed.queries, self.packed.keys)

    @property
    def sizes(self) -> dict[str, Any]:
        """As kernels take them, but for the number of heads, of which some count those of keys."""
        return {
            "sequences": self.sequences,
            "heads_per_kv": self.heads // self.kv_heads,
            "seqlen_q": self.lengths[0],
            "seqlen_k": self.lengths[1],
            "tokens": self.tokens,
        }

    @property
    def sight(self) -> dict[str, Any]:
        """Which keys a row sees and what a score is made of, as kernels take it."""
        return {
            "causal_offset": self.mask.offset,
            "left_offset": self.mask.left,
            "asked": self.options.arguments(self.scale, self.scores),
        }

    def tiles(self, target: Target) -> dict[str, Any]:
        """Constants of kernels whose tiles hold all columns of a head."""
        (head_dim, head_dim_v), dtype = self.head_dims, self.q.dtype
        block_d, block_dv = columns(target, dtype, head_dim, head_dim_v)
        return {
            "HEAD_DIM": head_dim,
            "HEAD_DIM_V": head_dim_v,
            "BLOCK_D": block_d,
            "BLOCK_DV": block_dv,
            "CAUSAL": self.mask.causal,
        }

    def walked(self, *, owns_keys: bool = False) -> Blocks:
        """Blocks of its mask that programs walk, which own rows of queries or of keys."""
        one, mask = self.options, self.mask
        if one.block_mask is None or one.block_rows is None or one.block_columns is None:
            return Blocks()
        sizes, until = (one.block_rows, one.block_columns), mask.offset if mask.causal else None
        return listed(one.block_mask, *sizes, until, mask.left, owns_keys=owns_keys)

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """The shape of its scores."""
        return self.batch, self.heads, *self.lengths

    @property
    def alike(self) -> bool:
        """Whether keys and values have the same columns and scores are only masked: what kernels of
        one architecture take."""
        return self.v.shape[3] == self.q.shape[3] and self.options.plain

    @property
    def is_masked(self) -> bool:
        """Whether something hides keys or changes scores."""
        return self.mask.causal or self.mask.left is not None or not self.options.plain

    @property
    def keys_seen(self) -> int:
        """By a row, as ``exactness.keys_seen`` counts them."""
        rows, keys = self.lengths
        ends = 0 if self.packed is None else keys - rows
        left = None if self.mask.left is None else self.mask.left + ends
        return exactness.keys_seen(keys, self.mask.causal, self.mask.offset + ends, left, rows)

    @property
    def is_exact(self) -> bool:
        """Whether the last place of dp - delta shows in the gradients."""
        return exactness.is_exact(self.q.dtype, self.keys_seen, self.q.shape[:3].numel())

    def near(self) -> Problem:
        """With copies of what 32 bits do not reach."""
        return replace(self, q=near(self.q), k=near(self.k), v=near(self.v))


class Given(NamedTuple):
    """The inputs of a backward pass besides the problem: gradients of the output and, unless None,
    of the log-sum-exp, and both as the forward pass filled them."""

    dout: torch.Tensor
    dlse: torch.Tensor | None
    out: torch.Tensor
    lse: torch.Tensor


# Gradients of q, k and v.
Found: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

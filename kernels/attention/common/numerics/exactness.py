"""Which backward passes sum to the last place, and how many keys and rows decide that."""

from __future__ import annotations

import torch

# A bias may hide some of them: where it hides a third and dropout takes a tenth, dk at head dim 192
# had 1.15 times the formula's RMS error with 9 keys in the mean, and is below 1.1 before 24.
FEW_KEYS = 24


# Of all heads. One row whose weights but one vanish has little else than the rounding of out in its
# scores' gradients: of 4 rows (147 keys, scale 0.5, slopes to 1/4) 1 to 3 draws in 100 had a dk
# beyond the bar, and one 3.4 times; of 64 one in 600, of 256 none.
FEW_ROWS = 64


def keys_seen(
    seqlen_k: int, causal: bool, causal_offset: int, left_offset: int | None, seqlen_q: int
) -> int:
    """By a row, in the mean of the first and the last; in a window by the first, the middle or the
    last, whichever sees most."""
    seen = seqlen_k
    if causal:
        seen = (max(1, min(causal_offset + 1, seqlen_k)) + seqlen_k) // 2
    if left_offset is None:
        return seen
    most = 1
    for row in (0, seqlen_q // 2, seqlen_q - 1):
        end = min(row + causal_offset + 1, seqlen_k) if causal else seqlen_k
        most = max(most, end - max(row + left_offset, 0))
    return min(seen, most)


def sums_over_keys(bias: torch.Tensor | None, seqlen_k: int) -> bool:
    """Whether a bias has one gradient for several keys of a row."""
    return bias is not None and bias.shape[3] < seqlen_k


def sums_over_rows(bias: torch.Tensor | None, seqlen_q: int) -> bool:
    """Whether a bias has one gradient for several queries."""
    return bias is not None and bias.shape[2] < seqlen_q


def is_exact(dtype: torch.dtype, keys_seen: int, rows: int) -> bool:
    """Whether the last place of dp - delta shows in the gradients: in fp32, where a row sees so few
    keys that its difference vanishes or nearly does, and of so few ``rows``, of all heads, that one
    of them may decide the error of all gradients."""
    return dtype == torch.float32 or keys_seen <= FEW_KEYS or rows <= FEW_ROWS

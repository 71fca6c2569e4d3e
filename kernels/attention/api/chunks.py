"""Attention within chunks of keys: entries of a batch, packed sequences, or the only one seen."""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention.common import shapes
from kernels.attention.operators import dense as operators
from kernels.attention.operators import fp8 as fp8_interface
from kernels.attention.operators import varlen as varlen_operators
from kernels.runtime import checks


def checked(chunk: Any, **others: Any) -> int | None:
    """How many keys a chunk has, None where there are none; ``others`` do not go with chunks."""
    found: int | None = checks.whole(chunk)
    if chunk is not None and (found is None or checks.negative(found)):
        raise ValueError(
            f"attention_chunk: expected how many keys a chunk has, or None, got {chunk!r}"
        )
    if not found:  # 0 is what FlashAttention-3's callers write for none
        return None
    # One that is larger hides nothing: sums with it stay within 32 bits.
    most = shapes.FARTHEST - 1
    found = min(found, most) if type(found) is int else torch.sym_min(found, most)
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected None beside attention_chunk, got {type(value).__name__}; hide "
                "other chunks by it, and leave attention_chunk out"
            )
    return found


def seen(
    chunk: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, int | None]:
    """Of k and v the chunk that all queries are in, and None; all and ``chunk`` where they are in
    several."""
    seqlen_q, seqlen_k = q.shape[1], k.shape[1]
    first = (seqlen_k - seqlen_q) // chunk
    if first < 0 or first < (seqlen_k - 1) // chunk:
        return k, v, chunk
    return k[:, first * chunk :], v[:, first * chunk :], None


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    chunk: int,
    mask: tuple[Any, ...],
    options: tuple[Any, ...],
    low: dict[str, Any] | None,
    return_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(out, log-sum-exp) of queries in several chunks, for checked arguments. ``mask`` is
    ``shapes.limits`` of offset 0, and the scale; ``low``, scales and ``out_dtype`` of fp8, is
    checked here. A batch whose rows do not follow one another is copied."""
    softcap, slopes, *others = options
    scales: tuple[Any, ...] = ()
    if low is not None:
        scales, _ = fp8_interface.checked(q, k, v, q.shape[0], **low)

    def given(chunks: int) -> dict[str, Any]:
        each = (of_each(one, chunks) for one in scales)
        return {**(low or {}), **dict(zip(fp8_interface.SCALES, each, strict=True))}

    # The same whole chunks are entries of a batch: one launch, without a list of sequences.
    if q.shape[1] == k.shape[1] and q.shape[1] % chunk == 0:
        chunks = q.shape[1] // chunk
        q_, k_, v_ = (_entries(one, chunk) for one in (q, k, v))
        if low is not None:
            found = fp8_interface.attend(q_, k_, v_, *mask, softcap=softcap, **given(chunks))
        else:
            asked = (*mask, softcap, of_each(slopes, chunks), *others)
            found = operators.flash_attention(q_, k_, v_, *asked, return_lse=return_lse)
        return _together(q, *found, return_lse)
    rows, sequences, chunks = _packed(q, k, v, chunk)
    if low is not None:
        packed = {"sequences": sequences, "softcap": softcap, **given(chunks)}
        found = fp8_interface.attend(*rows, *mask, None, None, **packed)
    else:
        some = (softcap, of_each(slopes, chunks), *others)[: len(varlen_operators.ASKED)]
        found = varlen_operators.attend(*rows, *sequences, *mask, *some, return_lse)[:2]
    return _unpacked(q, *found, return_lse)


def of_packed(
    chunk: int, sequences: tuple[Any, ...], used: tuple[Any, ...], with_sinks: bool
) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
    """Of packed sequences (``cu_q``, ``cu_k`` and the longest of both) and their used rows those of
    chunks, and how many chunks a sequence has: each as an entry of its own, by its place.

    Queries before the first key are of the first entry, which is not used: nothing to see is 0.
    Where a sink is to be seen, these are entries of as many rows as a chunk has."""
    cu_q, cu_k, max_q, max_k = sequences
    before = -(-max_q // chunk) if with_sinks else 1
    starts = torch.arange(-before, -(-max_k // chunk) + 1, device=cu_q.device) * chunk
    rows_q, rows_k = (
        (cu.diff() if some is None else cu.diff().minimum(some).clamp(min=0))[:, None]
        for cu, some in zip((cu_q, cu_k), used, strict=True)
    )
    from_q = (starts - (rows_k - rows_q)).clamp(min=0).minimum(rows_q)
    from_k = starts.clamp(min=0).minimum(rows_k)
    from_q[:, 0] = 0
    lengths_q, lengths_k = from_q.diff(), from_k.diff()
    if not with_sinks:
        lengths_q[:, 0] = 0
    ends = (
        torch.cat(((cu[:-1, None] + first[:, :-1]).flatten(), cu[-1:])).int()
        for cu, first in ((cu_q, from_q), (cu_k, from_k))
    )
    many = len(starts) - 1
    of_chunks = (*ends, min(chunk, max_q), min(chunk, max_k))
    return of_chunks, (lengths_q.flatten().int(), lengths_k.flatten().int()), many


def of_each(value: torch.Tensor | None, chunks: int) -> torch.Tensor | None:
    """A value a sequence and head as one a chunk and head; as it is of one a head."""
    return value if value is None or value.dim() < 2 else value.repeat_interleave(chunks, 0)


def _entries(x: torch.Tensor, chunk: int) -> torch.Tensor:
    return x.unflatten(1, (-1, chunk)).flatten(0, 1)


def _together(
    q: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Entries as the batch that ``q`` is; an ``lse`` that is not asked for stays as it is."""
    batch = (q.shape[0], q.shape[1] // out.shape[1])
    if return_lse:
        lse = lse.unflatten(0, batch).transpose(1, 2).flatten(2)
    return out.unflatten(0, batch).flatten(1, 2), lse


def _packed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, chunk: int
) -> tuple[tuple[Any, ...], tuple[Any, ...], int]:
    """What operators of packed sequences take first, rows and which are whose, and how many chunks
    a sequence has."""
    (batch, seqlen_q), seqlen_k = q.shape[:2], k.shape[1]
    if batch * max(seqlen_q, seqlen_k) >= 1 << 31:
        raise ValueError(
            "attention_chunk: expected at most 2^31 - 1 rows where queries are in several chunks, "
            f"got {batch} x {max(seqlen_q, seqlen_k)}; split the batch"
        )
    # Queries before the first key are in chunks without keys.
    first = min((seqlen_k - seqlen_q) // chunk, 0)
    chunks = -(-seqlen_k // chunk) - first
    entry = torch.arange(batch * chunks + 1, device=q.device)
    sequence, start = entry // chunks, (entry % chunks + first) * chunk
    ends = (
        (sequence * rows + (start - before).clamp(0, rows)).int()
        for rows, before in ((seqlen_q, seqlen_k - seqlen_q), (seqlen_k, 0))
    )
    rows = tuple(one.flatten(0, 1) for one in (q, k, v))
    return rows, (*ends, min(chunk, seqlen_q), min(chunk, seqlen_k)), chunks


def _unpacked(
    q: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, return_lse: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed rows likewise."""
    if return_lse:
        lse = lse.unflatten(1, q.shape[:2]).transpose(0, 1).contiguous()
    return out.unflatten(0, q.shape[:2]), lse

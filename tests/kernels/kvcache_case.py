"""A case of flash_attention_kvcache, and what the kernel's errors against its formula are.

What a sequence does not own is NaN: rows of the cache beyond its keys, and pages of no sequence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from tests.kernels.interpreted import Errors, measure, strided
from tests.kernels.kvcache_formula import appended, formula, rounding_error


@dataclass(frozen=True, kw_only=True)
class Case:
    """``keys`` of each sequence in a cache of ``room`` rows, or with ``page`` in shuffled pages;
    the last ``new`` of them are appended, and of all columns the first ``rotary`` are turned. The
    cache is of dtype ``fp8``, scaled by "tensor", "head" or "sequence" and head; with ``all_fp8``
    so are queries and new keys. With ``queries`` of each sequence these
    are packed, S rows of NaN after the last. With ``news`` so many of each are appended, packed,
    too. The first ``leftpad`` of ``keys`` are not its own. With ``qv`` values are keys, too.
    Positions are counted from ``turned_from`` on."""

    keys: tuple[int, ...] = (70, 1, 0, 33)
    S: int = 1
    H: int = 4
    G: int = 2
    D: int = 64
    DV: int = 0
    dtype: str = "float16"
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    view: str = "contiguous"
    page: int = 0
    splits: int = 0
    room: int = 100
    rows_elsewhere: bool = False
    new: int = 0
    rotary: int = 0
    interleaved: bool = True
    fp8: str = ""
    scaled: str = ""
    softcap: float | None = None
    alibi: bool = False
    sinks: bool = False
    queries: tuple[int, ...] = ()
    leftpad: tuple[int, ...] = ()
    chunk: int | None = None
    news: tuple[int, ...] = ()
    all_fp8: bool = False
    qv: bool = False
    turned_from: tuple[int, ...] = ()

    def __str__(self) -> str:
        parts = [self.dtype, "+".join(map(str, self.keys)), f"S{self.S}-H{self.H}-G{self.G}"]
        parts.append(f"D{self.D}-DV{self.DV}" if self.DV else f"D{self.D}")
        parts += ["packed" + "+".join(map(str, self.queries))] if self.queries else []
        parts += [name for name in (self.fp8, self.scaled) if name]
        parts += [
            name
            for name in ("causal", "rows_elsewhere", "alibi", "sinks", "all_fp8", "qv")
            if getattr(self, name)
        ]
        if self.window != (-1, -1):
            parts.append(f"window{self.window[0]},{self.window[1]}")
        parts += [
            f"{name}{value}"
            for name in ("page", "splits", "new", "rotary", "chunk")
            if (value := getattr(self, name))
        ]
        for name in ("leftpad", "news", "turned_from"):
            parts += [name + "+".join(map(str, one))] if (one := getattr(self, name)) else []
        return "-".join([*parts, self.view])

    def drawn(self) -> list[torch.Tensor]:
        """q, and the keys and values of every sequence, (batch, room, heads, dim)."""
        batch, dtype = len(self.keys), getattr(torch, self.dtype)
        tokens = sum(self.queries) + self.S
        shapes = (
            (1, tokens, self.H, self.D) if self.queries else (batch, self.S, self.H, self.D),
            (batch, self.room, self.G, self.D),
            (batch, self.room, self.G, self.DV or self.D),
        )
        q, k, v = (strided(shape, self.view, dtype, seed) for seed, shape in enumerate(shapes))
        if self.queries:
            q = q[0]
            q[sum(self.queries) :] = float("nan")
        return [q, k, v]

    def queries_of_values(self) -> torch.Tensor:
        """``qv`` of every query."""
        q = self.drawn()[0]
        shape = (*q.shape[:-1], self.DV or self.D)
        found = strided(shape if q.dim() == 4 else (1, *shape), self.view, q.dtype, 5)
        return found if q.dim() == 4 else found[0]

    def cu_seqlens_q(self) -> torch.Tensor | None:
        return _bounds(self.queries)

    def added(self) -> tuple[range, ...]:
        """Rows of the cache that this call's keys are written to, of each sequence."""
        news = self.news or (self.new,) * len(self.keys)
        return tuple(range(n - new, n) for n, new in zip(self.keys, news, strict=True))

    def own(self, before: bool = False) -> list[range]:
        """Rows of the cache that hold each sequence's keys, or held them before this call."""
        firsts = self.leftpad or (0,) * len(self.keys)
        ends = [one.start if before else one.stop for one in self.added()]
        return [range(min(first, end), end) for first, end in zip(firsts, ends, strict=True)]

    def of_each(self, q: torch.Tensor) -> list[torch.Tensor]:
        """The queries of every sequence, (rows, heads, dim)."""
        return list(q[: sum(self.queries)].split(self.queries) if self.queries else q.unbind())

    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of every position, of another dtype and stride than the queries."""
        rate = 1e4 ** -(torch.arange(0, self.rotary, 2) / self.rotary)
        most = 2 * max(self.room, self.page) + max(self.queries, default=0)
        angles = torch.arange(most)[:, None] * rate
        return angles.cos(), angles.sin().t().contiguous().t()

    def extras(self) -> dict[str, Any]:
        """Of scores, as the kernel takes them: a slope for each head of each sequence."""
        generator = torch.Generator().manual_seed(7)
        made: dict[str, Any] = {"softcap": self.softcap}
        if self.alibi:
            made["alibi_slopes"] = torch.rand(len(self.keys), self.H, generator=generator) / 4
        if self.sinks:
            made["sinks"] = torch.randn(self.H, generator=generator)
        return made

    def scales(self) -> list[torch.Tensor]:
        """Of keys and of values; they round, and make some values too large."""
        wide = {"head": self.G, "sequence": self.G * len(self.keys)}.get(self.scaled, 1)
        made = [(torch.arange(wide) + 1.3) * 0.01, (torch.arange(wide) + 0.7) * 0.003]
        if self.scaled == "sequence":  # heads lie apart
            return [one.view(self.G, -1).T for one in made]
        return made if self.scaled == "head" else [one[0] for one in made]

    def q_scale(self) -> torch.Tensor:
        """Of queries in fp8: they fill its range."""
        return 0.01 * (1.0 + self.scales()[0])

    def stored(self, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """As an fp8 cache has them."""
        kind = getattr(torch, self.fp8)
        if self.scaled:
            rows = rows.float() / by_heads(scale)
        most = torch.finfo(kind).max
        return rows.float().clamp(-most, most).to(kind)

    def cache(self, rows: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``rows`` of each sequence where the kernel is to find them, and which pages or rows of
        the cache they are."""
        kept = torch.full_like(rows, float("nan"))  # keeps strides
        own = self.own(before=True)
        for b, j in enumerate(own):
            _bits(kept)[b, j] = _bits(rows)[b, j]
        if self.rows_elsewhere and not self.page:
            order = torch.tensor([2 * b + 1 for b in range(len(self.keys))][::-1])
            shape = (2 * len(self.keys), *rows.shape[1:])
            room = torch.full(shape, float("nan")).to(rows.dtype)
            _bits(room)[order] = _bits(kept)
            return room, order.to(torch.int32)
        if not self.page:
            return kept, None
        batch, pages = len(self.keys), -(-self.room // self.page)
        generator = torch.Generator().manual_seed(9)
        order = torch.randperm(2 * batch * pages, generator=generator)[: batch * pages]
        shape = (2 * batch * pages, self.page, *rows.shape[2:])
        room = strided(shape, self.view, rows.dtype, seed)
        room.fill_(float("nan"))
        table = order.reshape(batch, pages).to(torch.int32)
        for b, n in enumerate(self.keys):
            j = torch.tensor(own[b], dtype=torch.int64)
            _bits(room)[table[b, j // self.page].long(), j % self.page] = _bits(rows)[b, j]
            # What lies beyond the last page must not be looked up, nor read before the first.
            table[b, -(-n // self.page) :] = table[b, : own[b].start // self.page] = 1 << 30
        return room, table


def by_heads(scale: torch.Tensor) -> torch.Tensor:
    """As (batch, rows, heads, dim) is to be multiplied by it."""
    return scale[:, None, :, None] if scale.dim() == 2 else scale[:, None] if scale.dim() else scale


def _bounds(lengths: tuple[int, ...]) -> torch.Tensor | None:
    """Where packed sequences begin and end."""
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32) if lengths else None


def _bits(one: torch.Tensor) -> torch.Tensor:
    """Values of 8 bits as torch can index them on every device."""
    return one.view(torch.uint8) if one.element_size() == 1 else one


def _dequantised(case: Case, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return rows.double() * (by_heads(scale) if case.scaled else 1.0)


def run(case: Case, attend: Any = None) -> list[Errors]:
    """By ``flash_attention_kvcache``, or ``attend`` that takes what it takes."""
    import kernels

    attend = attend or kernels.flash_attention_kvcache
    q, k, v = case.drawn()
    scales = case.scales()
    before = [k, v]
    if case.fp8:
        before = [case.stored(*each) for each in zip(before, scales, strict=True)]
    (k_cache, places), (v_cache, _) = (case.cache(one, seed) for seed, one in enumerate(before))
    options = case.extras()
    added = case.added()
    rows_of_cache = places if case.rows_elsewhere else None
    if case.page and case.rows_elsewhere:
        assert places is not None
        rows_of_cache = torch.arange(1, 2 * len(case.keys), 2, dtype=torch.int32).flip(0)
        table = torch.full((2 * len(case.keys), places.shape[1]), 1 << 30, dtype=torch.int32)
        table[rows_of_cache.long()] = places
        places = table
    if case.new or case.news:
        for name, one in (("k", k), ("v", v)):
            if case.all_fp8:
                one = before[0 if name == "k" else 1]
            each = [_bits(one)[b, rows].view(one.dtype) for b, rows in enumerate(added)]
            rest = torch.full(one[0, :2].shape, float("nan")).to(one.dtype)
            options[name] = torch.cat([*each, rest]) if case.news else torch.stack(each)
    if case.rotary:
        options["rotary_cos"], options["rotary_sin"] = case.angles()
        options["rotary_interleaved"] = case.interleaved
    if case.scaled:
        options["k_scale"], options["v_scale"] = scales
    if case.qv:
        options["qv"] = case.queries_of_values()
    if case.turned_from:
        options["rotary_seqlens"] = torch.tensor(case.turned_from, dtype=torch.int32)
    given = q
    if case.all_fp8:
        given, options["q_scale"] = q.to(getattr(torch, case.fp8)), case.q_scale()
        factor = by_heads(case.q_scale())
        if factor.dim() > 1:
            factor = factor.repeat_interleave(case.H // case.G, -2)
        if case.queries and factor.dim() == 4:  # by the sequence that a packed row is of
            factor = factor[:, 0].repeat_interleave(torch.tensor(case.queries), 0)
            rest = len(given) - len(factor)
            factor = torch.cat((factor, factor.new_ones(rest, *factor.shape[1:])))
        q = (given.double() * factor).float()
    got = attend(
        given,
        k_cache,
        v_cache,
        cache_seqlens=torch.tensor([one.start for one in added], dtype=torch.int32),
        block_table=places if case.page else None,
        cu_seqlens_q=case.cu_seqlens_q(),
        max_seqlen_q=max(case.queries) if case.queries else None,
        cu_seqlens_k_new=_bounds(case.news),
        cache_batch_idx=rows_of_cache,
        cache_leftpad=torch.tensor(case.leftpad, dtype=torch.int32) if case.leftpad else None,
        causal=case.causal,
        window_size=case.window,
        attention_chunk=case.chunk,
        num_splits=case.splits,
        return_lse=True,
        **options,
    )
    # An fp8 cache rounds once: what is written is turned in fp32.
    if case.all_fp8:  # new keys come in fp8
        k, v = (_dequantised(case, *each) for each in zip(before, scales, strict=True))
    plain_q, plain_k = appended(case, q, k.float() if case.fp8 else k)
    true_q, true_k = appended(case, q.double(), k.double())
    if case.all_fp8:
        plain_q, q = plain_q.bfloat16(), q.bfloat16()
    true = (true_k, v.double())
    # What was there, the new rows, and NaN as before everywhere else.
    firsts = tuple(one.start for one in case.own(before=True))
    whole = replace(case, new=0, news=(), leftpad=firsts)
    if case.fp8:
        factors = [by_heads(one).double() for one in scales] if case.scaled else [1, 1]
        written = zip((k_cache, v_cache), true, scales, (case.rotary, 0), strict=True)
        for found, rows, scale, rotary in written:
            off = rounding_error(replace(case, rotary=rotary), rows)
            low, high = (
                whole.cache(case.stored(one, scale).contiguous(), 0)[0].float()
                for one in (rows - off, rows + off)
            )
            inside = (low <= found.float()) & (found.float() <= high)
            wrong = ~(inside | (low.isnan() & found.float().isnan()))
            assert not wrong.any(), f"{int(wrong.sum())} are not the rounding of the exact values"
        after = [case.stored(*each).double() for each in zip(true, scales, strict=True)]
        true = (after[0] * factors[0], after[1] * factors[1])
    else:
        for found, rows in zip((k_cache, v_cache), (plain_k, v), strict=True):
            want = whole.cache(rows.contiguous(), 0)[0]
            step = max(2e-3, torch.finfo(q.dtype).eps)
            torch.testing.assert_close(found, want, rtol=step, atol=1e-5, equal_nan=True)
    kept = [one.to(q.dtype) for one in true] if case.fp8 else (plain_k, v)
    plain = formula(case, plain_q, *kept, case.dtype)
    truth = formula(case, true_q, *true, "float64")
    if not any(case.own()):
        assert torch.equal(got[0], torch.zeros_like(got[0]))
        # Only a sink has anything to sum up.
        want = truth[1].to(got[1].dtype) if case.sinks else torch.full_like(got[1], -math.inf)
        torch.testing.assert_close(got[1], want)
        return []
    return [measure(*each) for each in zip(got, plain, truth, strict=True)]

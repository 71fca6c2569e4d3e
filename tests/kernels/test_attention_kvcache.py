"""flash_attention_kvcache against each sequence's own formula in fp64, in Triton's interpreter.

What a sequence does not own is NaN: rows of the cache beyond its keys, and pages of no sequence.
"""

from __future__ import annotations

import math
import mmap
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from benchmarks.workloads.attention import plain_attention
from kernels.attention import e4m3
from kernels.attention.kvcache_configs import choose_splits
from tests.kernels.interpreted import Errors, Worker, measure, strided

NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python names from 3.13 on


@dataclass(frozen=True, kw_only=True)
class Case:
    """``keys`` of each sequence in a cache of ``room`` rows, or with ``page`` in shuffled pages;
    the last ``new`` of them are appended, and of all columns the first ``rotary`` are turned. The
    cache is of dtype ``fp8``, scaled by "tensor" or "head"."""

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

    def __str__(self) -> str:
        parts = [self.dtype, "+".join(map(str, self.keys)), f"S{self.S}-H{self.H}-G{self.G}"]
        parts.append(f"D{self.D}-DV{self.DV}" if self.DV else f"D{self.D}")
        parts += [name for name in (self.fp8, self.scaled) if name]
        parts += [name for name in ("causal", "rows_elsewhere") if getattr(self, name)]
        if self.window != (-1, -1):
            parts.append(f"window{self.window[0]},{self.window[1]}")
        parts += [
            f"{name}{value}"
            for name in ("page", "splits", "new", "rotary")
            if (value := getattr(self, name))
        ]
        return "-".join([*parts, self.view])

    def drawn(self) -> list[torch.Tensor]:
        """q, and the keys and values of every sequence, (batch, room, heads, dim)."""
        batch, dtype = len(self.keys), getattr(torch, self.dtype)
        shapes = (
            (batch, self.S, self.H, self.D),
            (batch, self.room, self.G, self.D),
            (batch, self.room, self.G, self.DV or self.D),
        )
        return [strided(shape, self.view, dtype, seed) for seed, shape in enumerate(shapes)]

    def angles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin of every position, of another dtype and stride than the queries."""
        rate = 1e4 ** -(torch.arange(0, self.rotary, 2) / self.rotary)
        angles = torch.arange(2 * self.room)[:, None] * rate
        return angles.cos(), angles.sin().t().contiguous().t()

    def scales(self) -> list[torch.Tensor]:
        """Of keys and of values; they round, and make some values too large."""
        wide = self.G if self.scaled == "head" else 1
        made = [(torch.arange(wide) + 1.3) * 0.01, (torch.arange(wide) + 0.7) * 0.003]
        return made if self.scaled == "head" else [one[0] for one in made]

    def stored(self, rows: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """As an fp8 cache has them."""
        kind = getattr(torch, self.fp8)
        if self.scaled:
            rows = rows.float() / (scale[:, None] if scale.dim() else scale)
        most = torch.finfo(kind).max
        return rows.float().clamp(-most, most).to(kind)

    def cache(self, rows: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """``rows`` of each sequence where the kernel is to find them, and which pages or rows of
        the cache they are."""
        kept = torch.full_like(rows, float("nan"))  # keeps strides
        for b, n in enumerate(self.keys):
            kept[b, : n - self.new] = rows[b, : n - self.new]
        if self.rows_elsewhere:
            order = torch.tensor([2 * b + 1 for b in range(len(self.keys))][::-1])
            room = torch.full((2 * len(self.keys), *rows.shape[1:]), float("nan"), dtype=rows.dtype)
            room[order] = kept
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
            for j in range(n - self.new):
                room[table[b, j // self.page], j % self.page] = rows[b, j]
            # What lies beyond the last page must not be looked up.
            table[b, -(-n // self.page) :] = 1 << 30
        return room, table


CASES = [
    Case(),
    Case(dtype="bfloat16", H=8, G=1, S=2, causal=True, D=128),
    Case(dtype="float32", D=40, causal=True, S=2, splits=3),
    Case(S=16, H=6, G=2, D=16, causal=True, keys=(40, 5, 0, 16)),
    Case(S=37, H=2, G=2, D=32, causal=True, keys=(90, 37)),
    Case(H=2, G=2, D=80, DV=48, view="transposed", splits=2),
    Case(D=256, keys=(33,), view="padded", splits=4, room=33),
    Case(D=32, view="skipping", rows_elsewhere=True, S=2, causal=True),
    Case(D=32, S=3, window=(20, 0), keys=(99, 3, 40), splits=2),
    Case(D=32, S=4, window=(5, 2), keys=(99, 3, 0), page=16),
    Case(D=32, page=16, S=2, causal=True),
    Case(D=32, page=32, splits=2, dtype="bfloat16", view="transposed"),
    Case(D=32, page=64, S=2, causal=True, splits=3, view="skipping"),
    Case(D=72, dtype="float32", page=16, splits=2, keys=(99, 18)),
    Case(keys=(0, 0), splits=2, D=16, page=16),
    Case(keys=(3,), H=1, G=1, D=16, dtype="float32"),
    Case(D=32, new=2, S=2, causal=True, keys=(40, 2, 3), rotary=32),
    Case(D=48, new=3, S=3, keys=(40, 3), rotary=16, page=16, splits=2, view="skipping"),
    Case(D=32, DV=16, new=1, causal=True, keys=(20, 1), rotary=20, interleaved=False, page=16),
    Case(D=16, new=5, S=4, H=8, window=(9, -1), keys=(50, 9, 31), rotary=16, dtype="float32"),
    Case(D=16, new=4, H=8, G=8, keys=(50, 4), rows_elsewhere=True, dtype="bfloat16"),
    Case(D=16, fp8="float8_e4m3fn", scaled="head", causal=True, S=2, splits=2),
    Case(D=16, fp8="float8_e4m3fnuz", scaled="tensor", dtype="bfloat16", page=16, keys=(40, 3)),
    Case(D=16, fp8="float8_e4m3fn", new=2, rotary=16, causal=True, keys=(40, 2), scaled="head"),
    Case(D=16, fp8="float8_e4m3fnuz", new=2, keys=(20, 2), page=16, dtype="float32"),
    Case(D=16, H=1, G=1, splits=18, keys=(660,), room=660),
    *(Case(D=16, S=2, H=2, G=1, causal=True, splits=n, keys=(99, 34)) for n in range(1, 9)),
]


def formula(case: Case, q: Any, k: Any, v: Any, dtype: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Every sequence by itself."""
    left, right = case.window
    right = 0 if case.causal else right
    outs, lses = [], []
    for b, n in enumerate(case.keys):
        out, lse = plain_attention(
            q[b : b + 1],
            *(one[b : b + 1, :n] for one in (k, v)),
            causal_offset=None if right < 0 else n - case.S + right,
            left_offset=None if left < 0 else n - case.S - left,
            dtype=dtype,
        )
        outs.append(out)
        lses.append(lse)
    return torch.cat(outs), torch.cat(lses)


def turned(case: Case, rows: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rows (tokens, heads, dim) at their ``positions``, by complex numbers, in fp32 or fp64."""
    if not case.rotary:
        return rows
    wide = rows.to(torch.float64 if rows.dtype == torch.float64 else torch.float32)
    cos, sin = (one[positions][:, None].to(wide) for one in case.angles())
    pairs = wide[..., : case.rotary]
    pairs = pairs.unflatten(-1, (-1, 2) if case.interleaved else (2, -1))
    x, y = pairs.unbind(-1 if case.interleaved else -2)
    both = torch.stack((x * cos - y * sin, y * cos + x * sin), -1 if case.interleaved else -2)
    return torch.cat((both.flatten(-2), wide[..., case.rotary :]), -1).to(rows.dtype)


def appended(case: Case, q: Any, k: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """q and k as attention sees them."""
    q, k = q.clone(), k.clone()
    for b, n in enumerate(case.keys):
        first = n - case.new
        each = case.causal or case.window != (-1, -1)
        q[b] = turned(case, q[b], first + torch.arange(case.S) * each)
        k[b, first:n] = turned(case, k[b, first:n], torch.arange(first, n))
    return q, k


def run(case: Case) -> list[Errors]:
    import kernels

    q, k, v = case.drawn()
    scales = case.scales()
    before = [k, v]
    if case.fp8:
        before = [case.stored(*each) for each in zip(before, scales, strict=True)]
    (k_cache, places), (v_cache, _) = (case.cache(one, seed) for seed, one in enumerate(before))
    options: dict[str, Any] = {}
    if case.new:
        ends = [(b, slice(n - case.new, n)) for b, n in enumerate(case.keys)]
        options["k"], options["v"] = (torch.stack([one[at] for at in ends]) for one in (k, v))
    if case.rotary:
        options["rotary_cos"], options["rotary_sin"] = case.angles()
        options["rotary_interleaved"] = case.interleaved
    if case.scaled:
        options["k_scale"], options["v_scale"] = scales
    got = kernels.flash_attention_kvcache(
        q,
        k_cache,
        v_cache,
        cache_seqlens=torch.tensor(case.keys, dtype=torch.int32) - case.new,
        block_table=places if case.page else None,
        cache_batch_idx=places if case.rows_elsewhere else None,
        causal=case.causal,
        window_size=case.window,
        num_splits=case.splits,
        return_lse=True,
        **options,
    )
    # An fp8 cache rounds once: what is written is turned in fp32.
    plain_q, plain_k = appended(case, q, k.float() if case.fp8 else k)
    true_q, true_k = appended(case, q.double(), k.double())
    after: Any = (plain_k, v)
    true = (true_k, v.double())
    if case.fp8:
        after = [case.stored(*each) for each in zip(after, scales, strict=True)]
        factors = [one[:, None] if one.dim() else one for one in scales] if case.scaled else [1, 1]
        true = tuple(one.double() * factor for one, factor in zip(after, factors, strict=True))
    for found, rows in zip((k_cache, v_cache), after, strict=True):
        # What was there, the new rows, and NaN as before everywhere else.
        want = replace(case, new=0).cache(rows.contiguous(), 0)[0]
        bar = {"rtol": 0.0, "atol": 0.0} if case.fp8 else {"rtol": 2e-3, "atol": 1e-5}
        torch.testing.assert_close(found.float(), want.float(), **bar, equal_nan=True)
    kept = [one.to(q.dtype) for one in true] if case.fp8 else (plain_k, v)
    plain = formula(case, plain_q, *kept, case.dtype)
    truth = formula(case, true_q, *true, "float64")
    if not any(case.keys):
        assert torch.equal(got[0], torch.zeros_like(got[0]))
        assert torch.equal(got[1], torch.full_like(got[1], -math.inf))
        return []
    return [measure(*each) for each in zip(got, plain, truth, strict=True)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_match_fp64(interpreter: Worker, case: Case) -> None:
    for name, errors in zip(("out", "lse"), interpreter.run(run, case), strict=False):
        errors.check(name)


def run_lengths() -> list[torch.Tensor]:
    """One length for all as an int, as a tensor, and by default that of the cache."""
    import kernels

    q, k, v = Case(D=16, keys=(20, 20), room=20).drawn()
    lengths = torch.full((4,), 20, dtype=torch.int32)[::2]
    # No length may lead outside the cache: the rows around it are another's.
    far = torch.tensor([-3, 1000], dtype=torch.int32)
    return [
        *(
            kernels.flash_attention_kvcache(q, k, v, cache_seqlens=each)
            for each in (20, lengths, None)
        ),
        kernels.flash_attention_kvcache(q, k, v, cache_seqlens=far),
    ]


def test_lengths_come_as_tensor_int_or_not_at_all(interpreter: Worker) -> None:
    as_int, as_tensor, by_default, far = interpreter.run(run_lengths)
    assert torch.equal(as_int, as_tensor) and torch.equal(as_int, by_default)
    assert torch.equal(far[0], torch.zeros_like(far[0])) and torch.equal(far[1], as_int[1])


def run_far(paged: bool) -> list[list[torch.Tensor]]:
    """Results and appended rows of a cache whose third page or row lies 2^31 elements after the
    first, and of the same one close together."""
    import kernels

    step = (1 << 30) + 64
    room = mmap.mmap(-1, 2 * (2 * step + 4096), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    far = torch.frombuffer(room, dtype=torch.float16)  # memory that is not touched is not there
    q, k, v = Case(D=16, keys=(20,), room=16).drawn()
    places = torch.tensor([[2, 0]] if paged else [2], dtype=torch.int32)
    found = []
    for each in (step, 256):
        caches = [far[at:].as_strided((3, 16, 1, 16), (each, 16, 16, 1)) for at in (0, 1024)]
        for cache, rows in zip(caches, (k, v), strict=True):
            cache[2, :, 0] = rows[0, :, 0]
        where = {"block_table": places} if paged else {"cache_batch_idx": places}
        new = q[:, :, :1]
        out = kernels.flash_attention_kvcache(q, *caches, new, new, cache_seqlens=15, **where)
        found.append([out, *(cache[2].clone() for cache in caches)])
    return found


@pytest.mark.parametrize("paged", [False, True])
def test_offsets_need_not_fit_32_bits(interpreter: Worker, paged: bool) -> None:
    far, near = interpreter.run(run_far, paged)
    for one, other in zip(far, near, strict=True):
        assert torch.equal(one, other) and not one.isnan().any()


def run_operator() -> tuple[dict[str, str], torch.Tensor, torch.Tensor]:
    import kernels

    case = Case(dtype="float32", D=16, S=2, page=16, keys=(20, 3), room=32, rotary=8)
    q, k, v = case.drawn()
    (k_cache, table), (v_cache, _) = case.cache(k, 1), case.cache(v, 2)
    lengths = torch.tensor(case.keys, dtype=torch.int32)
    untold = (None, None, True, True, 0, None, 0.25, 2)
    outcome = torch.library.opcheck(
        torch.ops.warpwatch.flash_attention_kvcache,
        (q, k_cache, v_cache, lengths, 0, None, table, None, None, 0, *untold),
    )
    cos, sin = case.angles()
    new = q[:, :, :2].clone()
    outcome |= torch.library.opcheck(
        torch.ops.warpwatch.kvcache_append,
        (
            new,
            new,
            k_cache.clone(),
            v_cache.clone(),
            lengths,
            0,
            None,
            table,
            None,
            None,
            cos,
            sin,
            True,
        ),
    )

    def model(q: Any, k_cache: Any, v_cache: Any, lengths: Any) -> Any:
        return 2.0 * kernels.flash_attention_kvcache(
            q, k_cache, v_cache, new, new, rotary_cos=cos, rotary_sin=sin,
            cache_seqlens=lengths, block_table=table, causal=True,
        )  # fmt: skip

    caches = [(k_cache.clone(), v_cache.clone()) for _ in range(2)]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(q, *caches[0], lengths)
    eager = model(q, *caches[1], lengths)
    for mine, other in zip(*caches, strict=True):
        assert not torch.equal(mine.nan_to_num(), k_cache.nan_to_num())
        torch.testing.assert_close(mine, other, rtol=0.0, atol=0.0, equal_nan=True)
    return outcome, compiled, eager


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, compiled, eager = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"}
    assert torch.equal(compiled, eager)


@pytest.mark.parametrize(
    ("tiles", "key_blocks", "processors", "expected"),
    [
        (1, 0, 264, 1),
        (512, 1000, 264, 1),  # more than a wave of programs, and the second is nearly full
        (8, 2048, 264, 32),  # nearly one wave
        (128, 64, 264, 2),
        (128, 64, 1216, 9),
        (1, 4096, 264, 121),  # all there may be, less what changes nothing,
        (8, 10, 264, 5),  # not less than two blocks a part
    ],
)
def test_splits_fill_the_processors(
    tiles: int, key_blocks: int, processors: int, expected: int
) -> None:
    assert choose_splits(tiles, key_blocks, processors) == expected


@triton.jit
def both_ways(codes, halves, values, bits, N: tl.constexpr, FNUZ: tl.constexpr):
    o_n = tl.arange(0, N)
    tl.store(halves + o_n, e4m3.widened(tl.load(codes + o_n), FNUZ))
    tl.store(bits + o_n, e4m3.narrowed(tl.load(values + o_n), FNUZ))


def run_e4m3(flavour: str) -> list[torch.Tensor]:
    """All codes as they are read; what lies on them, between them and beside that, written."""
    kind = getattr(torch, flavour)
    codes = torch.arange(256, dtype=torch.uint8)
    numbers = codes.view(kind).float()
    ordered = numbers[numbers.isfinite()].sort().values
    middles = (ordered[1:] + ordered[:-1]) / 2
    beside = [middles.nextafter(torch.tensor(to)) for to in (-math.inf, math.inf)]
    odd = torch.tensor([math.nan, -0.0, 1e-30, -1e-30, 1e30, -1e30, math.inf, -math.inf])
    values = torch.cat((ordered, middles, *beside, odd))
    values = torch.nn.functional.pad(values, (0, 1024 - len(values)))
    halves, bits = torch.empty(1024, dtype=torch.float16), torch.empty(1024, dtype=torch.uint8)
    both_ways[(1,)](codes.repeat(4), halves, values, bits, 1024, flavour.endswith("fnuz"))
    most = torch.finfo(kind).max
    want = values.clamp(-most, most).to(kind)
    return [halves[:256].float(), numbers, bits.view(kind).float(), want.float()]


@pytest.mark.parametrize("flavour", ["float8_e4m3fn", "float8_e4m3fnuz"])
def test_e4m3_is_read_and_written_exactly(interpreter: Worker, flavour: str) -> None:
    read, numbers, written, want = interpreter.run(run_e4m3, flavour)
    for got, expected in ((read, numbers), (written, want)):
        torch.testing.assert_close(got, expected, rtol=0.0, atol=0.0, equal_nan=True)
        number = ~expected.isnan()
        assert torch.equal(got.signbit()[number], expected.signbit()[number])

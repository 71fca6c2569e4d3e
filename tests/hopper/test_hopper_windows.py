"""Which blocks the gradients of short sequences walk on Hopper, run as Python: all that a window or
a causal mask leaves, and each warpgroup at most one block less than its tile."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kernels.attention.hopper.backward import block
from kernels.attention.hopper.backward.short import plan as hopper_backward_plan

ROWS = 64
Range = tuple[int, int]


def planned(
    monkeypatch: pytest.MonkeyPatch, **given: int | None
) -> list[tuple[Range, list[Range]]]:
    """First and end of the blocks of each tile of one head, and of its two warpgroups."""
    language = SimpleNamespace(
        cdiv=lambda a, b: -(-a // b),
        maximum=max,
        minimum=min,
        program_id=lambda axis: 0,
        num_programs=lambda axis: 1,
        where=lambda condition, yes, no: yes if condition else no,
        constexpr=hopper_backward_plan.gl.constexpr,
    )
    keys, keys_before = block.keys.fn, block.keys_before.fn
    for module in (hopper_backward_plan, block):
        monkeypatch.setattr(module, "gl", language)
        monkeypatch.setattr(module, "ROWS", ROWS)
        monkeypatch.setattr(module, "keys", keys)
        monkeypatch.setattr(module, "keys_before", keys_before)
    monkeypatch.setattr(hopper_backward_plan, "Tile", lambda *fields: fields)
    plan = SimpleNamespace(heads=1, kv_heads=1, batch=1, BY_HEAD=True, CAUSAL=True, **given)
    plan.WINDOW, plan.BLOCK_N = plan.left_offset is not None, ROWS
    whole = hopper_backward_plan.Plan
    for name in ("of_a_head", "all_heads", "place", "tile", "queries", "end"):
        setattr(plan, name, getattr(whole, name).fn.__get__(plan))
    found = []
    for i_turn in range(plan.of_a_head()):
        *_, i, first, blocks = plan.tile(i_turn)
        own = []
        for row in (i * 2 * ROWS, (i * 2 + 1) * ROWS):
            if plan.OF_KEYS:
                start, count = plan.queries(row)
            else:
                start = keys_before(plan, row)
                count = keys(plan, row) - start
            own.append((start, start + count))
        found.append((i, (first, first + blocks), own))
    return [(tile, own) for _, tile, own in sorted(found)]


@pytest.mark.parametrize("window", [None, 0, 1, 63, 64, 65, 300, 5000], ids="window-{}".format)
@pytest.mark.parametrize("of_keys", [True, False], ids=["keys", "queries"])
@pytest.mark.parametrize("right", [0, 3, 100], ids="right-{}".format)
@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k"),
    [(512, 512), (700, 300), (300, 700), (64, 2000), (1025, 1025), (1, 90), (2000, 30)],
)
def test_every_block_that_is_seen_is_walked(
    seqlen_q: int,
    seqlen_k: int,
    right: int,
    of_keys: bool,
    window: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last = seqlen_k - seqlen_q + right
    first = None if window is None else seqlen_k - seqlen_q - window
    sizes = {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "causal_offset": last}
    tiles = planned(monkeypatch, **sizes, left_offset=first, OF_KEYS=of_keys)
    ours, theirs = (seqlen_k, seqlen_q) if of_keys else (seqlen_q, seqlen_k)
    assert len(tiles) == -(-ours // 128)
    for i_tile, (tile, own) in enumerate(tiles):
        assert tile == (own[0][0], own[1][1])
        assert 0 <= own[1][0] - own[0][0] <= 1
        assert 0 <= own[1][1] - own[0][1] <= 1
        assert tile[1] <= -(-theirs // ROWS)
        for i, (start, end) in enumerate(own):
            assert start < end
            rows = range((i_tile * 2 + i) * ROWS, min((i_tile * 2 + i + 1) * ROWS, ours))
            if of_keys:  # row r sees keys r + first to r + last
                seen = [(n - last, theirs if first is None else n - first + 1) for n in rows]
            else:
                seen = [(0 if first is None else r + first, r + last + 1) for r in rows]
            ranges = [(max(a, 0), min(b, theirs)) for a, b in seen]
            some = [(a, b) for a, b in ranges if a < b]
            if some:
                assert start <= min(a for a, _ in some) // ROWS
                assert end * ROWS >= max(b for _, b in some)
                # Nothing that is hidden altogether, but for a block that has to be there.
                assert start == min(min(a for a, _ in some) // ROWS, end - 1)

"""How full attention is cut into blocks of rows, so that Hopper's programs end together."""

from __future__ import annotations

from functools import lru_cache

import triton

from kernels.device.hopper_rings import ROWS

# What blocks of 64, 128 and 192 rows take, in hundredths of one of 192, where a program has three
# warpgroups; and 128 rows where it has two: docs/log/kernels/hopper/forward.md measures them.
SHARES = (62, 85, 100)
WHOLE = SHARES[-1]
SHARE_OF_TWO = 75
FEW_ROWS = 768  # that a block of 192 cuts badly whatever is behind it


def three_are_faster(seqlen_q: int, n_heads: int, multiprocessors: int) -> bool:
    """Whether programs of three warpgroups are done before those of two."""
    if seqlen_q < FEW_ROWS:
        return False
    sizes = (seqlen_q, n_heads, 3, multiprocessors)
    turns = triton.cdiv(triton.cdiv(seqlen_q, 2 * ROWS.value) * n_heads, multiprocessors)
    return _longest(*cut(*sizes), *sizes) <= turns * SHARE_OF_TWO


@lru_cache(maxsize=4096)
def cut(seqlen_q: int, n_heads: int, consumers: int, multiprocessors: int) -> tuple[int, int, int]:
    """(whole_each, whole_more, tail), where the last program ends first.

    Each head has ``whole_each`` blocks of ``64 * consumers`` rows, the first ``whole_more`` heads
    one more, and behind them blocks of ``64 * tail`` rows. Either all whole blocks there are, then
    each head's rest; or as many as keep every program busy, and the rest in blocks small enough to
    be one a program: few rows take longer each, but not as long as waiting for whole blocks.
    """
    most = triton.cdiv(seqlen_q, ROWS.value) // consumers
    busy = most * n_heads // multiprocessors * multiprocessors
    cuts = [(most, 0, consumers)]
    cuts += [(*divmod(busy, n_heads), tail) for tail in range(1, consumers)]
    sizes = (seqlen_q, n_heads, consumers, multiprocessors)
    return min(cuts, key=lambda one: _longest(*one, *sizes))


@lru_cache(maxsize=4096)
def _longest(
    each: int, more: int, tail: int, seqlen_q: int, n_heads: int, consumers: int, programs: int
) -> int:
    """What the program with most to do takes, in hundredths of a whole block of three warpgroups:
    turns of whole blocks that all have, and what is given out to and fro behind them."""
    units = triton.cdiv(seqlen_q, ROWS.value)
    turns, left = divmod(each * n_heads + more, programs)
    busy = [WHOLE] * left + [0] * (programs - left)
    given = left
    for heads, blocks in ((more, each + 1), (n_heads - more, each)):
        rows = range(units - consumers * blocks, 0, -tail)
        times = [SHARES[min(tail, behind) - 1] for behind in rows]
        # So many heads' blocks fill whole turns there and back, wherever they begin: each time they
        # do, every program has as much more.
        times_round, rest = divmod(heads, 2 * programs)
        if times_round and times:
            once = _given(busy, given, times * (2 * programs))
            busy = [a + times_round * (b - a) for a, b in zip(busy, once, strict=True)]
        busy = _given(busy, given, times * rest)
        given += len(times) * rest
    return turns * WHOLE + max(busy)


def _given(busy: list[int], given: int, times: list[int]) -> list[int]:
    """What programs are busy for after ``times``, behind as many blocks as ``given``."""
    busy = busy.copy()
    n_programs = len(busy)
    for i, time in enumerate(times, given):
        i_turn, i_program = divmod(i, n_programs)
        busy[n_programs - 1 - i_program if i_turn % 2 else i_program] += time
    return busy

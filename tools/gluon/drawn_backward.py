"""Cases of Hopper's gradients drawn at random, each from its number, run on the CPU.

    TRITON_INTERPRET=1 python -m tools.gluon.drawn_backward --first 0 --count 100

tells what was found of each case: errors beyond the bars, races and deadlocks, and gradients that
are other bits in another order. ``--lines`` tells lines of the kernels that no case reached.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from random import Random
from typing import Any

from tests.gluon.backward_cases import NAMES, ONE, SHORT, WIDE, Case, alike, run
from tests.kernels.interpreted import Errors, _of_draw, judge, prepare


def draw(seed: int, most: int = 1 << 18) -> Case:
    """Any case the kernels take, of ``most`` scores."""
    from kernels.attention.common.numerics.exactness import FEW_KEYS, keys_seen
    from kernels.attention.hopper.backward import launch

    r = Random(seed)
    while True:
        D = r.choice((40, 64, 64, 64, 72, 80, 96, 120, 128, 128, 128, 136, 160, 192, 256))
        of = ONE if D <= 64 else WIDE if D > 128 else r.choice((ONE, SHORT, SHORT))
        packed = of == ONE and r.random() < 0.4
        causal = r.random() < 0.7
        window = None
        if causal and not packed and r.random() < 0.45:
            window = r.choice((25, 40, 64, 100, 130, 500)), r.choice((0, 0, 0, 3, 64, 90))
        H, G = r.choice(((1, 1), (2, 2), (2, 1), (4, 2), (6, 2), (3, 1), (3, 3), (4, 1), (8, 2)))
        count = r.randint(1, 6 if packed else 3)

        def length() -> int:
            n = int(2.0 ** r.uniform(5.0, 9.6))
            if r.random() < 0.4:
                n = max(64, n // 64 * 64)
            return n + r.choice((0, 0, 0, 1, -1))

        if packed:
            some = (0, 0, 1, 1, 2, 17, 33, 64, 128)
            k_lengths = tuple(r.choice((length(), r.choice(some))) for _ in range(count))
            # Rows of few keys are few: a kernel that is not launched here does them again
            # (portable/backward/short_sequences.py).
            q_lengths = tuple(
                r.choice((length(), r.choice(some), n)) if n > FEW_KEYS else r.choice((0, n))
                for n in k_lengths
            )
        else:
            S = length()
            q_lengths, k_lengths = (S,) * count, (r.choice((S, length(), length())),) * count
        stages = r.choice({ONE: (0, 2), SHORT: (0, 3, 4)}.get(of, (0, 2, 3, 4)))
        case = Case(
            q=q_lengths,
            k=k_lengths,
            H=H,
            G=G,
            D=D,
            dtype=r.choice(("float16", "bfloat16")),
            causal=causal,
            window=window,
            packed=packed,
            overstated=r.choice((0, 0, 1000)) if packed else 0,
            scale=r.choice((None, None, None, 0.01, 0.3)),
            lse_too=r.random() < 0.5,
            view=r.choice(("contiguous", "contiguous", "transposed", "apart")),
            of=of,
            stages=stages,
            together=r.choice((0, 0, 1, 2, 3)) if causal and of == WIDE else 0,
            multiprocessors=r.randint(1, 8),
        )
        scores = sum(a * b for a, b in zip(case.q, case.k, strict=True)) * H
        longest_q, longest_k = max(case.q), max(case.k)
        if packed:
            # What hopper.supported asks of packed sequences up to head dim 128.
            longest_q, longest_k = max(longest_q, case.overstated), max(longest_k, case.overstated)
            seen = keys_seen(longest_k, causal, longest_k - longest_q, None, longest_q)
            taken = longest_q > 64 and sum(case.q) >= 64
        else:
            limits = case.mask
            seen = keys_seen(
                longest_k, causal, limits["causal_offset"], limits["left_offset"], longest_q
            )
            taken = longest_q >= (64 if D <= 64 else 32)
        if case.of != WIDE and not case.stages and D > 64:
            # What the launch chooses.
            few = not packed and seen <= (launch.SHORT_WINDOW if window else launch.SHORT)
            case = replace(case, of=SHORT if few else ONE)
        if taken and seen > FEW_KEYS and scores <= most:
            return case


class Lines(AbstractContextManager["Lines"]):
    """Lines of modules below ``folder`` that ran, in any thread."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.ran: dict[str, set[int]] = {}
        self.codes: dict[str, set[Any]] = {}

    def __enter__(self) -> Lines:
        sys.settrace(self._call)
        threading.settrace(self._call)
        return self

    def __exit__(self, *_: Any) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        if self.folder not in frame.f_code.co_filename:
            return None
        ran = self.ran.setdefault(frame.f_code.co_filename, set())
        self.codes.setdefault(frame.f_code.co_filename, set()).add(frame.f_code)

        def line(frame: Any, event: str, argument: Any) -> Any:
            if event == "line":
                ran.add(frame.f_lineno)
            return line

        return line

    def missed(self) -> dict[str, list[int]]:
        """Of functions that were called at all."""
        found = {}
        for name, codes in self.codes.items():
            there = {line for code in codes for _, _, line in code.co_lines() if line}
            there -= {code.co_firstlineno for code in codes}
            found[name] = sorted(there - self.ran[name])
        return found


def find(seed: int, case: Case, orders: int) -> dict[str, Errors]:
    """Errors of the first numbers; those beyond a bar are drawn again and may raise, as what is
    wrong with a kernel does, and gradients that hang on one of the ``orders``."""
    first: dict[str, Errors] = {}

    def drawn(draw: int) -> dict[str, Errors]:
        found: dict[str, Errors] = _of_draw(draw, run, case, seed)
        first.update(found if not first else {})
        return found

    judge(drawn)
    if orders > 1:
        r = Random(seed)
        seeds = [seed + 1000 * i for i in range(orders)]
        counts = [r.randint(1, 8) for _ in range(orders)]
        assert alike(case, seeds, counts), "gradients are other bits in another order"
    return first


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gluon.drawn_backward")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1e9, help="none is begun later")
    parser.add_argument("--orders", type=int, default=2, help="of each case, compared bit by bit")
    parser.add_argument("--most", type=int, default=1 << 18, help="scores of a case")
    parser.add_argument("--lines", action="store_true")
    given = parser.parse_args(arguments)
    prepare()
    stop, failed = time.monotonic() + given.seconds, 0
    worst = {name: [0.0, 0.0] for name in NAMES}
    forms: Counter[str] = Counter()
    lines = Lines("/kernels/attention/hopper/backward/")
    with lines if given.lines else nullcontext():
        for seed in range(given.first, given.first + given.count):
            if time.monotonic() > stop:
                break
            case = draw(seed, given.most)
            mask = "window" if case.window else "causal" if case.causal else "full"
            forms[f"{case.of} {mask}{' packed' * case.packed}"] += 1
            started = time.monotonic()
            try:
                for name, one in find(seed, case, given.orders).items():
                    ratio = one.rms / one.plain_rms if one.count >= 1000 else 0.0
                    worst[name] = [max(worst[name][0], one.share), max(worst[name][1], ratio)]
            except Exception as error:
                failed += 1
                print(f"FAILED {seed} {case!r}")
                traceback.print_exception(error)
            print(f"{seed} {case} {time.monotonic() - started:.1f} s", flush=True)
    print(f"{forms.total()} cases, {failed} failed; {dict(forms)}")
    print("worst by bar, RMS:", {name: [round(x, 3) for x in one] for name, one in worst.items()})
    if given.lines:
        for name, missed in lines.missed().items():
            print(name.rsplit("/", 1)[-1], "not reached:", missed)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

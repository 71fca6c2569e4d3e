"""Run benchmarks on the card, one a line of the input, and print one line of JSON for each.

    python -m tools.microbenchmarks.worker FOLDER

FOLDER holds their machine code. This is a process of its own: a kernel that fails leaves the
context unusable, and one that hangs is ended with the process. :mod:`.session` starts the next.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from .card import Card, CardError, rounds
from .programs.benchmark import Benchmark
from .programs.suite import benchmarks

_LAUNCHES = 7
_WARM_BLOCKS, _WARM_ROUNDS = 264, 200_000
_FRESH = ("memory", "stream")


def timed(card: Card, one: Benchmark, cubin: bytes) -> list[dict[int, float]]:
    """Time a benchmark.

    Args:
        card: Where.
        one: Its program.
        cubin: Its machine code.

    Returns:
        For each launch, the clocks of the kernel of each number of steps.

    Raises:
        CardError: It failed.
    """
    loaded, data = card.load(cubin), card.prepare(one.data)
    found = []
    for _ in range(_LAUNCHES):
        clocks: dict[int, float] = {}
        for count in one.counts:
            if one.data in _FRESH:
                card.flush()
            read = card.run(loaded, count, one.threads, data, rounds(one.data, count))
            clocks[count] = max(end for _, end in read) - min(start for start, _ in read)
        found.append(clocks)
    card.free(data)
    return found


def warm(card: Card, one: Benchmark, cubin: bytes) -> None:
    """Keep all of the card busy for a moment, so that its clock rises.

    Args:
        card: Which.
        one: A benchmark without data.
        cubin: Its machine code.

    Raises:
        CardError: It failed.
    """
    loaded, data = card.load(cubin), card.prepare("none")
    card.run(loaded, one.counts[-1], one.threads, data, _WARM_ROUNDS, _WARM_BLOCKS)
    card.free(data)


def main() -> int:
    """Answer each name on the input, until it ends.

    Returns:
        0; 1 where there is no card.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.microbenchmarks.worker",
        description="Run benchmarks on the card, one a line of the input.",
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="of their machine code")
    folder = parser.parse_args().folder
    try:
        card = Card()
    except CardError as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return 1
    known = {one.name: (number, one) for number, one in enumerate(benchmarks())}
    print(json.dumps({"card": card.name, "architecture": card.architecture}), flush=True)
    is_warm = False
    for line in sys.stdin:
        number, one = known[line.rstrip("\n")]
        cubin = (folder / f"{number}.cubin").read_bytes()
        try:
            if not is_warm and one.data == "none":
                warm(card, one, cubin)
                is_warm = True
            answer: dict[str, object] = {"clocks": timed(card, one, cubin)}
        except CardError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

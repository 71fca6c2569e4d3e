"""Cases over the grids of FlashAttention's own test suites, through kernels.flash_attn on a GPU.

    python -m tools.kernels.flash_attn_suites --cases 1500 --seed 1 --jobs 14

Dtypes, heads, masks, head dims, lengths and the options of caches are drawn from the grids of
FlashAttention-2's and -3's public tests; the bar is ours, against fp64. A case follows from its
seed only, and ``--only SEED`` repeats it. A class is a function with its options: for each the
table says how many passed, failed and were refused, which is an error that says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from tests.kernels import flash_attn_cases, kvcache_case
from tests.kernels.findings import Drawn
from tools.kernels.drawn_cases import SHAPES
from tools.kernels.random_configurations import Told, every, once

FA2_DIMS = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
FA3_DIMS = (64, 96, 128, 192, 256)
FA2_LENGTHS = (
    *((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256)),
    *((1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048), (1, 147)),
)
FA2_SAME = (97, 128, 200, 257, 384, 512, 768, 1024, 1025, 2048)
FA3_LENGTHS = (
    *((1, 1), (64, 128), (128, 192), (256, 256), (239, 1), (799, 3), (113, 203), (113, 128)),
    *((128, 217), (113, 211), (108, 256), (256, 512), (384, 256), (640, 128), (512, 256)),
    *((1024, 1024), (1023, 1024), (1024, 1023), (1, 3), (2, 1), (511, 1), (3, 513), (307, 256)),
)
CACHES = (
    *((1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048), (16, 20000)),
    *((128, 128), (256, 512)),
)
FP8 = "float8_e4m3fn"
# What says that a function does not serve, which no case here is to meet.
REFUSED = ("NotImplementedError", "ValueError", "TypeError")


def draw(seed: int, longest: int = 2048) -> Drawn:
    """Options follow from the seed divided by ``SHAPES``, lengths from the seed."""
    options, lengths = Random(seed // SHAPES), Random(seed)
    kinds = {_fa2: 34, _fa2_packed: 26, _fa2_cache: 12, _fa3: 12, _fa3_packed: 10, _fa3_cache: 10}
    (kind,) = options.choices(list(kinds), list(kinds.values()))
    name, case, run = kind(options, lengths, longest)
    names = ("out", "lse") if isinstance(case, kvcache_case.Case) else ()
    return Drawn(name, case, run, names, portable=False)


def _heads(options: Random, heads: int, grouped: int) -> dict[str, int]:
    return {"H": heads, "G": options.choice((heads, 1, grouped))}


def _window(options: Random, lengths: Random, keys: int) -> tuple[int, int]:
    if options.random() < 0.5:
        return -1, -1
    return lengths.randrange(max(keys, 1)), lengths.randrange(max(keys, 1))


def _of_scores(options: Random, lengths: Random, pair: tuple[int, int]) -> dict[str, Any]:
    asked = {"causal": options.random() < 0.5, "window": _window(options, lengths, pair[1])}
    return asked | {"dtype": options.choice(("float16", "bfloat16"))}


def _fa2_options(options: Random, lengths: Random, pair: tuple[int, int]) -> dict[str, Any]:
    given: dict[str, Any] = _of_scores(options, lengths, pair)
    given["softcap"], given["dropout"] = options.choice(((0.0, 0.0), (0.0, 0.17), (50.0, 0.0)))
    given["alibi"] = options.random() < 0.5
    return given | {"D": options.choice(FA2_DIMS)}


def _pair(lengths: Random, pairs: tuple[tuple[int, int], ...], longest: int) -> tuple[int, int]:
    rows, keys = lengths.choice(pairs)
    return min(rows, longest), min(keys, longest)


def _fa2(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    form = options.choice(("separate", "kvpacked", "qkvpacked"))
    pair = _pair(lengths, FA2_LENGTHS, longest)
    if form == "qkvpacked":
        pair = (min(lengths.choice(FA2_SAME), longest),) * 2
    heads = {"H": 9, "G": 9} if form == "qkvpacked" else _heads(options, 6, 2)
    given = _fa2_options(options, lengths, pair)
    if given["softcap"]:
        heads = {"H": 4, "G": min(heads["G"], 4)}
    both = {"q": (pair[0],) * 4, "k": (pair[1],) * 4}
    case = flash_attn_cases.Case(form=form, **both, **heads, **given)
    return f"fa2 {form}", case, flash_attn_cases.run


def _ragged(lengths: Random, rows: int, many: int, least: int = 1) -> tuple[int, ...]:
    """Lengths of the sequences of a padded batch, as FlashAttention's tests draw them."""
    return tuple(lengths.randint(max(least, rows - 20), rows) for _ in range(many))


def _fa2_packed(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    form = options.choice(("separate", "kvpacked", "qkvpacked"))
    pair = _pair(lengths, FA2_LENGTHS, longest)
    if form == "qkvpacked":
        pair = (min(lengths.choice(FA2_SAME), longest),) * 2
    heads = {"H": 6, "G": 6} if form == "qkvpacked" else _heads(options, 6, 2)
    given = _fa2_options(options, lengths, pair)
    q = _ragged(lengths, pair[0], 4)
    k = q if form == "qkvpacked" else _ragged(lengths, pair[1], 4)
    name = f"fa2 varlen {form}"
    if form == "separate" and options.random() < 0.4:
        page = options.choice((16, 256, 512))
        given |= {"page": page, "dropout": 0.0, "gradients": False}
        name = "fa2 varlen block_table"
    case = flash_attn_cases.Case(packed=True, form=form, q=q, k=k, **heads, **given)
    return name, case, flash_attn_cases.run


def _fa3_options(options: Random, lengths: Random, pair: tuple[int, int]) -> dict[str, Any]:
    given: dict[str, Any] = _of_scores(options, lengths, pair)
    given["softcap"] = options.choice((0.0, 15.0))
    given["D"] = options.choice(FA3_DIMS)
    kind = options.choices(("plain", "qv", "fp8"), (5, 2, 2))[0]
    if kind == "qv":
        given |= {"qv": True, "D": 64, "DV": options.choice((256, 512)), "gradients": False}
    elif kind == "fp8":
        given |= {"dtype": FP8, "gradients": False}
    elif 128 < given["D"] <= 192:
        given["DV"] = options.choice((128, 0))
    elif given["D"] == 64:
        given["DV"] = options.choice((256, 512, 0))
    if options.random() < 0.4 and pair[0] <= pair[1]:
        given["chunk"] = lengths.randint(1, 2 * pair[1])
    return given | _heads(options, 6, 2)


def _fa3(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    pair = _pair(lengths, FA3_LENGTHS, longest)
    both = {"q": (pair[0],) * 4, "k": (pair[1],) * 4}
    case = flash_attn_cases.Case(suite="fa3", **both, **_fa3_options(options, lengths, pair))
    return f"fa3 {_asked(case)}", case, flash_attn_cases.run


def _fa3_packed(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    pair = _pair(lengths, FA3_LENGTHS, longest)
    given = _fa3_options(options, lengths, pair)
    q, k = _ragged(lengths, pair[0], 4), _ragged(lengths, pair[1], 4, least=0)
    if options.random() < 0.5:
        given["used_q"] = tuple(lengths.randint(0, n) for n in q)
        given["used_k"] = tuple(lengths.randint(0, n) for n in k)
    case = flash_attn_cases.Case(suite="fa3", packed=True, q=q, k=k, **given)
    return f"fa3 varlen {_asked(case)}", case, flash_attn_cases.run


def _asked(case: flash_attn_cases.Case) -> str:
    kind = "qv" if case.qv else "fp8" if case.in_fp8 else "16 bits"
    return kind + " chunks" * bool(case.chunk) + " used" * bool(case.used_q)


def _cache(options: Random, lengths: Random, longest: int, batch: int) -> dict[str, Any]:
    """Of both suites: as many keys as find room with the new ones."""
    rows, room = CACHES[lengths.randrange(len(CACHES))]
    room = min(room, 10 * longest)
    rows = min(rows, room)
    batch = batch if room <= longest else 2
    new = options.choice((0, rows, lengths.randint(1, rows)))
    given: dict[str, Any] = {"S": rows, "room": room, "new": new, **_heads(options, 6, 3)}
    least = new or 1
    keys = [lengths.randint(least, room) for _ in range(batch)]
    given |= {"keys": tuple(keys), "splits": options.choice((0, 1, 3))}
    given["causal"] = options.random() < 0.5
    given["window"] = (-1, -1) if given["causal"] else _window(options, lengths, room)
    if options.random() < 0.4:
        given["leftpad"] = tuple(lengths.randint(0, max(n - new - 1, 0)) for n in keys)
    given["interleaved"] = options.random() < 0.5
    given["rotary_fraction"] = options.choice((0.0, 0.5, 1.0)) if new else 0.0
    return given


def _fa2_cache(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    D = options.choice((32, 59, 64, 80, 128, 256))
    given = _cache(options, lengths, longest, 2)
    given["rotary"] = int(given.pop("rotary_fraction") * D) // 16 * 16
    given |= {"alibi": options.random() < 0.5, "page": options.choice((0, 256))}
    case = kvcache_case.Case(D=D, dtype="float16", **given)
    return "fa2 with_kvcache", case, flash_attn_cases.run_fa2_kvcache


def _fa3_cache(options: Random, lengths: Random, longest: int) -> tuple[str, Any, Any]:
    given = _cache(options, lengths, longest, 5)
    D = options.choice((128, 128, 64, 192))
    kind = options.choices(("plain", "qv", "fp8"), (4, 1, 2))[0]
    if kind == "qv":
        D, given["qv"], given["DV"] = 64, True, options.choice((256, 512))
    elif kind == "fp8":
        given |= {"fp8": FP8, "all_fp8": True, "scaled": options.choice(("", "sequence"))}
    given["rotary"] = int(given.pop("rotary_fraction") * D) // 16 * 16
    given["page"] = options.choice((0, 1, 4, 128))
    given["rows_elsewhere"] = options.random() < 0.5
    if options.random() < 0.4 and (given["causal"] or given["window"] != (-1, -1)):
        given["chunk"] = lengths.randint(1, 2 * given["room"])
    rows, new, keys = given["S"], given["new"], given["keys"]
    if options.random() < 0.5:
        queries = [lengths.randint(1, rows) for _ in keys]
        given |= {"queries": tuple(queries), "S": 2}
        if new:
            given |= {"new": 0, "news": tuple(lengths.randint(1, new) for _ in keys)}
    if given["rotary"] and options.random() < 0.5:
        given["turned_from"] = tuple(lengths.randint(0, n - new) for n in keys)
    case = kvcache_case.Case(D=D, dtype="bfloat16", **given)
    return f"fa3 with_kvcache {kind}", case, flash_attn_cases.run_fa3_kvcache


@dataclass
class Sum:
    """Of one class: how many passed, failed and were refused, and the worst by the bar."""

    passed: int = 0
    failed: int = 0
    refused: int = 0
    share: float = 0.0

    def add(self, told: Told) -> str:
        self.share = max([self.share, *(one.share for one in told.findings)])
        if not told.problem:
            self.passed += 1
            return "passed"
        if told.problem.startswith(REFUSED):
            self.refused += 1
            return "refused"
        self.failed += 1
        return "failed"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.flash_attn_suites")
    parser.add_argument("--cases", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=1, help="of the first: seed * 1,000,000")
    parser.add_argument("--jobs", type=int, default=14, help="processes, each with its own context")
    parser.add_argument("--seconds", type=float, default=420.0, help="what is not done is not")
    parser.add_argument(
        "--longest", type=int, default=2048, help="no length of a dense case is more"
    )
    parser.add_argument("--only", type=int, metavar="SEED", help="this case only")
    args = parser.parse_args(given)
    if args.only is not None:
        return once(args.only, args.longest, draw)
    first, started = args.seed * 1_000_000, time.monotonic()
    seeds = range(first, first + args.cases)
    groups = [list(seeds[at : at + SHAPES]) for at in range(0, args.cases, SHAPES)]
    sums: dict[str, Sum] = defaultdict(Sum)
    for told in every(groups, args.jobs, args.seconds, args.longest, draw):
        outcome = sums[told.operator].add(told)
        if outcome != "passed":
            print(f"{outcome} --only {told.seed} {draw(told.seed, args.longest)}", flush=True)
            print(f"    {told.problem}", flush=True)
    print(f"{'class':<40}{'passed':>8}{'failed':>8}{'refused':>9}{'worst by bar':>14}")
    for name, one in sorted(sums.items()):
        print(f"{name:<40}{one.passed:>8}{one.failed:>8}{one.refused:>9}{one.share:>14.3f}")
    total = partial(_total, sums)
    done = total("passed") + total("failed") + total("refused")
    print(
        f"seeds from {first}: {total('passed')} passed, {total('failed')} failed, "
        f"{total('refused')} refused; {done} of {args.cases} in "
        f"{time.monotonic() - started:.0f} s"
    )
    return int(total("passed") < args.cases)


def _total(sums: dict[str, Sum], name: str) -> int:
    return sum(getattr(one, name) for one in sums.values())


if __name__ == "__main__":
    sys.exit(main())

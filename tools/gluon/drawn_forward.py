"""Cases of Hopper's attention forward passes drawn at random, each from its seed alone.

    python -m tools.gluon.drawn_forward --count 300 --first 0

runs so many of each kind, tells those that fail, and counts what their kernels were compiled for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from dataclasses import fields
from random import Random
from typing import Any

from tests.gluon.forward_cases import (
    Case,
    Fp8Case,
    Fp8Cut,
    PackedFp8Case,
    forms_launched,
    run,
    run_fp8,
)
from tests.kernels.interpreted import Worker, judge, numbers

HEAD_DIMS = (8, 16, 24, 32, 40, 48, 64, 64, 72, 80, 88, 96, 112, 128, 128, 136, 160, 192, 200, 256)
HEADS = ((1, 1), (2, 1), (2, 2), (4, 2), (3, 1), (3, 3), (6, 2))


def _length(random: Random, most: int) -> int:
    """Often about a multiple of what blocks have."""
    if random.random() < 0.5:
        return max(1, min(most, 64 * random.randint(1, most // 64) + random.choice((-1, 0, 0, 1))))
    return random.randint(1, most)


def _config(random: Random, config: Any) -> dict[str, Any]:
    """Any of the values that the fields of ``config`` name; at times none, which is a choice."""
    if random.random() < 0.25:
        return {}
    named = {one.name: one.metadata["values"] for one in fields(config) if one.metadata}
    given = {name: random.choice(values) for name, values in named.items()}
    if "by_head" in (one.name for one in fields(config)):
        given["by_head"] = random.random() < 0.5
    return given


def _packed(random: Random, most: int) -> dict[str, Any]:
    n = random.randint(1, 5)
    q, k = ([random.choice((0, 1, _length(random, most), most)) for _ in range(n)] for _ in "qk")
    # Without a query, or a key, nothing is launched.
    q[0], k[0] = max(1, q[0]), max(1, k[0])
    k = q if random.random() < 0.3 else k
    return {"q": tuple(q), "k": tuple(k), "overstated": random.choice((0, 0, 90))}


def draw(seed: int) -> Case:
    from kernels.attention.hopper.forward.launch import HopperConfig

    random = Random(seed)
    D = random.choice(HEAD_DIMS)
    most = 330 if D > 128 else 1200 if random.random() < 0.1 else 520
    causal = random.random() < 0.5
    if random.random() < 0.3:
        given = _packed(random, most // 2)
        H, G = random.choice(HEADS[:4])
    else:
        given = {"S": _length(random, most), "KV": _length(random, most)}
        if random.random() < 0.4:
            given["KV"] = given["S"]
        elif random.random() < 0.3:
            given["KV"] = 64 * random.randint(1, most // 64)
        given["B"] = random.choice((1, 1, 2))
        H, G = random.choice(HEADS)
    left, right = -1, -1
    if random.random() < (0.4 if causal else 0.15):
        left, right = random.choice((0, 3, 64, 130, 300)), random.choice((0, 5, 70))
    elif random.random() < 0.1:
        right = random.choice((0, 5, 70))
    return Case(
        **given,
        H=H,
        G=G,
        D=D,
        causal=causal,
        window=(left, right),
        dtype=random.choice(("bfloat16", "float16")),
        view=random.choice(("contiguous", "transposed", "fused")),
        scale=random.choice((None, None, None, 0.3)),
        processors=random.randint(1, 8),
        order=random.randrange(2**31),
        config=_config(random, HopperConfig),
    )


def draw_fp8(seed: int) -> Fp8Cut:
    from kernels.attention.hopper.fp8.launch import FEWEST_KEYS, Fp8HopperConfig

    random = Random(seed)
    D = random.choice([one for one in HEAD_DIMS if one >= 16])
    H, G = random.choice(HEADS[:4])
    S, KV = max(65, _length(random, 330)), _length(random, 330)
    out = random.choice(("bfloat16", "float16", "float32"))
    config = _config(random, Fp8HopperConfig)
    if config and out == "float32" and D > 128:  # of which a box holds half the columns
        config["parts"] = max(2, config["parts"])
    case = Fp8Case(
        S=S,
        KV=S if random.random() < 0.4 else KV,
        H=H,
        G=G,
        D=D,
        DV=D,
        out=out,
        scales=random.choice(("none", "tensor", "heads", "sequences")),
        causal=random.random() < 0.5,
        view="beside" if D % 16 else random.choice(("contiguous", "transposed", "beside")),
        scale=random.choice((None, None, 0.3)),
        processors=random.randint(1, 8),
        order=random.randrange(2**31),
        config=config,
    )
    if random.random() < 0.6:
        return case
    drawn = _packed(random, 200)
    q, k = (max(65, drawn["q"][0]), *drawn["q"][1:]), drawn["k"]
    k = (max(k[0], FEWEST_KEYS * len(k)), *k[1:])
    used = tuple(random.randint(0, n + 1) for n in q) if random.random() < 0.3 else ()
    spare = random.choice((0, 0, 70))
    shared = {one.name: getattr(case, one.name) for one in fields(case)}
    shared["view"] = shared["view"].replace("transposed", "by head")
    more = {"q": q, "k": k, "used": used, "spare": spare, "overstated": drawn["overstated"]}
    return PackedFp8Case(**shared, **more)


def check(case: Case | Fp8Cut) -> None:
    """Within the bars, by as many draws of numbers as they need."""

    def drawn(draw: int) -> Any:
        with numbers(draw):
            return run_fp8(case) if isinstance(case, Fp8Cut) else run(case)

    judge(drawn)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gluon.drawn_forward")
    parser.add_argument("--count", type=int, default=100, help="cases of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=600.0, help="what is not done then is not")
    args = parser.parse_args(given)
    started, done, failed = time.monotonic(), 0, 0
    worker = Worker()
    for seed in range(args.first, args.first + args.count):
        if time.monotonic() - started > args.seconds:
            break
        for make in (draw, draw_fp8):
            done += 1
            case = make(seed)
            try:
                worker.run(check, case)
            except Exception as error:  # whatever it is, the next case is another
                failed += 1
                print(
                    f"FAILED seed {seed} {case!r}\n    {type(error).__name__}: {error}", flush=True
                )
    counts: dict[tuple[str, str], Counter[Any]] = defaultdict(Counter)
    for form in worker.run(forms_launched):
        for name, value in form.items():
            counts[str(form["KERNEL"]), name][value] += 1
    worker.close()
    for (kernel, name), values in counts.items():
        told = ", ".join(f"{value} x {count}" for value, count in sorted(values.items(), key=str))
        print(f"{kernel} {name}: {told}")
    seconds = time.monotonic() - started
    print(f"{done} cases from seed {args.first}, {failed} failed, in {seconds:.0f} s")
    return int(failed > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())

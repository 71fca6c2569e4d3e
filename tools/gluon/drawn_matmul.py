"""Products drawn at random, each from its seed alone: sizes, layouts, configurations, forms.

    python -m tools.gluon.drawn_matmul --count 300 --first 0

runs so many, tells those that fail, and counts the kernels they ran.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import fields, replace
from itertools import product
from random import Random
from typing import Any

from kernels.matmul.hopper import choose as hopper_choice
from kernels.matmul.hopper import unaligned
from kernels.matmul.hopper.fp8 import launch as hopper_fp8
from tests.gluon import matmul_cases
from tests.gluon.matmul_cases import Case, Forms
from tests.kernels import test_matmul_fp8
from tests.kernels.interpreted import Errors, Worker, judge

SHARED_BYTES = 227 << 10  # a block may have


def _fits(config: Any, item: int, consumers: int, more: int) -> bool:
    block_k = getattr(config, "block_k", 128) * getattr(config, "blocks", 1)
    stage = (64 * consumers + config.block_n) * block_k * item
    return bool(config.stages * stage + more <= SHARED_BYTES - 1024)


def configurations(kind: type) -> list[Any]:
    """All that a class gives values for."""
    axes = {one.name: one.metadata["values"] for one in fields(kind) if "values" in one.metadata}
    return [kind(**dict(zip(axes, each, strict=True))) for each in product(*axes.values())]


def _size(random: Random, block: int, most: int) -> int:
    """At times about whole blocks, at times anything."""
    if random.random() < 0.5:
        return max(1, min(most, random.randint(1, 6) * block + random.choice((-8, -1, 0, 0, 1, 8))))
    return max(1, int(most ** random.random()))


def _pad(columns: int, whole: int) -> int:
    """So that rows of whole 16 bytes are no multiple of ``whole`` elements apart."""
    return 8 if -(-columns // 8) * 8 % whole == 0 else 0


def draw(seed: int) -> Case:
    random = Random(seed)
    make = random.choices((_of_16_bits, _of_lines, _of_tf32, _of_fp8), (5, 2, 2, 4))[0]
    return replace(make(random), seed=seed)


def _common(random: Random) -> dict[str, Any]:
    return {
        "bias": random.random() < 0.5,
        "activation": random.choice((None, "relu", "gelu", "silu")),
        "multiprocessors": random.randint(1, 8),
    }


def _of_16_bits(random: Random) -> Case:
    given = _common(random)
    given["dtype"] = random.choice(("bfloat16", "float16"))
    given["layout"] = random.choice(("nn", "nt", "tn", "tt"))
    if random.random() < 0.6:
        config = random.choice(configurations(hopper_choice.HopperConfig))
        staging = 64 * config.consumers * min(config.store_n, config.block_n) * 2
        if _fits(config, 2, config.consumers, staging):
            given["config"] = config
    elif random.random() < 0.2:
        given["config"] = hopper_choice.WIDE_ONCE
        given["multiprocessors"] = 8
    config = given.get("config") or hopper_choice.SMALL
    M, N = _size(random, 64 * config.consumers, 600), _size(random, config.block_n, 700)
    K = _size(random, config.block_k * random.choice((1, config.stages)), 1200)
    if (
        random.random() < 0.2
        and 6 * hopper_choice.tiles(hopper_choice.WIDE, M, N) >= 5 * given["multiprocessors"]
    ):
        given["residual"] = random.choice(("apart", "in place"))
        staging = 64 * config.consumers * config.block_n * 2
        if "config" in given and not _fits(config, 2, config.consumers, staging):
            del given["config"]
    pads = (0, 0, 8, 24)
    given["pad"] = random.choice(pads), random.choice(pads)
    given["begin"] = random.choice((0, 8, 40)), random.choice((0, 8, 24))
    return Case(M=M, N=N, K=K, **given)


def _of_lines(random: Random) -> Case:
    """Of rows of b that begin anywhere in a line of memory, and of a likewise or with a line."""
    given = _common(random)
    given["dtype"] = random.choice(("bfloat16", "float16"))
    given["layout"] = random.choice(("nn", "nt"))
    given["multiprocessors"] = random.choice((1, 2, 3, 8))
    M, N = 8 * _size(random, 32, 150), _size(random, 64, 600)
    K = _size(random, 64, 500)
    rows_of_b = K if given["layout"][1] == "t" else N
    # Eight classes of rows of b; of those of a as many, or one.
    pitch = -(-K // 8) * 8
    a_pad = _pad(K, 16) if random.random() < 0.7 else -pitch % 64
    given["pad"] = a_pad, _pad(rows_of_b, 16)
    if random.random() < 0.6:
        given["config"] = random.choice((unaligned.TALL, unaligned.BROAD))
    return Case(M=M, N=N, K=K, begin=(8 * random.randint(0, 9), 0), **given)


def _of_tf32(random: Random) -> Case:
    given = _common(random)
    given |= {"dtype": "float32", "tf32": True, "layout": random.choice(("nn", "nt", "tn", "tt"))}
    if random.random() < 0.6:
        config = random.choice(configurations(hopper_choice.HopperConfig))
        staging = 64 * config.consumers * config.store_n * 4
        if config.store_n <= config.block_n and _fits(config, 4, config.consumers, staging):
            given["config"] = config
    config = given.get("config") or hopper_choice.SMALL
    M, N = 511 + _size(random, 64, 400), _size(random, config.block_n, 500)
    K = _size(random, config.block_k * random.choice((1, config.stages)), 400)
    pads = (0, 4, 12)
    given["pad"] = random.choice(pads), random.choice((*pads, 1))
    return Case(M=M, N=N, K=K, **given)


def _of_fp8(random: Random) -> Case:
    given = _common(random)
    given |= {"dtype": "float8_e4m3fn", "layout": "nt"}
    given["out"] = random.choice(("bfloat16", "float16", "float32"))
    given["scales"] = (
        random.choice(("none", "tensor", "rows", "blocks")),
        random.choice(("none", "tensor", "columns", "blocks")),
    )
    kinds = (hopper_fp8.Fp8HopperConfig, hopper_choice.Fp8OnceConfig)
    if random.random() < 0.7:
        config = random.choice(configurations(random.choice(kinds)))
        if getattr(config, "pairs", False):
            config = replace(config, block_n=128, consumers=2)
        consumers = getattr(config, "consumers", 1)
        refused = hopper_fp8.refused(config, by_blocks="blocks" in given["scales"])
        if _fits(config, 1, consumers, 64 * 128 * (2 * consumers)) and not refused:
            given["config"] = config
    config = given.get("config") or hopper_fp8.NARROW
    M, N = _size(random, 64, 600), _size(random, config.block_n, 700)
    K = _size(random, 128 * random.choice((1, config.stages)), random.choice((2500, 2500, 9000)))
    given["pad"] = random.choice((0, 16, 48)), random.choice((0, 16))
    return Case(M=M, N=N, K=K, **given)


def check(worker: Worker, case: Case) -> Forms:
    """Within the bars; what its kernels were launched for."""
    if case.in_fp8:
        found, forms = worker.run(matmul_cases.run_fp8, case)
        share = test_matmul_fp8.shares(*found)
        assert bool((share <= 1.0).all()), f"{float(share.max()):.2f} of the bound"
        return forms
    launched: list[Forms] = []

    def drawn(draw: int) -> dict[str, Errors]:
        errors, forms = worker.run(matmul_cases.run, case, draw)
        launched.append(forms)
        return {"out": errors}

    judge(drawn)
    return launched[0]


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.gluon.drawn_matmul")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=600.0, help="what is not done then is not")
    args = parser.parse_args(given)
    started, done, failed = time.monotonic(), 0, 0
    ran: Counter[str] = Counter()
    worker = Worker()
    for seed in range(args.first, args.first + args.count):
        if time.monotonic() - started > args.seconds:
            break
        done += 1
        case = draw(seed)
        try:
            ran.update(name for name, _ in check(worker, case))
        except Exception as error:  # whatever it is, the next case is another
            failed += 1
            print(f"FAILED seed {seed} {case!r}\n    {type(error).__name__}: {error}", flush=True)
    worker.close()
    told = ", ".join(f"{name} {count}" for name, count in ran.most_common())
    seconds = time.monotonic() - started
    print(f"{done} cases from seed {args.first}, {failed} failed, in {seconds:.0f} s: {told}")
    return int(failed > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())

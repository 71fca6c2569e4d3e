"""Every form that a launch of Hopper's Gluon kernels of products has, and a case of each."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

from kernels.matmul.hopper.choose import (
    LINES,
    MEDIUM,
    SMALL,
    TINY,
    TRIPLE,
    WIDE_ONCE,
    Fp8OnceConfig,
    HopperConfig,
)
from kernels.matmul.hopper.choose import WIDE as WIDE_OF_16
from kernels.matmul.hopper.fp8.launch import FEW as FEW_OF_FP8
from kernels.matmul.hopper.fp8.launch import (
    LARGE,
    NARROW,
    OBLONG,
    SQUARE,
    WIDE,
    Fp8HopperConfig,
)
from kernels.matmul.hopper.unaligned import BROAD, TALL
from tests.gluon.matmul_cases import Case

PERSISTENT, ONCE = ("matmul_hopper",), ("matmul_hopper_once",)
FP8, FP8_ONCE = ("matmul_hopper_fp8",), ("matmul_hopper_fp8_once",)
LAYOUTS = ("nn", "nt", "tn", "tt")
ACTIVATIONS = (None, "relu", "gelu", "silu")


def _several_tiles(**given: Any) -> Case:
    return Case(**{"M": 333, "N": 521, "K": 200, "kernels": PERSISTENT, **given})


def _one_tile(**given: Any) -> Case:
    return Case(**{"M": 150, "N": 203, "K": 333, "kernels": ONCE, "multiprocessors": 8, **given})


def _by_class(**given: Any) -> Case:
    return Case(
        **{"M": 520, "N": 264, "K": 200, "kernels": PERSISTENT, "multiprocessors": 1, **given}
    )


def _tf32(**given: Any) -> Case:
    sizes = {"M": 515, "N": 137, "K": 101, "kernels": PERSISTENT}
    return Case(**sizes, dtype="float32", tf32=True, **given)


def in_fp8(
    config: Any, scales: tuple[str, str], kernels: tuple[str, ...] = FP8, **given: Any
) -> Case:
    sizes = {"M": 200, "N": 171, "K": 300, **given}
    kind = {"dtype": "float8_e4m3fn", "layout": "nt"}
    return Case(**sizes, **kind, kernels=kernels, config=config, scales=scales)


CASES = [
    # Several tiles a program, as they are chosen.
    *(
        _several_tiles(layout=layout, activation=one, bias=one is None, multiprocessors=i + 1)
        for i, (layout, one) in enumerate(zip(LAYOUTS, ACTIVATIONS, strict=True))
    ),
    _several_tiles(M=1100, N=130, K=70, dtype="float16", bias=True),  # two groups of rows of tiles
    _several_tiles(M=256, N=384, multiprocessors=5, pad=(8, 24)),  # one consumer
    *(
        _several_tiles(residual=place, activation=one, bias=True, multiprocessors=2, layout=layout)
        for place, one, layout in (("apart", None, "nt"), ("in place", "gelu", "tn"))
    ),
    # What programs do not share evenly, in halves and quarters, some beyond the last column.
    *(
        _several_tiles(
            M=M, N=N, layout=layout, activation=one, bias=one != "relu", multiprocessors=n
        )
        for M, N, n, layout, one in (
            (200, 760, 4, "nn", None),  # 6 tiles
            (130, 1300, 8, "nt", "gelu"),  # 12
            (600, 250, 4, "tn", "relu"),  # 5
            (640, 300, 9, "tt", "silu"),  # 10
        )
    ),
    _several_tiles(config=WIDE_OF_16, M=128, N=1300, bias=True, multiprocessors=5),  # 6 tiles
    _several_tiles(config=WIDE_OF_16, M=600, N=500, K=90, multiprocessors=9, layout="tn"),  # 10
    # Three consumers.
    *(
        _several_tiles(
            config=TRIPLE, layout=layout, activation=one, bias=one != "relu", multiprocessors=n
        )
        for n, layout, one in (
            (2, "nn", "gelu"),
            (3, "nt", None),
            (5, "tn", "silu"),
            (20, "tt", "relu"),
        )
    ),
    _several_tiles(
        M=700, N=120, config=SMALL, multiprocessors=10, dtype="float16"
    ),  # 11 of one consumer
    # And in other sizes.
    _several_tiles(config=HopperConfig(1, 32, block_k=32, stages=2, store_n=32, group_m=4)),
    _several_tiles(config=HopperConfig(1, 64, block_k=128, stages=2), layout="tt", K=90),
    _several_tiles(
        config=HopperConfig(2, 128, stages=5, store_n=32), layout="nt", activation="silu"
    ),
    _several_tiles(config=HopperConfig(2, 64, block_k=32, stages=9, group_m=16), multiprocessors=2),
    _several_tiles(
        config=HopperConfig(1, 128, block_k=32, stages=3, store_n=128),
        residual="apart",
        activation="silu",
        multiprocessors=1,
    ),
    # One tile a program.
    *(
        _one_tile(layout=layout, activation=one, bias=one != "relu")
        for layout, one in zip(LAYOUTS, ACTIVATIONS[::-1], strict=True)
    ),
    _one_tile(M=1, N=1, K=1),
    _one_tile(M=65, N=64, K=64, dtype="float16"),
    _one_tile(M=256, N=256, K=128, config=MEDIUM, activation="gelu"),
    *(  # as wide as they get, all columns at once
        _one_tile(
            M=M,
            N=N,
            K=K,
            layout=layout,
            activation=one,
            bias=one != "relu",
            dtype=kind,
            config=WIDE_ONCE,
        )
        for M, N, K, layout, one, kind in (
            (512, 512, 333, "nn", None, "float16"),
            (500, 510, 72, "nt", "gelu", "bfloat16"),
            (450, 500, 40, "tn", "relu", "bfloat16"),
            (1000, 200, 260, "tt", "silu", "float16"),
        )
    ),
    _one_tile(M=512, N=512, K=200, config=HopperConfig(2, 256, stages=3), bias=True),
    *(
        _one_tile(M=M, N=N, K=K, layout=layout, activation=one, bias=one is None, config=config)
        for M, N, K, layout, one, config in (
            (512, 500, 260, "nn", None, None),  # as they are chosen
            (400, 264, 512, "nt", "gelu", WIDE_ONCE),
            (300, 512, 600, "tn", "relu", replace(WIDE_ONCE, stages=3)),
            (200, 130, 333, "tt", "silu", replace(WIDE_ONCE, stages=2, store_n=64)),
            (128, 256, 255, "nn", "gelu", WIDE_ONCE),
        )
    ),
    _one_tile(M=512, N=30, K=1000, config=TINY),  # four rows of tiles together
    _one_tile(M=100, N=100, K=100, config=HopperConfig(2, 32, block_k=32, stages=2, store_n=32)),
    *(
        _one_tile(M=M, N=N, K=800, layout=layout, multiprocessors=4, bias=True)
        for M, N, layout in ((5, 128, "nn"), (16, 252, "nt"), (33, 500, "tn"), (64, 520, "nt"))
    ),
    # Rows that begin anywhere in a line of memory: 8, 4, 2 and 1 classes of them.
    *(
        _one_tile(
            M=M, N=130, K=K, begin=(begin, 0), layout=order, activation=one, multiprocessors=n
        )
        for M, K, begin, order, one, n in (
            (1000, 200, 8, "nt", None, 32),
            (500, 208, 0, "nn", "gelu", 16),
            (250, 224, 48, "nn", "relu", 8),
            (127, 256, 24, "nn", None, 4),
        )
    ),
    _one_tile(M=152, K=200, config=LINES),
    *(
        _by_class(config=config, layout=layout, activation=one, bias=one is None, begin=(begin, 0))
        for (config, layout), one, begin in zip(
            product((TALL, BROAD), ("nn", "nt")), ACTIVATIONS, (0, 8, 24, 72), strict=True
        )
    ),
    _by_class(M=2048, N=248, K=72),  # as it is chosen
    _by_class(K=192, config=TALL, multiprocessors=2, begin=(16, 0)),
    # K is split.
    *(
        _one_tile(M=M, N=N, K=K, activation=one, bias=True, layout=layout)
        for M, N, K, one, layout in ((72, 40, 1664, "gelu", "nn"), (65, 100, 2300, None, "tt"))
    ),
    # Parts of such rows the copy engine cannot write: not split.
    _one_tile(M=72, N=37, K=1664),
    # In tf32.
    *(
        _tf32(layout=layout, activation=one, bias=one is None, multiprocessors=i + 1)
        for i, (layout, one) in enumerate(zip(LAYOUTS, ACTIVATIONS, strict=True))
    ),
    _tf32(multiprocessors=20, layout="tn", activation="gelu", pad=(0, 1)),
    _tf32(multiprocessors=24, bias=True),
    _tf32(config=HopperConfig(2, 32, block_k=32, stages=8, store_n=32, group_m=4)),
    # In fp8.
    *(
        in_fp8(None, scales, out=out, activation=one, bias=one != "silu", multiprocessors=2)
        for scales, out, one in (
            (("none", "none"), "bfloat16", None),
            (("tensor", "columns"), "float16", "relu"),
            (("rows", "tensor"), "float32", "gelu"),
            (("blocks", "blocks"), "bfloat16", "silu"),
            (("blocks", "columns"), "float32", "relu"),
            (("rows", "blocks"), "float16", "gelu"),
        )
    ),
    *(
        in_fp8(config, scales, N=300, out=out, activation=one, multiprocessors=3)
        for config, scales, out, one in (
            (Fp8HopperConfig(256, 128, 3), ("rows", "columns"), "bfloat16", "silu"),
            (Fp8HopperConfig(256, 128, 4, group_m=4), ("none", "tensor"), "float32", None),
        )
    ),
    *(  # pairs of blocks: behind the last whole step none, one, two and three
        in_fp8(replace(NARROW, stages=n), scales, K=K, out=out, activation=one, multiprocessors=1)
        for n, scales, K, out, one in (
            (6, ("blocks", "blocks"), 1024, "bfloat16", None),
            (6, ("blocks", "blocks"), 1000, "bfloat16", None),
            (3, ("blocks", "columns"), 600, "float16", "relu"),
            (4, ("rows", "blocks"), 600, "float32", "gelu"),
            (4, ("rows", "blocks"), 700, "float32", "gelu"),
            (4, ("blocks", "blocks"), 840, "bfloat16", None),
            (5, ("blocks", "none"), 900, "float32", None),
            (3, ("rows", "blocks"), 200, "float16", "silu"),
        )
    ),
    in_fp8(NARROW, ("tensor", "blocks"), M=1100, N=100, K=130),
    *(
        in_fp8(config, scales, FP8_ONCE, M=M, K=1200, out=out, activation=one, bias=one is None)
        for config, scales, M, out, one in (
            (FEW_OF_FP8[0], ("none", "none"), 5, "bfloat16", None),
            (FEW_OF_FP8[1], ("tensor", "tensor"), 20, "float16", "relu"),
            (FEW_OF_FP8[2], ("rows", "columns"), 64, "float32", "gelu"),
            (SQUARE, ("rows", "none"), 70, "bfloat16", "silu"),
            (OBLONG, ("none", "columns"), 130, "float32", None),
            (Fp8OnceConfig(32, 2, blocks=1), ("tensor", "columns"), 100, "float16", None),
            (LARGE, ("rows", "columns"), 200, "bfloat16", "relu"),
            (FEW_OF_FP8[0], ("blocks", "blocks"), 5, "bfloat16", "silu"),
            (FEW_OF_FP8[1], ("blocks", "columns"), 64, "float16", None),
            (FEW_OF_FP8[2], ("none", "blocks"), 33, "float32", "gelu"),
            (SQUARE, ("blocks", "tensor"), 70, "float32", None),
            (OBLONG, ("blocks", "blocks"), 130, "float16", "relu"),
            (LARGE, ("rows", "blocks"), 200, "bfloat16", None),
            (Fp8OnceConfig(32, 2, blocks=1), ("blocks", "blocks"), 9, "float32", None),
        )
    ),
    # More blocks of K than shared memory holds scales of, of whole stages and not.
    *(
        in_fp8(config, scales, FP8_ONCE, M=M, N=130, K=K, multiprocessors=1, begin=(16, 0))
        for config, scales, M, K in (
            (FEW_OF_FP8[0], ("blocks", "blocks"), 17, 4320),
            (FEW_OF_FP8[1], ("tensor", "blocks"), 50, 8192),
            (OBLONG, ("blocks", "blocks"), 100, 8336),
            (LARGE, ("blocks", "none"), 129, 4224),
        )
    ),
    *(
        in_fp8(
            None, scales, FP8_ONCE, M=M, N=N, K=K, multiprocessors=16, activation="gelu", bias=True
        )
        for M, N, K, scales in (
            (72, 60, 3400, ("rows", "tensor")),
            (90, 44, 6000, ("none", "none")),
            (72, 60, 3400, ("blocks", "blocks")),
            (90, 44, 6000, ("rows", "blocks")),
        )
    ),
    in_fp8(OBLONG, ("tensor", "none"), FP8_ONCE, M=80, N=60, K=1700, multiprocessors=8),
    in_fp8(None, ("rows", "none"), FP8_ONCE, M=72, N=58, K=3400, multiprocessors=16),
    # As they are chosen with scales of blocks: few rows, small, large.
    *(
        in_fp8(None, ("blocks", "blocks"), FP8_ONCE, M=M, N=171, K=700, multiprocessors=n)
        for M, n in ((40, 6), (40, 4), (40, 3), (100, 6), (100, 4), (200, 5))
    ),
    # One scale a tensor, loaded once a program.
    in_fp8(None, ("tensor", "tensor"), activation="gelu", multiprocessors=2),
    in_fp8(WIDE, ("tensor", "columns"), N=300, out="float32", multiprocessors=3),
    in_fp8(WIDE, ("none", "tensor"), N=300, out="float16", bias=True, multiprocessors=3),
    in_fp8(NARROW, ("blocks", "tensor"), N=300, activation="silu", multiprocessors=3),
    in_fp8(NARROW, ("tensor", "blocks"), N=300, out="float16", multiprocessors=3),
    in_fp8(FEW_OF_FP8[0], ("tensor", "tensor"), FP8_ONCE, M=5, K=1200),
    in_fp8(FEW_OF_FP8[2], ("rows", "tensor"), FP8_ONCE, M=64, K=1200, out="float32"),
    in_fp8(LARGE, ("tensor", "blocks"), FP8_ONCE, M=200, K=1200, bias=True),
    in_fp8(None, ("tensor", "tensor"), FP8_ONCE, M=72, N=60, K=3400, multiprocessors=16),
    # Scales of rows and columns, copied while a tile is multiplied.
    in_fp8(None, ("rows", "columns"), activation="gelu", multiprocessors=2),
    in_fp8(WIDE, ("rows", "columns"), N=300, bias=True, multiprocessors=3),
    in_fp8(WIDE, ("rows", "none"), N=300, out="float32", multiprocessors=3),
    in_fp8(WIDE, ("rows", "tensor"), N=300, multiprocessors=3),
    in_fp8(WIDE, ("tensor", "tensor"), N=300, activation="silu", multiprocessors=3),
    in_fp8(NARROW, ("blocks", "columns"), N=300, activation="silu", multiprocessors=3),
    in_fp8(NARROW, ("rows", "blocks"), N=300, multiprocessors=3),
    in_fp8(FEW_OF_FP8[0], ("rows", "columns"), FP8_ONCE, M=5, K=1200),
    in_fp8(FEW_OF_FP8[2], ("none", "columns"), FP8_ONCE, M=64, K=1200, out="float32"),
    in_fp8(LARGE, ("rows", "blocks"), FP8_ONCE, M=200, K=1200, bias=True),
    in_fp8(None, ("rows", "columns"), FP8_ONCE, M=72, N=60, K=3400, multiprocessors=16),
    # What Hopper's kernels leave to others.
    Case(M=1, N=50, K=300, kernels=(), layout="nt"),
]

# What the cases launch each kernel with, at least.
BOTH = {False, True}
SCALES = {"none", "outer", "tensor", "blocks", "ahead"}
EACH = {"none", "relu", "gelu", "silu"}
FORMS: dict[str, dict[str, set[Any]]] = {
    "matmul_hopper": {
        "CONSUMERS": {1, 2, 3},
        "BLOCK_N": {32, 64, 128, 256},
        "BLOCK_K": {32, 64, 128},
        "GROUP_M": {4, 8, 16},
        "TAIL": {1, 2, 4},
        **dict.fromkeys(("A_MAJOR_M", "B_MAJOR_N", "bias", "residual"), BOTH),
        "ACTIVATION": EACH,
    },
    "matmul_hopper_once": {
        "BLOCK_M": {64, 128},
        "BLOCK_N": {32, 64, 128, 256},
        "BLOCK_K": {32, 64, 128},
        "CLASSES": {0, 1, 2, 4, 8},
        "SPLITS": {1, 3, 4},
        **dict.fromkeys(("A_MAJOR_M", "B_MAJOR_N", "bias"), BOTH),
        "ACTIVATION": EACH,
    },
    "matmul_hopper-lines": {
        "CLASSES": {1, 8},
        "GROUP_M": {4, 8},
        **dict.fromkeys(("B_MAJOR_N", "bias"), BOTH),
        "ACTIVATION": EACH,
    },
    "matmul_hopper-tf32": {
        "CONSUMERS": {1, 2},
        "BLOCK_N": {32, 64, 128, 256},
        "BLOCK_K": {32, 64},
        **dict.fromkeys(("A_MAJOR_M", "bias"), BOTH),
        "ACTIVATION": EACH,
    },
    "matmul_hopper_fp8": {
        "BLOCK_N": {128, 256},
        "GROUP_M": {4, 8, 16},
        **dict.fromkeys(("A_SCALE", "B_SCALE"), SCALES),
        "bias": BOTH,
        "ACTIVATION": EACH,
    },
    "matmul_hopper_fp8_once": {
        "BLOCK_N": {32, 64, 128},
        "BLOCK_M": {64, 128},
        "BLOCKS": {1, 2, 4},
        "SPLITS": {1, 3, 6},
        "CHUNK": {0, 8, 16, 32},
        **dict.fromkeys(("A_SCALE", "B_SCALE"), SCALES - {"outer"}),
        **dict.fromkeys(("MORE", "bias"), BOTH),
        "ACTIVATION": EACH,
    },
}

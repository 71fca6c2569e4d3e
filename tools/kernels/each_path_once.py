"""One small case of every path through the kernels, for a tool that watches memory.

    python -m tools.kernels.each_path_once

Every tensor has memory of its own, so that a tool sees each access outside. The results are
compared, too. With ``--part 1/3`` a third of the cases runs. ``tools.kernels.sanitized_paths`` runs
them under compute-sanitizer, a process each.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from triton import knobs

from tests.kernels import findings, on_card, scores_cases, test_attention_backward
from tests.kernels.attention_fp8_cases import Case as LowAttention
from tests.kernels.findings import Drawn
from tests.kernels.interpreted import Errors
from tests.kernels.kvcache_case import Case as Cached
from tests.kernels.kvcache_case import run as run_cached
from tests.kernels.scores_cases import Case as Attention
from tests.kernels.test_attention_varlen import Case as Packed
from tests.kernels.test_attention_varlen import run as run_packed
from tests.kernels.test_exact_gradients import Case as Exact
from tests.kernels.test_matmul import Case as Product
from tests.kernels.test_matmul_fp8 import Case as LowProduct
from tests.kernels.test_matmul_grouped import Case as Grouped
from tests.kernels.test_matmul_grouped import run as run_grouped
from tests.kernels.varlen_fp8_cases import Case as LowPacked

PLAIN = Attention(S=150, KV=170, H=4, G=2, D=64, causal=True)
ATTENTION = [
    PLAIN,
    replace(PLAIN, causal=False, D=128, dtype="bfloat16"),
    replace(PLAIN, D=256, H=2, G=2),
    replace(PLAIN, D=80, DV=48, view="skipping"),
    replace(PLAIN, D=72, view="padded", S=40, KV=90),
    replace(PLAIN, D=40, dtype="float32", S=50, KV=33),
    replace(PLAIN, D=59, S=60, KV=70),
    replace(PLAIN, window=(30, 5), causal=False),
    replace(PLAIN, S=1, KV=130),
    replace(PLAIN, S=3, KV=600),
    replace(PLAIN, S=130, KV=1, dtype="bfloat16"),
    replace(PLAIN, softcap=2.0, alibi="batch", sinks=True),
    replace(PLAIN, bias=(4, 150, 170), bias_dtype="float16", hiding=True),
    replace(PLAIN, bias=(1, 1, 1, 170), bias_dtype="bool", hiding=True, D=128),
    replace(PLAIN, dropout=0.3, D=128),
    replace(PLAIN, blocks=(1, 4), S=300, KV=260, causal=False),
    # What corrects gradients, alone and beside more.
    Exact(KV=170, causal=True, H=4),
    Exact(D=128, S=200, KV=200, dropout=0.3, dtype="float16"),
    # One thing asked of scores, whose gradients have tiles of their own, and beside shared heads.
    replace(PLAIN, D=128, softcap=2.0, G=4, S=200),
    replace(PLAIN, D=128, sinks=True, G=4, dtype="bfloat16"),
    replace(PLAIN, D=128, alibi="batch"),
    replace(PLAIN, D=128, bias=(4, 150, 176), KV=176, bias_dtype="float16", learnt=False),
    replace(PLAIN, D=128, bias=(150, 170), G=4, learnt=False, causal=False),
    replace(PLAIN, D=128, blocks=(1, 4), S=300, KV=260, G=4),
    replace(PLAIN, D=64, dropout=0.3, G=4),
    replace(PLAIN, D=256, alibi="heads", H=2, G=2),
    # One loop over heads that share keys: tiles that divide the queries, and with rows to spare.
    replace(PLAIN, D=128, S=192, KV=192, dtype="bfloat16"),
    replace(PLAIN, D=128, dtype="bfloat16", window=(40, -1)),
]
# Of Hopper's own forward pass every cut (one warpgroup a program, which few heads have, two and
# three, pairs of blocks of rows, one block of keys, head dims above 128) and at head dims from 33
# on its backward pass, of both dtypes and all cuts, whose blocks the keys fill or do not.
HOPPER = [
    *ATTENTION[:6],
    replace(PLAIN, causal=False, S=2100, KV=300, H=8, G=2),
    replace(PLAIN, causal=False, S=200, KV=256, H=68, G=2),
    replace(PLAIN, causal=False, KV=300, H=68, G=2),
    # Two warpgroups, a tile a program.
    replace(PLAIN, causal=False, KV=300, H=48, G=2),
    replace(PLAIN, causal=False, KV=256, H=48, G=2),
    replace(PLAIN, H=48),
    replace(PLAIN, H=68),
    replace(PLAIN, D=48, S=2100, KV=2200, H=6, G=2),
    replace(PLAIN, S=200, KV=256, dtype="bfloat16"),
    replace(PLAIN, D=128, H=48),
    replace(PLAIN, D=128, S=30),
    # Pairs, and the last heads' blocks apart from them.
    replace(PLAIN, D=128, S=1100, KV=300, H=16),
    replace(PLAIN, D=96, S=256, KV=256, H=68, view="transposed", dtype="bfloat16"),
    replace(PLAIN, D=112, causal=False, window=(-1, 20), H=4, G=1),
    replace(PLAIN, D=128, causal=False, S=70, KV=1100, H=2, G=1),
    replace(PLAIN, D=192, S=70, KV=1100, H=2, G=1),
    replace(PLAIN, D=128, causal=False, S=1100, KV=300, H=8, G=1),
    replace(PLAIN, D=96, S=70, KV=1300, H=2, G=1, dtype="bfloat16"),
    replace(PLAIN, D=256, H=48, G=2, causal=False),
    replace(PLAIN, D=136, H=68, G=2, S=190, KV=250, dtype="bfloat16", view="transposed"),
    replace(PLAIN, D=192, H=2, G=1, S=130, KV=100, dtype="bfloat16", causal=False),
    replace(PLAIN, S=400, KV=700, D=128, window=(300, -1), H=48),
    replace(PLAIN, S=130, KV=1900, D=128, window=(1700, -1), H=68, G=1),
    replace(PLAIN, S=400, KV=700, D=128, window=(256, -1), H=48),
    replace(PLAIN, S=300, KV=1100, window=(700, 3), H=2, G=1),
    replace(PLAIN, S=200, KV=150, D=192, window=(70, 20), causal=False),
    replace(PLAIN, S=200, KV=150, D=192, window=(70, 20), causal=False, H=68),
    # What corrects gradients, of every cut, where all rows ask for it.
    Exact(KV=170, causal=True, H=4),
    Exact(D=128, S=200, KV=200, H=4, G=1),
    Exact(D=256, S=130, KV=150, window=(100, -1), causal=True, dtype="bfloat16"),
]
PACKED = [
    Packed(spare=50),
    Packed(causal=True, dtype="bfloat16", D=128, DV=128),
    Packed(window=(10, 4), D=80, DV=48, view="skipping"),
    Packed(causal=True, dtype="float32", D=40, DV=40),
    Packed(causal=True, D=128, DV=128, used_q=(41, 1, 0, 9), used_k=(60, 90, 2, 0)),
    Packed(dtype="float32", D=40, DV=40, used_q=(41, 1, 0, 9), used_k=(60, 90, 2, 0)),
    Packed(causal=True, H=4, G=2, D=256, DV=256, view="transposed"),
]
# Of Hopper's every order of tiles, with keys that fill no block and sequences that have none.
HOPPER_PACKED = [
    Packed(),
    Packed(D=128, DV=128, q=(300, 1, 0, 130), k=(300, 90, 5, 0), causal=True, H=4, G=1),
    Packed(D=64, q=(2100, 50), k=(2100, 70), causal=True, dtype="bfloat16", H=1, G=1),
    Packed(D=256, DV=256, q=(40, 3), k=(40, 200), window=(30, 0)),
    # And gradients, which few keys have of the portable kernels.
    Packed(D=96, DV=96, q=(1000, 3, 0), k=(900, 90, 5), dtype="bfloat16", H=4, G=1),
    Packed(
        D=64,
        q=(1500, 300),
        k=(1500, 200),
        causal=True,
        H=4,
        G=1,
        used_q=(1100, 70),
        used_k=(1000, 200),
    ),
]
CACHED = [
    Cached(),
    Cached(splits=3, causal=True, S=2, D=128, dtype="bfloat16"),
    Cached(page=16, splits=2, D=80, DV=48, view="transposed"),
    Cached(page=64, S=4, window=(5, 2), D=32),
    Cached(page=48, S=2, causal=True, D=64),
    Cached(D=32, new=2, S=2, causal=True, keys=(40, 2, 3), rotary=32),
    Cached(D=64, new=3, S=3, keys=(40, 3), rotary=16, page=16, splits=2, interleaved=False),
    Cached(D=64, fp8="float8_e4m3fn", scaled="head", causal=True, S=2, splits=2),
    Cached(D=64, fp8="float8_e4m3fn", scaled="tensor", page=16, new=1, keys=(40, 3), rotary=16),
    Cached(D=64, rows_elsewhere=True, softcap=2.0, alibi=True, sinks=True, dtype="float32"),
    Cached(D=128, S=37, H=2, G=2, causal=True, keys=(90, 37), view="skipping"),
    # Turned tiles, which head dims from 65 to 128 have on Hopper: of pages smaller than a block of
    # keys and larger, of few rows and of 32, of fp8 caches in pairs of columns and one by one; in
    # one launch, with a launch that adds, and behind one that appends.
    Cached(D=128, page=128, S=4, H=8, G=1, causal=True, softcap=2.0, alibi=True, sinks=True),
    Cached(D=128, new=2, S=2, causal=True, keys=(90, 3), rotary=128, page=16, splits=3),
    Cached(D=128, fp8="float8_e4m3fn", scaled="head", page=16, causal=True, S=2, splits=2),
    # Packed queries, in one launch behind the one that clears and with one more that adds.
    Cached(D=128, queries=(37, 1, 0, 3), page=16, causal=True, H=8),
    Cached(D=64, queries=(2, 1, 0, 3), splits=3, sinks=True),
    Cached(D=128, fp8="float8_e4m3fn", scaled="tensor", rows_elsewhere=True, dtype="bfloat16"),
    Cached(D=128, fp8="float8_e4m3fnuz", scaled="head", page=64, new=1, keys=(40, 3), splits=2),
    Cached(D=96, fp8="float8_e4m3fn", window=(20, -1), splits=2),
    Cached(D=256, splits=2, page=32, causal=True, S=3),
    # New keys of their own number a sequence: appended, behind what clears, and parts added.
    Cached(D=128, news=(37, 1, 0), queries=(37, 1, 2), keys=(90, 1, 5), page=16, rotary=128),
    Cached(D=64, news=(2, 0), keys=(40, 3), S=2, causal=True, splits=2, fp8="float8_e4m3fn"),
    # Padding on the left: whole blocks of keys and a part of one.
    Cached(D=64, leftpad=(69, 0, 0, 5), causal=True, S=2, splits=2),
    Cached(D=128, chunk=48, S=4, causal=True, page=64, splits=2),
    Cached(D=128, leftpad=(66, 1, 0, 3), page=16, new=1, keys=(90, 3, 1, 33), rotary=16),
    Cached(D=128, leftpad=(65, 1), queries=(37, 3), keys=(90, 3), page=64, causal=True, H=8),
]
LOW_ATTENTION = [
    LowAttention(scales="tensor"),
    LowAttention(D=128, DV=128, causal=True, window=(30, -1), scales="heads", H=4),
    LowAttention(S=33, KV=90, H=4, D=32, DV=16, causal=True, view="transposed", out="float32"),
    LowAttention(H=4, causal=True, scales="sequences"),
]
LOW_PACKED = [
    LowPacked(causal=True, scales="sequences", spare=40),
    LowPacked(H=4, D=128, DV=128, window=(10, 4), k=(90, 90, 5, 0), scales="heads", spare=3),
]
# Of Hopper's own pass every cut, and outputs in one and in two boxes of columns.
HOPPER_LOW_ATTENTION = [
    LowAttention(S=150, KV=330, scales="heads", H=4),
    LowAttention(S=200, KV=130, causal=True, scales="tensor", out="float16", D=48, DV=48),
    LowAttention(S=2100, KV=150, H=2, G=1),
    LowAttention(S=2100, KV=150, H=2, G=1, causal=True),
    LowAttention(D=128, DV=128, S=150, KV=170),
    LowAttention(D=128, DV=128, S=150, KV=170, H=4, scales="sequences"),
    LowAttention(D=96, DV=96, S=150, KV=170, causal=True, view="transposed"),
    LowAttention(D=128, DV=128, S=2100, KV=150, scales="heads"),
    LowAttention(D=128, DV=128, S=2100, KV=150, causal=True, out="float32"),
    LowAttention(D=256, DV=256, S=150, KV=170),
    LowAttention(D=192, DV=192, S=150, KV=170, causal=True, out="float32"),
]
# Packed ones of every cut: without queries or keys, of more and of fewer keys than a block.
HOPPER_LOW_PACKED = [
    LowPacked(q=(150, 1, 0, 70), k=(330, 90, 5, 0), scales="sequences", H=4, spare=40),
    LowPacked(q=(200, 40), k=(130, 90), causal=True, scales="tensor", out="float16", D=48, DV=48),
    LowPacked(q=(2050, 30), k=(150, 2100), H=2, G=1),
    LowPacked(q=(1030, 30), k=(150, 300), H=2, G=1),
    LowPacked(q=(2100,), k=(2100,), H=2, G=1, causal=True, used=(1700,), spare=20),
    LowPacked(q=(150, 3), k=(170, 200), D=128, DV=128, scales="heads", out="float32"),
    LowPacked(q=(150, 90), k=(170, 90), D=96, DV=96, causal=True, used=(100, 70), spare=5),
    LowPacked(q=(150, 20), k=(170, 90), D=256, DV=256, causal=True, scales="sequences"),
    LowPacked(q=(40, 3), k=(140, 20), D=192, DV=192, out="float32"),
]
PRODUCTS = [
    Product(M=200, N=136, K=264),
    Product(M=200, N=136, K=264, a_view="transposed", b_view="transposed", dtype="bfloat16"),
    Product(bias=True, activation="gelu", residual="padded", a_view="padded", b_view="skipping"),
    Product(M=8, N=264, K=4096, dtype="bfloat16", bias=True, activation="silu"),
    # On Hopper whole columns, and one row.
    Product(M=30, N=4100, K=784, dtype="bfloat16", b_view="transposed"),
    Product(M=1, K=2100, b_view="transposed", bias=True, activation="gelu", residual="padded"),
    Product(dtype="float32"),
    Product(dtype="float32", tf32=True),
]
# Of each of the three tiles Hopper's kernel has, where there are 132 processors.
HOPPER_PRODUCTS = [
    *PRODUCTS[:2],
    Product(M=504, N=2048, K=72, bias=True, activation="gelu", a_view="transposed"),
    Product(M=2040, N=2048, K=72, dtype="bfloat16", b_view="transposed"),
    Product(M=2000, N=2048, K=72, bias=True, activation="gelu"),  # one wave of the widest tiles
    # More, and what is left of a turn in quarters and halves; three consumers.
    Product(M=3264, N=5376, K=72, bias=True),
    Product(M=3776, N=3840, K=136, dtype="bfloat16", b_view="transposed", activation="silu"),
    Product(M=2304, N=2048, K=72, bias=True),
    Product(M=2504, N=2432, K=72, a_view="transposed", bias=True, activation="gelu"),
    Product(M=1104, N=1200, K=72, a_view="transposed", bias=True, activation="silu"),
    Product(M=1544, N=1536, K=136, dtype="bfloat16", activation="relu"),
    # Rows by class, of one tile a program and of several, and K split for narrow and wide tiles.
    Product(M=1000, N=1000, K=136, bias=True, activation="relu"),
    Product(M=2040, N=2056, K=136, dtype="bfloat16", b_view="transposed", activation="silu"),
    Product(M=3048, N=1032, K=136, bias=True),
    # Few rows: by 32 and by 64 columns, by 64 with two programs a multiprocessor.
    Product(M=30, N=4104, K=784, dtype="bfloat16", b_view="transposed", bias=True),
    Product(M=64, N=6152, K=136, activation="gelu"),
    Product(M=5, N=14344, K=72, b_view="transposed", activation="silu"),
    # A residual.
    Product(M=2040, N=2048, K=200, bias=True, activation="gelu", residual="padded"),
    Product(M=70, N=520, K=4104, dtype="bfloat16", b_view="transposed", activation="silu"),
    Product(M=200, N=1000, K=4040, bias=True),
    # The same of tf32.
    Product(M=520, N=136, K=72, dtype="float32", tf32=True, a_view="transposed"),
    Product(M=1000, N=1000, K=40, dtype="float32", tf32=True, b_view="transposed", bias=True),
    Product(M=2040, N=2048, K=36, dtype="float32", tf32=True),
]
LOW_PRODUCTS = [
    LowProduct(M=200, N=136, K=272),
    LowProduct(flavour="float8_e4m3fnuz"),
    LowProduct(a_scale="rows", b_scale="columns", out="float32", bias=True, activation="relu"),
    LowProduct(K=300, N=140, a_scale="blocks", b_scale="blocks", residual=True),
    LowProduct(M=8, N=256, K=4096, a_scale="blocks", b_scale="blocks"),
]
# Of every tile of Hopper's own kernel, where there are 132 processors.
HOPPER_LOW_PRODUCTS = [
    LowProduct(M=1500, N=1032, K=144, bias=True, activation="gelu"),
    LowProduct(M=1500, N=1032, K=272, a_scale="blocks", b_scale="blocks"),
    LowProduct(M=1600, N=1560, K=1024, a_scale="blocks", b_scale="blocks", out="float32"),
    LowProduct(M=3000, N=2800, K=528, a_scale="blocks", b_scale="columns", bias=True),
    LowProduct(M=1600, N=1560, K=4368, a_scale="blocks", b_scale="blocks", out="float32"),
    LowProduct(M=1530, N=5640, K=272, a_scale="blocks", b_scale="blocks", activation="gelu"),
    LowProduct(M=2500, N=5008, K=272, a_scale="rows", b_scale="columns", activation="silu"),
    LowProduct(M=2500, N=5008, K=144, a_scale="none", b_scale="none", out="float32"),
    # One tile a program: few rows, both sizes of tiles, and K split.
    LowProduct(M=5, N=4088, K=400, bias=True, activation="gelu"),
    LowProduct(M=40, N=6008, K=1552, a_scale="rows", b_scale="columns"),
    LowProduct(M=17, N=9000, K=272, out="float16", activation="silu"),
    LowProduct(M=100, N=520, K=400, bias=True, activation="gelu", out="float32"),
    LowProduct(M=260, N=2056, K=144, a_scale="rows", b_scale="columns"),
    LowProduct(M=100, N=520, K=4112, a_scale="rows", b_scale="columns", activation="relu"),
    # The same beside scales of blocks, also of more than are held at once.
    LowProduct(M=5, N=4088, K=4368, a_scale="blocks", b_scale="blocks", activation="gelu"),
    LowProduct(M=40, N=6008, K=272, a_scale="blocks", b_scale="columns", out="float32"),
    LowProduct(M=17, N=7176, K=272, a_scale="rows", b_scale="blocks", bias=True),
    LowProduct(M=100, N=520, K=400, a_scale="blocks", b_scale="blocks"),
    LowProduct(M=260, N=2056, K=4240, a_scale="blocks", b_scale="blocks", out="float16"),
    LowProduct(M=500, N=4000, K=272, a_scale="blocks", b_scale="blocks", bias=True),
    LowProduct(M=100, N=520, K=4112, a_scale="blocks", b_scale="blocks", activation="relu"),
]
GROUPED = [
    Grouped(),
    Grouped(dtype="bfloat16", N=128, K=64, a_view="padded", b_view="transposed"),
    Grouped(dtype="float32"),
]


def paths() -> list[Drawn]:
    """First with portable kernels alone, then what a kernel of one architecture may serve."""
    scores = replace(scores_cases.PACKED, softcap=2.0, alibi="batch", sinks=True)
    attention_names, packed_names = ("out", "lse", "dq", "dk", "dv"), ("out", "da", "db")
    found = [
        *(Drawn("flash_attention", one, scores_cases.run) for one in ATTENTION),
        *(Drawn("flash_attention_varlen", one, run_packed, attention_names) for one in PACKED),
        *(Drawn("flash_attention_kvcache", one, run_cached, ("out", "lse")) for one in CACHED),
        Drawn(
            "flash_attention_varlen scores",
            replace(scores, dropout=0.2),
            scores_cases.run_varlen,
            scores_cases.PACKED_NAMES,
        ),
        *(Drawn("flash_attention fp8", one, findings.run_attention_fp8) for one in LOW_ATTENTION),
        *(
            Drawn("flash_attention_varlen fp8", one, findings.run_attention_fp8)
            for one in LOW_PACKED
        ),
        *(Drawn("matmul", one, findings.run_matmul) for one in PRODUCTS),
        Drawn(
            "matmul gradients",
            ("bfloat16", "silu", True, 72, 56, 88),
            findings.run_matmul_gradients,
            ("da", "db", "dbias", "dresidual"),
        ),
        *(Drawn("matmul fp8", one, findings.run_matmul_fp8) for one in LOW_PRODUCTS),
        *(Drawn("grouped_matmul", one, run_grouped, packed_names) for one in GROUPED),
    ]
    special = [
        *(Drawn("flash_attention", one, scores_cases.run) for one in HOPPER),
        *(
            Drawn("flash_attention_varlen", one, run_packed, attention_names)
            for one in HOPPER_PACKED
        ),
        # Without a gradient of the log-sum-exp.
        Drawn("flash_attention", replace(PLAIN, D=128), run_gradients, ("dq", "dk", "dv")),
        *(
            Drawn("flash_attention fp8", one, findings.run_attention_fp8)
            for one in HOPPER_LOW_ATTENTION
        ),
        *(
            Drawn("flash_attention_varlen fp8", one, findings.run_attention_fp8)
            for one in HOPPER_LOW_PACKED
        ),
        *(Drawn("matmul", one, findings.run_matmul) for one in HOPPER_PRODUCTS),
        *(Drawn("matmul fp8", one, findings.run_matmul_fp8) for one in HOPPER_LOW_PRODUCTS),
    ]
    return [*found, *(replace(one, portable=False) for one in special)]


def run_gradients(case: Attention) -> list[Errors]:
    found: list[Errors] = test_attention_backward.run(case, False)
    return found


def keep_loaded(place: Path) -> None:
    """From now on ``place`` has a line of each kernel Triton loads: its name, a tab, its cubin."""

    def loaded(module: Any, function: Any, name: str, files: dict[str, str], key: str) -> None:
        with place.open("a") as out:
            out.writelines(
                f"{name}\t{path}\n" for kind, path in files.items() if kind.endswith(".cubin")
            )

    knobs.runtime.kernel_load_end_hook.add(loaded)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.kernels.each_path_once")
    parser.add_argument("--part", default="1/1", help="I/N: every Nth case from the Ith on")
    parser.add_argument("--only", type=int, help="only this case, counted from 1 on")
    parser.add_argument("--loaded", type=Path, help="write here each kernel's name and its cubin")
    args = parser.parse_args(given)
    first, step = map(int, args.part.split("/"))
    chosen = paths()[first - 1 :: step] if args.only is None else [paths()[args.only - 1]]
    if args.loaded is not None:
        keep_loaded(args.loaded)
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    device = on_card.prepare()
    wrong = done = 0
    started = time.monotonic()
    for one in chosen:
        done += 1
        try:
            with on_card.Made(device):
                problem = "; ".join(each.problem for each in one.findings() if each.problem)
        except Exception as error:  # a tool may have made it fail; the others still count
            problem = f"{type(error).__name__}: {error}"
        wrong += bool(problem)
        state = f"FAILED {problem}" if problem else "ok"
        print(f"{time.monotonic() - started:6.1f} s  {one}: {state}", flush=True)
    print(f"{done} paths, {wrong} failed")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""Cases of every public operator drawn at random, each from its seed alone.

``SHAPES`` seeds in a row share what a kernel is compiled for as far as lengths allow it: options
follow from the seed divided by ``SHAPES``, lengths from the seed.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from tests.kernels import (
    attention_fp8_cases,
    kvcache_case,
    scores_cases,
    test_attention_varlen,
    test_matmul,
    test_matmul_fp8,
    test_matmul_grouped,
    varlen_fp8_cases,
)
from tests.kernels.findings import (
    Drawn,
    run_attention_fp8,
    run_matmul,
    run_matmul_fp8,
    run_matmul_gradients,
)
from tests.kernels.test_exact_gradients import Case as Steep

SHAPES = 8
# Of FlashAttention's own tests.
GRID = (
    *((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256), (1024, 1024)),
    *((1023, 1024), (1024, 1023), (2048, 2048), (1, 147), (113, 128), (3, 799), (64, 800)),
)
# Odd ones are of FlashAttention's tests, too.
HEAD_DIMS = (
    *(1, 16, 32, 33, 40, 59, 59, 64, 64, 64, 64, 72, 80, 96, 96, 111, 111),
    *(128, 128, 128, 128, 160, 192, 224, 256),
)
HEADS = ((1, 1), (2, 2), (4, 2), (6, 2), (4, 1), (3, 3), (8, 2), (6, 1))


def draw(seed: int, longest: int = 2048) -> Drawn:
    options, lengths = Random(seed // SHAPES), Random(seed)
    kinds = {
        _attention: 46,
        _varlen: 12,
        _varlen_scores: 5,
        _kvcache: 16,
        _attention_fp8: 5,
        _varlen_fp8: 3,
        _matmul: 8,
        _matmul_gradients: 2,
        _matmul_fp8: 4,
        _grouped: 4,
    }
    (kind,) = options.choices(list(kinds), list(kinds.values()))
    drawn = kind(options, lengths, longest)
    return replace(drawn, portable=options.random() < 0.6)


def _chance(options: Random, of: float) -> bool:
    return options.random() < of


def _dtype(options: Random) -> str:
    return options.choices(("float16", "bfloat16", "float32"), (4, 4, 2))[0]


def _view(options: Random) -> str:
    names = ("contiguous", "transposed", "padded", "skipping")
    return options.choices(names, (6, 2, 1, 1))[0]


def _flavour(options: Random) -> str:
    return options.choices(("float8_e4m3fn", "float8_e4m3fnuz"), (3, 1))[0]


def _dims(options: Random) -> tuple[int, int]:
    D = options.choice(HEAD_DIMS)
    return D, D if _chance(options, 0.8) else options.choice(HEAD_DIMS)


def _window(options: Random) -> tuple[int, int]:
    if _chance(options, 0.75):
        return -1, -1
    return options.choice((-1, 0, 5, 17, 64, 130, 500)), options.choice((-1, 0, 3, 64))


def _lengths(options: Random, lengths: Random, longest: int) -> tuple[int, int]:
    """Of queries and keys: whether 16 divides each follows from ``options``, but for odd ones."""
    whole = options.choices(((0, 0), (0, 1), (1, 0), (1, 1)), (5, 2, 1, 2))[0]
    if _chance(lengths, 0.08):
        return lengths.choice((1, 1, 2, 33)), min(longest, lengths.choice((1, 2, 3, 100, 777)))

    def one(divides: int) -> int:
        n = int(2.0 ** lengths.uniform(3.0, 10.5))
        return max(16, n // 16 * 16) if divides else n + (n % 16 == 0)

    alike = [pair for pair in GRID if tuple(int(n % 16 == 0) for n in pair) == whole]
    if alike and _chance(lengths, 0.5):
        S, KV = lengths.choice(alike)
    elif _chance(lengths, 0.4) and whole[0] == whole[1]:
        S = KV = one(whole[0])
    else:
        S, KV = one(whole[0]), one(whole[1])
    return min(S, longest), min(KV, longest)


def _batch(lengths: Random, scores: int, most: int) -> int:
    """How many sequences of so many scores each are no more than ``most`` scores."""
    return max(1, min(lengths.choice((1, 2, 3)), most // max(1, scores)))


def _scored(options: Random, lengths: Random, longest: int) -> dict[str, Any]:
    D, DV = _dims(options)
    H, G = options.choice(HEADS)
    S, KV = _lengths(options, lengths, longest)
    return {
        "D": D,
        "DV": 0 if DV == D else DV,
        "H": H,
        "G": G,
        "S": S,
        "KV": KV,
        "B": _batch(lengths, H * S * KV, 1 << 24),
        "dtype": _dtype(options),
        "causal": _chance(options, 0.5),
        "window": _window(options),
        "view": _view(options),
        "scale": options.choices((None, 0.5, 0.05, -0.1), (8, 1, 1, 1))[0],
    }


def _attention(options: Random, lengths: Random, longest: int) -> Drawn:
    given = _scored(options, lengths, longest)
    changed = _chance(options, 0.45)
    asked = [changed and _chance(options, 0.33) for _ in range(6)]
    softcap, alibi, sinks, bias, dropout, blocks = asked
    if softcap:
        given["softcap"] = options.choice((2.0, 15.0, 50.0))
    if alibi:
        given["alibi"] = options.choice(("heads", "batch"))
    given["sinks"] = sinks
    if dropout:
        given["dropout"] = options.choice((0.1, 0.3, 0.5))
        # The reference draws its numbers on the CPU.
        room = (1 << 20) // given["H"]
        given["S"], given["KV"] = (min(given[name], int(room**0.5)) for name in ("S", "KV"))
        given["B"] = 1
    B, H, S, KV = (given[name] for name in ("B", "H", "S", "KV"))
    if bias:
        shapes = ((B, H, S, KV), (1, H, S, KV), (S, KV), (B, 1, 1, KV), (H, S, 1), (1, 1, S, KV))
        given["bias"] = options.choice(shapes)
        given["bias_dtype"] = options.choice(("float32", given["dtype"], "bool"))
        given["hiding"] = given["bias_dtype"] == "bool" or _chance(options, 0.3)
        given["learnt"] = _chance(options, 0.5)
    if blocks:
        given["blocks"] = (1 if _chance(options, 0.5) else B, 1 if _chance(options, 0.5) else H)
        given["block"] = options.choice(((128, 128), (128, 256), (256, 128), (384, 256)))
    case = scores_cases.Case(**given)
    if _chance(options, 0.15):  # rows of one heavy weight
        case = Steep(**given, steep=options.choice((0.7, 1.0, 1.4, 2.0)))
    if not (bias or blocks or dropout) and _chance(options, 0.1):
        case = replace(case, chunk=options.choice((17, 64, 128, 500)))
    name = "flash_attention scores" if any(asked) else "flash_attention"
    return Drawn(name, case, scores_cases.run)


def _packed(
    options: Random, lengths: Random, longest: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of queries and keys of a few sequences, some of them empty."""
    count = lengths.randint(1, 5)
    q, k = [], []
    for _ in range(count):
        S, KV = _lengths(Random(0), lengths, longest)
        q.append(0 if _chance(lengths, 0.08) else S)
        k.append(0 if _chance(lengths, 0.08) else KV if _chance(options, 0.5) else max(S, 1))
    q[0], k[0] = max(q[0], 1), max(k[0], 1)
    return tuple(q), tuple(k)


def _varlen(options: Random, lengths: Random, longest: int) -> Drawn:
    given = _scored(options, lengths, longest)
    q, k = _packed(options, lengths, longest)
    used = [
        tuple(lengths.choice((n, lengths.randint(0, n), n + 1)) for n in each)
        if _chance(options, 0.2)
        else ()
        for each in (q, k)
    ]
    case = test_attention_varlen.Case(
        q=q,
        k=k,
        used_q=used[0],
        used_k=used[1],
        DV=given["DV"] or given["D"],
        spare=lengths.choice((0, 0, 70)),
        **{name: given[name] for name in ("H", "G", "D", "dtype", "causal", "window", "view")},
    )
    names = ("out", "lse", "dq", "dk", "dv")
    return Drawn("flash_attention_varlen", case, test_attention_varlen.run, names)


def _varlen_scores(options: Random, lengths: Random, longest: int) -> Drawn:
    given = _scored(options, lengths, longest)
    given["empty"] = _chance(options, 0.3)
    given["unused"] = lengths.randint(1, 90) if _chance(options, 0.2) else 0
    if _chance(options, 0.3):
        given["dropout"] = options.choice((0.1, 0.3, 0.5))
        # The reference draws its numbers on the CPU.
        room = (1 << 20) // (given["H"] * (given["B"] + given["empty"]))
        given["S"], given["KV"] = (min(given[name], int(room**0.5)) for name in ("S", "KV"))
    case = scores_cases.Case(
        **given,
        softcap=options.choice((None, 2.0, 30.0)),
        alibi=options.choice(("", "heads", "batch")),
        sinks=True,
    )
    run, names = scores_cases.run_varlen, scores_cases.PACKED_NAMES
    return Drawn("flash_attention_varlen scores", case, run, names)


def _kvcache(options: Random, lengths: Random, longest: int) -> Drawn:
    D, DV = _dims(options)
    H, G = options.choice(HEADS)
    S = options.choice((1, 1, 1, 2, 3, 4, 8, 16, 37))
    new = 0 if _chance(options, 0.5) else options.choice((1, S, 5))
    page = options.choice((0, 0, 0, 1, 16, 32, 48, 64, 100, 128, 256))
    even = (D // 2 * 2, D // 2 // 2 * 2, min(16, D // 2 * 2))
    rotary = options.choice(even) if new and _chance(options, 0.6) else 0
    fp8 = _flavour(options) if _chance(options, 0.25) else ""
    most = min(longest, options.choice((100, 800, 2048)))
    room = most + new
    keys = [min(room, int(2.0 ** lengths.uniform(0.0, 11.0)) + new) for _ in range(4)]
    keys = keys[: lengths.randint(1, 4)]
    if _chance(lengths, 0.1):
        keys[-1] = new
    case = kvcache_case.Case(
        keys=tuple(keys),
        S=S,
        H=H,
        G=G,
        D=D,
        DV=0 if DV == D else DV,
        dtype=_dtype(options),
        causal=_chance(options, 0.6),
        window=_window(options),
        view=_view(options),
        page=page,
        splits=options.choice((0, 0, 1, 2, 5)),
        room=room,
        rows_elsewhere=not page and _chance(options, 0.3),
        new=new,
        rotary=rotary,
        interleaved=_chance(options, 0.5),
        fp8=fp8,
        scaled=options.choice(("", "tensor", "head")) if fp8 else "",
        softcap=options.choices((None, 2.0, 30.0), (8, 1, 1))[0],
        alibi=_chance(options, 0.15),
        sinks=_chance(options, 0.15),
    )
    if new and _chance(options, 0.4):
        news = [min(n, lengths.choice((0, 1, new, S, 40))) for n in keys]
        case = replace(case, new=0, news=tuple(news))
    if _chance(options, 0.3):
        queries = [options.choice((0, 1, 1, 2, S, 40, 150)) for _ in keys]
        queries[-1] = max(queries[-1], 1)
        case = replace(case, queries=tuple(queries))
    if _chance(options, 0.2):
        pads = [lengths.choice((0, 1, n // 3, n // 2, n - new, n)) for n in keys]
        case = replace(case, leftpad=tuple(pads))
    if _chance(options, 0.15):
        case = replace(case, chunk=options.choice((16, 50, 128, 1000)))
    return Drawn("flash_attention_kvcache", case, kvcache_case.run, ("out", "lse"))


def _in_fp8(options: Random, lengths: Random, longest: int) -> dict[str, Any]:
    given = _scored(options, lengths, longest)
    for name in ("B", "dtype"):
        del given[name]
    given["DV"] = given["DV"] or given["D"]
    given["out"] = options.choice(("bfloat16", "float16", "float32"))
    given["scales"] = options.choice(("none", "tensor", "heads", "sequences"))
    return given


def _attention_fp8(options: Random, lengths: Random, longest: int) -> Drawn:
    case = attention_fp8_cases.Case(**_in_fp8(options, lengths, longest))
    return Drawn("flash_attention fp8", case, run_attention_fp8)


def _varlen_fp8(options: Random, lengths: Random, longest: int) -> Drawn:
    given = _in_fp8(options, lengths, longest)
    q, k = _packed(options, lengths, longest)
    used = tuple(lengths.randint(0, n + 1) for n in q) if _chance(options, 0.2) else ()
    spare = lengths.choice((0, 0, 70))
    case = varlen_fp8_cases.Case(**given, q=q, k=k, spare=spare, used=used)
    return Drawn("flash_attention_varlen fp8", case, run_attention_fp8)


def _sizes(options: Random, lengths: Random, longest: int) -> tuple[int, int, int]:
    """Of products, some with few rows and many to add."""

    def one(least: float, most: float) -> int:
        return min(longest, int(2.0 ** lengths.uniform(least, most)))

    skinny, whole = _chance(options, 0.3), _chance(options, 0.4)
    found = (one(0, 6), one(6, 12), one(9, 13)) if skinny else (one(0, 11), one(0, 11), one(0, 11))
    M, N, K = (max(16, n // 16 * 16) for n in found) if whole else found
    return M, N, K


def _matmul(options: Random, lengths: Random, longest: int) -> Drawn:
    M, N, K = _sizes(options, lengths, 4 * longest)
    dtype = _dtype(options)
    case = test_matmul.Case(
        M=M,
        N=N,
        K=K,
        dtype=dtype,
        a_view=_view(options),
        b_view=_view(options),
        bias=_chance(options, 0.4),
        activation=options.choice((None, None, "relu", "gelu", "silu")),
        residual=options.choice((None, None, None, "padded", "transposed", "expanded")),
        tf32=dtype == "float32" and _chance(options, 0.5),
    )
    return Drawn("matmul", case, run_matmul)


def _matmul_gradients(options: Random, lengths: Random, longest: int) -> Drawn:
    activation = options.choice((None, "relu", "gelu", "silu"))
    case = (_dtype(options), activation, _chance(options, 0.5), *_sizes(options, lengths, longest))
    names = ("da", "db", "dbias", "dresidual")
    return Drawn("matmul gradients", case, run_matmul_gradients, names)


def _matmul_fp8(options: Random, lengths: Random, longest: int) -> Drawn:
    M, N, K = _sizes(options, lengths, 4 * longest)
    case = test_matmul_fp8.Case(
        flavour=_flavour(options),
        M=M,
        N=N,
        K=K,
        a_view=_view(options),
        b_view=options.choice(("transposed", "transposed", "contiguous", "skipping")),
        a_scale=options.choice(("none", "tensor", "rows", "blocks")),
        b_scale=options.choice(("none", "tensor", "columns", "blocks")),
        bias=_chance(options, 0.4),
        activation=options.choice((None, None, "relu", "gelu", "silu")),
        residual=_chance(options, 0.3),
        out=options.choice(("bfloat16", "float16", "float32")),
    )
    return Drawn("matmul fp8", case, run_matmul_fp8)


def _grouped(options: Random, lengths: Random, longest: int) -> Drawn:
    total, N, K = _sizes(options, lengths, longest)
    inner = sorted(lengths.randint(0, total) for _ in range(lengths.randint(1, 8)))
    case = test_matmul_grouped.Case(
        offsets=(0, *inner),
        total=total,
        N=N,
        K=K,
        dtype=_dtype(options),
        a_view=_view(options),
        b_view=_view(options),
    )
    return Drawn("grouped_matmul", case, test_matmul_grouped.run, ("out", "da", "db"))

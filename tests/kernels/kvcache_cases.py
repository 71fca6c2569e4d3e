"""The cases of flash_attention_kvcache that tests run."""

from __future__ import annotations

from tests.kernels.kvcache_case import Case

CASES = [
    Case(),
    Case(dtype="bfloat16", H=8, G=1, S=2, causal=True, D=128),
    Case(dtype="float32", D=40, causal=True, S=2, splits=3),
    Case(S=16, H=6, G=2, D=16, causal=True, keys=(40, 5, 0, 16)),
    Case(S=37, H=2, G=2, D=32, causal=True, keys=(90, 37)),
    Case(H=2, G=2, D=80, DV=48, view="transposed", splits=2),
    Case(D=256, keys=(33,), view="padded", splits=4, room=33),
    Case(D=32, view="skipping", rows_elsewhere=True, S=2, causal=True),
    Case(D=32, S=3, window=(20, 0), keys=(99, 3, 40), splits=2),
    Case(D=32, S=4, window=(5, 2), keys=(99, 3, 0), page=16),
    Case(D=32, page=16, S=2, causal=True),
    Case(D=32, page=32, splits=2, dtype="bfloat16", view="transposed"),
    Case(D=32, page=64, S=2, causal=True, splits=3, view="skipping"),
    Case(D=72, H=32, dtype="float32", page=16, splits=2, keys=(99, 18)),
    Case(keys=(0, 0), splits=2, D=16, page=16),
    Case(D=32, page=1, S=2, causal=True, new=2, rotary=16, keys=(99, 3)),
    Case(D=16, page=48, splits=2, dtype="bfloat16", window=(60, 0)),
    Case(D=16, page=192, dtype="float32", keys=(300, 192), room=384),
    Case(keys=(3,), H=1, G=1, D=16),
    Case(D=32, new=2, S=2, causal=True, keys=(40, 2, 3), rotary=32),
    Case(D=48, new=3, S=3, keys=(40, 3), rotary=16, page=16, splits=2, view="skipping"),
    Case(D=32, DV=16, new=1, causal=True, keys=(20, 1), rotary=20, interleaved=False, page=16),
    Case(D=16, new=5, S=4, H=8, window=(9, -1), keys=(50, 9, 31), rotary=16, dtype="float32"),
    Case(D=16, new=4, H=8, G=8, keys=(50, 4), rows_elsewhere=True, dtype="bfloat16"),
    Case(D=16, fp8="float8_e4m3fn", scaled="head", causal=True, S=2, splits=2),
    Case(D=16, fp8="float8_e4m3fnuz", scaled="tensor", dtype="bfloat16", page=16, keys=(40, 3)),
    Case(D=16, fp8="float8_e4m3fn", scaled="tensor", view="skipping", keys=(40, 3)),
    Case(D=16, fp8="float8_e4m3fn", new=2, rotary=16, causal=True, keys=(40, 2), scaled="head"),
    Case(D=16, H=16, fp8="float8_e4m3fnuz", new=2, keys=(20, 2), page=16, dtype="float32"),
    Case(D=16, H=1, G=1, splits=18, keys=(660,), room=660),
    # More queries than new keys: their positions go on beyond the cache's room.
    Case(D=16, new=2, S=6, H=2, causal=True, keys=(32, 20), page=16, room=32, rotary=16),
    Case(D=16, softcap=2.0, alibi=True, sinks=True, S=2, keys=(70, 0, 3), splits=3, causal=True),
    Case(D=16, softcap=3.0, dtype="float32", S=3, H=8, keys=(90, 33), page=16, splits=2),
    Case(D=16, alibi=True, dtype="bfloat16", S=4, window=(30, 2), keys=(90, 40)),
    Case(D=16, sinks=True, keys=(60, 2, 0), fp8="float8_e4m3fn", scaled="tensor"),
    Case(D=16, queries=(5, 1, 0, 70), causal=True, page=16),
    Case(D=32, queries=(1, 0, 3), causal=True, splits=3, keys=(99, 40, 2), dtype="bfloat16"),
    Case(D=16, DV=32, queries=(40, 2), H=8, G=1, window=(20, 0), keys=(40, 90), view="skipping"),
    Case(D=40, queries=(3, 9), splits=2, keys=(30, 9), dtype="float32", causal=True, page=32),
    Case(D=16, queries=(4, 1, 1), keys=(50, 1, 0), fp8="float8_e4m3fn", scaled="head", page=7),
    Case(D=16, queries=(4, 1, 1), keys=(50, 1, 0), fp8="float8_e4m3fn", scaled="head", page=16),
    Case(D=16, queries=(2, 7), keys=(50, 90), alibi=True, sinks=True, softcap=2.0, splits=2),
    Case(D=16, queries=(2, 7), keys=(20, 9), rows_elsewhere=True, S=0),
    *(Case(D=16, S=2, H=2, G=1, causal=True, splits=n, keys=(99, 34)) for n in range(1, 9)),
    # Tiles of 32 keys, the first of them whole, in part or not a sequence's own.
    Case(leftpad=(40, 0, 0, 32), splits=2, sinks=True, alibi=True),
    Case(
        leftpad=(33, 3, 5),
        keys=(90, 40, 3),
        S=3,
        causal=True,
        dtype="bfloat16",
        rows_elsewhere=True,
    ),
    Case(leftpad=(70, 99), keys=(70, 40), D=16, softcap=2.0, splits=3),
    Case(leftpad=(50, 9), keys=(90, 40), S=4, window=(20, 2), D=16, dtype="float32", H=8),
    Case(leftpad=(95, 17), keys=(99, 40), page=16, D=16, S=2, causal=True, view="skipping"),
    Case(leftpad=(64, 37), keys=(99, 40), page=64, D=16, DV=32, splits=2),
    Case(leftpad=(20, 3, 40), keys=(40, 9, 41), new=2, rotary=16, D=16, S=2, causal=True, page=7),
    Case(leftpad=(33, 0), keys=(70, 9), fp8="float8_e4m3fn", scaled="head", new=1, D=16, splits=2),
    Case(leftpad=(41, 6), keys=(90, 40), queries=(40, 2), D=16, causal=True, page=16, alibi=True),
    Case(
        leftpad=(10, 2), keys=(30, 9), queries=(3, 9), D=40, dtype="float32", splits=2, causal=True
    ),
    # Of queries in one chunk and in two; in none, where there are fewer keys.
    Case(chunk=32, keys=(70, 64, 33, 1), S=4, causal=True, page=16, splits=2, sinks=True),
    Case(chunk=20, keys=(99, 3, 0), S=5, dtype="float32", D=16, window=(-1, 9)),
    Case(chunk=33, keys=(90, 40), queries=(40, 2), D=16, causal=True, alibi=True, leftpad=(60, 0)),
    Case(chunk=20, keys=(99, 40, 9), S=3, D=16, leftpad=(30, 7, 9), splits=3, sinks=True),
    Case(chunk=2**31 - 1, keys=(40, 0), D=16, leftpad=(3, 2**31 - 1), splits=2),
    Case(chunk=64, keys=(90, 3), new=3, rotary=16, S=3, D=16, fp8="float8_e4m3fn", scaled="head"),
    # Sequences that get many new keys, one and none.
    Case(news=(40, 1, 0), keys=(90, 1, 33), queries=(40, 1, 3), causal=True, page=16, rotary=64),
    Case(news=(3, 0), keys=(40, 9), S=2, D=16, rotary=8, interleaved=False, rows_elsewhere=True),
    Case(news=(0, 20, 2), keys=(0, 20, 9), queries=(1, 20, 2), D=32, DV=16, H=8, dtype="float32"),
    Case(
        news=(2, 17),
        keys=(20, 40),
        queries=(2, 17),
        D=16,
        fp8="float8_e4m3fn",
        scaled="head",
        page=7,
        causal=True,
        splits=2,
        rotary=16,
    ),
    Case(
        new=2, queries=(2, 5, 1), keys=(40, 9, 2), D=16, window=(20, 0), rotary=16, view="skipping"
    ),
    Case(
        news=(20, 0),
        keys=(90, 40),
        queries=(20, 1),
        leftpad=(33, 5),
        D=16,
        dtype="bfloat16",
        causal=True,
    ),
]


# Values that are keys, too, and are wider than these; pages of any row of a table; all in fp8.
SERVED = [
    Case(qv=True, D=16, DV=512, H=4, G=1, S=3, causal=True, keys=(70, 3), splits=2),
    Case(qv=True, D=64, DV=300, H=2, G=1, keys=(40, 0, 9), dtype="bfloat16", page=16),
    Case(qv=True, D=8, DV=16, S=2, window=(20, 0), dtype="float32", keys=(70, 9), softcap=3.0),
    Case(
        qv=True, D=16, DV=32, queries=(3, 1, 9), keys=(40, 1, 33), causal=True, page=1, alibi=True
    ),
    Case(D=32, DV=512, H=8, G=1, S=8, keys=(40,), room=40, dtype="bfloat16"),
    Case(D=16, page=16, rows_elsewhere=True, S=2, causal=True, keys=(70, 3, 0)),
    Case(D=16, page=7, rows_elsewhere=True, new=2, rotary=16, keys=(40, 9), queries=(2, 3)),
    Case(D=16, new=3, S=3, rotary=8, keys=(40, 9), turned_from=(2, 70), causal=True),
    Case(D=16, news=(3, 1), queries=(4, 1), rotary=16, keys=(40, 9), turned_from=(50, 0), page=16),
    Case(D=16, fp8="float8_e4m3fn", scaled="sequence", new=1, keys=(40, 9, 1), S=2, splits=2),
    Case(D=16, fp8="float8_e4m3fn", scaled="sequence", news=(3, 1), keys=(40, 9), rotary=16, S=2),
    Case(
        D=16, fp8="float8_e4m3fn", scaled="sequence", all_fp8=True, keys=(70, 9), S=3, causal=True
    ),
    Case(
        D=16,
        fp8="float8_e4m3fnuz",
        scaled="head",
        all_fp8=True,
        keys=(40, 9),
        new=2,
        page=16,
        rows_elsewhere=True,
        splits=2,
    ),
    Case(
        D=16,
        dtype="bfloat16",
        fp8="float8_e4m3fn",
        scaled="tensor",
        all_fp8=True,
        keys=(40, 9),
        queries=(2, 5),
        news=(2, 5),
        rotary=16,
        causal=True,
    ),
    Case(
        D=16,
        dtype="bfloat16",
        fp8="float8_e4m3fn",
        scaled="sequence",
        all_fp8=True,
        keys=(40, 9),
        queries=(2, 5),
        causal=True,
    ),
]


# In 16 bits and of few parts: tiles of these can lie either way.
EITHER_WAY = [
    Case(dtype="bfloat16", D=32, S=2, causal=True, sinks=True, alibi=True, page=16),
    Case(D=16, DV=32, window=(20, 0), softcap=2.0, splits=2),
    Case(D=16, fp8="float8_e4m3fn", scaled="head", dtype="bfloat16", splits=2, keys=(40, 0)),
    Case(D=16, fp8="float8_e4m3fnuz", scaled="tensor", page=32, new=1, keys=(40, 3)),
    Case(D=16, leftpad=(35, 0, 0, 40), page=16, causal=True, S=2, splits=2),
    Case(D=16, chunk=40, S=3, keys=(99, 41), splits=2),
]

"""flash_attention_kvcache against each sequence's own formula in fp64, in Triton's interpreter."""

from __future__ import annotations

import mmap
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels.attention.decode.combine import cut
from kernels.attention.decode.tuning import alone, choose, choose_splits
from kernels.runtime.targets import Target
from tests.kernels.interpreted import Worker
from tests.kernels.kvcache_case import Case, run
from tests.kernels.kvcache_cases import CASES, EITHER_WAY, SERVED

NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python names from 3.13 on


@pytest.mark.parametrize("case", CASES, ids=str)
def test_outputs_match_fp64(interpreter: Worker, case: Case) -> None:
    interpreter.check(run, case, names=("out", "lse"), draws=4 if case.dtype == "float32" else 1)


@pytest.mark.parametrize("case", SERVED, ids=str)
def test_so_do_those_of_mla_pages_of_a_row_and_queries_in_fp8(
    interpreter: Worker, case: Case
) -> None:
    interpreter.check(run, case, names=("out", "lse"), draws=4 if case.dtype == "float32" else 1)


def run_unturned(case: Case) -> Any:
    """As ``run``, with queries as the rows of products."""
    from kernels.attention.decode import launch as kvcache_launch

    chosen = kvcache_launch.choose
    kvcache_launch.choose = lambda *given: replace(chosen(*given), turned=False)
    try:
        return run(case)
    finally:
        kvcache_launch.choose = chosen


@pytest.mark.parametrize("case", EITHER_WAY, ids=str)
def test_tiles_lie_either_way(interpreter: Worker, case: Case) -> None:
    interpreter.check(run_unturned, case, names=("out", "lse"))
    interpreter.check(run, case, names=("out", "lse"))


def run_adding_fp64(case: Case) -> Any:
    """As kernels for sm_90 compute where products are added up in fp64."""
    from triton.language import target_info

    found = target_info.current_target
    target_info.current_target = lambda: SimpleNamespace(backend="cuda", arch=90)
    try:
        return run(case)
    finally:
        target_info.current_target = found


def test_products_of_fp32_with_an_fp8_cache_are_added_in_fp64(interpreter: Worker) -> None:
    case = Case(dtype="float32", fp8="float8_e4m3fn", H=8, G=8, keys=(9, 11), room=20)
    out, _ = interpreter.run(run_adding_fp64, case)
    # Added up in fp32 it was 0.82 of it.
    assert out.rms < 0.65 * out.plain_rms, out


def test_long_sums_of_fp32_do_not_show_in_the_log_sum_exp(interpreter: Worker) -> None:
    case = Case(dtype="float32", keys=(1970,), room=1970, S=16, H=64, G=1, D=16, softcap=2.0)
    _, lse = interpreter.run(run, replace(case, splits=1))
    # Of 1,024 rows, over the plain formula. Summed up in fp32 it was 1.08.
    assert lse.rms < 1.06 * lse.plain_rms, lse.rms / lse.plain_rms


def run_lengths() -> list[torch.Tensor]:
    """One length for all as an int, as a tensor, and by default that of the cache."""
    import kernels

    q, k, v = Case(D=16, keys=(20, 20), room=20).drawn()
    lengths = torch.full((4,), 20, dtype=torch.int32)[::2]
    # No length may lead outside the cache: the rows around it are another's.
    far = torch.tensor([-3, 1000], dtype=torch.int32)
    return [
        *(
            kernels.flash_attention_kvcache(q, k, v, cache_seqlens=each)
            for each in (20, lengths, None)
        ),
        kernels.flash_attention_kvcache(q, k, v, cache_seqlens=far),
    ]


def test_lengths_come_as_tensor_int_or_not_at_all(interpreter: Worker) -> None:
    as_int, as_tensor, by_default, far = interpreter.run(run_lengths)
    assert torch.equal(as_int, as_tensor) and torch.equal(as_int, by_default)
    assert torch.equal(far[0], torch.zeros_like(far[0])) and torch.equal(far[1], as_int[1])


def run_known() -> tuple[list[int], list[torch.Tensor]]:
    """Launches that add parts, and outputs, of two key heads for the interpreter's two processors:
    by one part, by one length for all, by that of the cache, and where that cannot be known."""
    import kernels
    from kernels.attention.decode import combine as kvcache_combine

    q, k, v = Case(D=16, H=4, G=1, keys=(160, 160), room=160).drawn()
    adding, launch = 0, kvcache_combine.launch

    def counted(*given: Any, **named: Any) -> None:
        nonlocal adding
        adding += 1
        launch(*given, **named)

    counts, outs = [], []
    kvcache_combine.launch = counted
    try:
        for options in (
            {"num_splits": 1},
            {"cache_seqlens": 160},
            {},
            {"cache_seqlens": torch.tensor([160, 160], dtype=torch.int32)},
            {"num_splits": 2},
            {"cache_leftpad": torch.zeros(2, dtype=torch.int32)},
            {"window_size": (150, -1)},
        ):
            adding = 0
            outs.append(kernels.flash_attention_kvcache(q, k, v, **options))
            counts.append(adding)
    finally:
        kvcache_combine.launch = launch
    return counts, outs


def test_lengths_known_to_be_the_same_are_not_split_where_heads_fill_the_device(
    interpreter: Worker,
) -> None:
    counts, (whole, *others) = interpreter.run(run_known)
    assert counts == [0, 0, 0, 1, 1, 1, 1]
    assert torch.equal(whole, others[0]) and torch.equal(whole, others[1])
    for split in others[2:5]:
        torch.testing.assert_close(whole, split, rtol=0.0, atol=1e-3)


def run_padded() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which of two parts of each sequence's keys saw any, where two, one, none and all four of the
    blocks of 32 keys lie behind the padding; outputs, and those without padding."""
    import kernels
    from kernels.attention.decode import combine as kvcache_combine

    q, k, v = Case(D=16, H=2, G=1, keys=(128,) * 4, room=128).drawn()
    pads = torch.tensor([64, 99, 2**31 - 1, -(2**31)], dtype=torch.int32)
    largest, launch = [], kvcache_combine.launch

    def noted(part: torch.Tensor, stats: torch.Tensor, *given: Any, **named: Any) -> None:
        largest.append(stats[0].clone())
        launch(part, stats, *given, **named)

    kvcache_combine.launch = noted
    try:
        padded = kernels.flash_attention_kvcache(q, k, v, cache_leftpad=pads, num_splits=2)
        plain = kernels.flash_attention_kvcache(q, k, v, num_splits=2)
    finally:
        kvcache_combine.launch = launch
    return (largest[0] > float("-inf")).all(2), padded, plain


def test_parts_share_the_keys_behind_the_padding(interpreter: Worker) -> None:
    seen, padded, plain = interpreter.run(run_padded)
    assert seen.tolist() == [[True, True], [True, False], [False, False], [True, True]]
    assert not padded[2].any() and torch.equal(padded[3], plain[3])


@pytest.mark.parametrize(
    ("tiles", "rows", "page_size", "expected"),
    [
        (128, 4, 0, True),
        (119, 16, 64, True),
        (132, 1, 128, True),
        (118, 4, 0, False),  # too many multiprocessors would be idle
        (133, 4, 0, False),  # one would have two programs
        (128, 17, 0, False),
        (128, 64, 64, True),  # a tile of 64 rows
        (128, 4, 32, False),
        (128, 4, 96, False),  # blocks of 64 keys that lie in two pages
        (128, 4, 192, True),
    ],
)
def test_a_whole_sequence_is_one_programs_where_it_has_a_processor_to_itself(
    tiles: int, rows: int, page_size: int, expected: bool
) -> None:
    config = choose(Target("sm_90", "cuda", 90), 128, torch.bfloat16, rows, False, False)
    found = alone(config, tiles, rows, page_size, 132)
    assert found == (replace(config, num_stages=4) if expected else None)
    wide = choose(Target("sm_90", "cuda", 90), 256, torch.bfloat16, rows, False, False)
    assert alone(wide, 128, 4, 0, 132) is None


def run_no_key(splits: int, turned: bool) -> tuple[torch.Tensor, torch.Tensor]:
    import kernels
    from kernels.attention.decode import launch as kvcache_launch

    case = Case(D=16, H=16, S=2, keys=(0, 20), room=100, sinks=True, splits=splits)
    sinks = case.extras()["sinks"]
    chosen = kvcache_launch.choose
    kvcache_launch.choose = lambda *given: replace(chosen(*given), turned=turned)
    try:
        _, lse = kernels.flash_attention_kvcache(
            *case.drawn(),
            cache_seqlens=torch.tensor(case.keys, dtype=torch.int32),
            sinks=sinks,
            num_splits=splits,
            return_lse=True,
        )
    finally:
        kvcache_launch.choose = chosen
    return lse, sinks


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("turned", [False, True])
def test_rows_that_see_no_key_weigh_their_sink_alone(
    interpreter: Worker, splits: int, turned: bool
) -> None:
    lse, sinks = interpreter.run(run_no_key, splits, turned)
    assert torch.equal(lse[0], sinks[:, None].expand(-1, 2))
    assert (lse[1] > sinks[:, None]).all()


def run_autocast() -> list[torch.Tensor]:
    """fp32 queries and new keys on a bf16 cache, and fp16 on one of fp16."""
    import kernels

    case = Case(D=16, keys=(20, 3), room=20)
    found = []
    for given, kept in ((torch.float32, torch.bfloat16), (torch.float16, torch.float16)):
        q, k, v = (one.to(kept) for one in case.drawn())
        new = [one[:, :1].to(given) for one in (k, v)]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            mixed = kernels.flash_attention_kvcache(
                q.to(given), k.clone(), v.clone(), *new, cache_seqlens=5
            )
        new = [one.to(kept) for one in new]
        found += [mixed, kernels.flash_attention_kvcache(q, k, v, *new, cache_seqlens=5)]
    return found


def test_autocast_lowers_what_is_not_of_the_caches_dtype(interpreter: Worker) -> None:
    mixed, lowered, alike, kept = interpreter.run(run_autocast)
    assert mixed.dtype == torch.bfloat16 and torch.equal(mixed, lowered)
    assert alike.dtype == torch.float16 and torch.equal(alike, kept)


def run_far(paged: bool) -> list[list[torch.Tensor]]:
    """Results and appended rows of a cache whose third page or row lies 2^31 elements after the
    first, and of the same one close together."""
    import kernels

    step = (1 << 30) + 64
    room = mmap.mmap(-1, 2 * (2 * step + 4096), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    far = torch.frombuffer(room, dtype=torch.float16)  # memory that is not touched is not there
    q, k, v = Case(D=16, keys=(20,), room=16).drawn()
    places = torch.tensor([[2, 0]] if paged else [2], dtype=torch.int32)
    found = []
    for each in (step, 256):
        caches = [far[at:].as_strided((3, 16, 1, 16), (each, 16, 16, 1)) for at in (0, 1024)]
        for cache, rows in zip(caches, (k, v), strict=True):
            cache[2, :, 0] = rows[0, :, 0]
        where = {"block_table": places} if paged else {"cache_batch_idx": places}
        new = q[:, :, :1]
        out = kernels.flash_attention_kvcache(q, *caches, new, new, cache_seqlens=15, **where)
        found.append([out, *(cache[2].clone() for cache in caches)])
    return found


# A logarithm rounded to fp32 errs as much as the result's own rounding: 1.06 of the formula's.
@pytest.mark.parametrize("splits", [1, 4])
def test_fp32_log_sum_exps_err_less_than_the_formulas(interpreter: Worker, splits: int) -> None:
    case = Case(keys=(805, 700), room=900, S=8, H=16, G=4, D=32, dtype="float32", splits=splits)
    _, lse = interpreter.run(run, case)
    assert lse.rms < 0.9 * lse.plain_rms


@pytest.mark.parametrize("paged", [False, True])
def test_offsets_need_not_fit_32_bits(interpreter: Worker, paged: bool) -> None:
    far, near = interpreter.run(run_far, paged)
    for one, other in zip(far, near, strict=True):
        assert torch.equal(one, other) and not one.isnan().any()


def run_operator() -> tuple[dict[str, str], torch.Tensor, torch.Tensor]:
    import kernels.public

    case = Case(dtype="float32", D=16, S=2, page=16, keys=(20, 3), room=32, rotary=8)
    q, k, v = case.drawn()
    (k_cache, table), (v_cache, _) = case.cache(k, 1), case.cache(v, 2)
    lengths = torch.tensor(case.keys, dtype=torch.int32)
    untold = (None, None, True, True, 0, None, 0.25, 30.0, None, None, 2)
    outcome = torch.library.opcheck(
        torch.ops.warpwatch.flash_attention_kvcache,
        (q, k_cache, v_cache, lengths, 0, None, table, None, None, 0, *untold),
    )
    starts, pads = torch.tensor([0, 1, 4], dtype=torch.int32), torch.tensor([5, 0]).int()
    cached = (k_cache, v_cache, lengths - starts.diff(), 0, None, table, None, None, 0)
    outcome |= torch.library.opcheck(
        torch.ops.warpwatch.flash_attention_kvcache,
        (q.flatten(0, 1), *cached, *untold, starts, 3, pads, starts, 40),
    )
    cos, sin = case.angles()
    new = q[:, :, :2].clone()
    for one, of_each in ((new, ()), (new.flatten(0, 1), (starts,))):
        caches = (k_cache.clone(), v_cache.clone(), *cached[2:-1])
        outcome |= torch.library.opcheck(
            torch.ops.warpwatch.kvcache_append, (one, one, *caches, cos, sin, True, *of_each)
        )

    def model(q: Any, k_cache: Any, v_cache: Any, lengths: Any, pads: Any, starts: Any) -> Any:
        packed = new.flatten(0, 1)
        return 2.0 * kernels.flash_attention_kvcache(
            q, k_cache, v_cache, packed, packed, rotary_cos=cos, rotary_sin=sin, causal=True,
            cache_seqlens=lengths, cache_leftpad=pads, block_table=table, cu_seqlens_k_new=starts,
        )  # fmt: skip

    caches = [(k_cache.clone(), v_cache.clone()) for _ in range(2)]
    given = (lengths, pads, starts)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")(q, *caches[0], *given)
    eager = model(q, *caches[1], *given)
    for mine, other in zip(*caches, strict=True):
        assert not torch.equal(mine.nan_to_num(), k_cache.nan_to_num())
        torch.testing.assert_close(mine, other, rtol=0.0, atol=0.0, equal_nan=True)
    return outcome, compiled, eager


def test_operator_passes_opcheck_and_compiles_in_one_graph(interpreter: Worker) -> None:
    outcome, compiled, eager = interpreter.run(run_operator)
    assert set(outcome.values()) == {"SUCCESS"}
    assert torch.equal(compiled, eager)


@pytest.mark.parametrize(
    ("tiles", "key_blocks", "processors", "expected"),
    [
        (1, 0, 264, 1),
        (512, 1000, 264, 1),  # more than a wave of programs, and the second is nearly full
        (8, 2048, 264, 32),  # nearly one wave
        (128, 64, 264, 2),
        (128, 64, 1216, 9),
        (1, 4096, 264, 121),  # all there may be, less what changes nothing,
        (8, 10, 264, 5),  # not less than two blocks a part
    ],
)
def test_splits_fill_the_processors(
    tiles: int, key_blocks: int, processors: int, expected: int
) -> None:
    assert choose_splits(tiles, key_blocks, processors) == expected


@pytest.mark.parametrize(
    ("tiles", "splits", "rows", "columns", "expected"),
    [
        (8, 32, 4, 128, (32, 1, 16)),  # one sequence: 256 programs
        (128, 2, 4, 128, (2, 1, 128)),  # whole rows are programs enough
        (128, 2, 64, 128, (2, 2, 128)),  # and several of them, where there are many
        (1, 128, 1, 256, (128, 1, 8)),  # no fewer columns than a sector of the cache
        (1, 3, 1, 40, (4, 1, 8)),
    ],
)
def test_adding_is_cut_for_the_processors(
    tiles: int, splits: int, rows: int, columns: int, expected: tuple[int, int, int]
) -> None:
    assert cut(tiles, splits, rows, columns, 132) == expected

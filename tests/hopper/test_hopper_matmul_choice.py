"""Which kernels serve a product on Hopper, and how it is cut."""

from __future__ import annotations

import sys
from itertools import product as product_of

import pytest
import torch
import triton

from kernels import matmul
from kernels.matmul.hopper import choose as hopper_choice
from kernels.matmul.hopper import launch as hopper
from kernels.matmul.hopper import unaligned
from kernels.runtime import backends
from tests.hopper.recorded import (
    SM_90,
    in_tf32,
    only_kernel,
    product,
    product_of_fp8,
)
from warpwatch.instruments.compiled.record.call import record


@pytest.mark.parametrize("shape", [(256, 4096, 4096), (1000, 1001, 1000)], ids=str)
def test_portable_matmul_serves_tf32_of_few_rows_or_odd_strides(
    shape: tuple[int, int, int],
) -> None:
    assert only_kernel(in_tf32(*shape)).name == "matmul_kernel"


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param({"a": (256, 260), "b": (260, 256)}, id="rows-not-16-byte-aligned"),
        pytest.param({"a": (256, 256), "b": (256, 256), "dtype": torch.float32}, id="fp32"),
    ],
)
def test_portable_matmul_serves_what_the_copy_engine_does_not_take(problem) -> None:
    dtype = problem.get("dtype", torch.bfloat16)

    def call() -> None:
        matmul(torch.empty(problem["a"], dtype=dtype), torch.empty(problem["b"], dtype=dtype))

    assert only_kernel(record(call, SM_90)).name == "matmul_kernel"


def test_an_untested_triton_gets_the_portable_kernel_and_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton, "__version__", "3.12.0")
    monkeypatch.setattr(backends, "_given_up", set())
    for name in ("hopper", "matmul.hopper.launch", "matmul.hopper.persistent"):
        monkeypatch.delitem(sys.modules, f"kernels.{name}", raising=False)
    first, second = (product(256, 256, 256) for _ in range(2))
    assert only_kernel(first).name == only_kernel(second).name == "matmul_kernel"
    # One reason for all of Hopper's kernels is told once, whichever is asked for next.
    assert backends.load("attention.hopper.forward.launch") is None
    (said,) = (note for note in first.notes if "the portable kernel serves" in note)
    assert "tested on Triton 3.6 to 3.9, got 3.12.0" in said
    assert not [note for note in second.notes if "the portable kernel serves" in note]


def test_few_rows_of_more_columns_than_a_grid_holds_leave_one_tile_a_program() -> None:
    most = 64 * 65_535
    assert (
        hopper_choice.whole_columns(most, 132) == 2
        and hopper_choice.whole_columns(most + 1, 132) is None
    )
    assert only_kernel(product(16, most, 16, layout="nt")).name == "matmul_hopper_once"
    assert only_kernel(product(16, most + 8, 16, layout="nt")).name == "matmul_hopper"
    crowded = {"activation": "gelu", "out": torch.float32}
    assert only_kernel(product_of_fp8(16, most, 16, **crowded)).name == "matmul_hopper_fp8_once"
    assert only_kernel(product_of_fp8(16, most + 8, 16, **crowded)).name == "matmul_kernel"


def test_k_is_split_for_half_the_processors_and_long_k_alone() -> None:
    def parts(M: int, N: int, K: int) -> tuple[hopper_choice.HopperConfig, int]:
        config = hopper_choice.choose(M, N, K, 132)
        return config, hopper_choice.split(config, M, N, K, 132)

    assert parts(128, 1024, 8192) == (hopper_choice.SMALL, 8)
    assert parts(128, 1024, 2048) == (hopper_choice.TINY, 4)
    assert parts(65, 256, 16384) == (hopper_choice.TINY, 16)
    assert parts(128, 4096, 4096) == (hopper_choice.TINY, 1)  # 128 tiles
    assert parts(512, 512, 512) == (hopper_choice.TINY, 1)  # four steps
    assert [parts(72, N, 8192)[1] for N in (256, 258, 260, 261)] == [16, 1, 13, 1]  # whole 16 bytes
    assert parts(4096, 4096, 16384) == (hopper_choice.WIDE, 1)
    for K in range(8, 20000, 1000):
        config, count = parts(200, 520, K)
        steps = -(-K // config.block_k)
        assert (count - 1) * -(-steps // count) < steps  # no part is empty


def test_the_widest_tiles_of_one_wave_have_a_kernel_with_little_code() -> None:
    def kernel(M: int, N: int, **options: object) -> str:
        return only_kernel(product(M, N, 512, **options)).name

    assert hopper_choice.choose(2048, 2048, 2048, 132) == hopper_choice.WIDE_ONCE
    assert hopper_choice.choose(1792, 2304, 2048, 132) == hopper_choice.WIDE_ONCE  # 126 tiles
    assert hopper_choice.choose(1792, 2048, 2048, 132) == hopper_choice.WIDE_ONCE  # 112
    assert hopper_choice.choose(1536, 1536, 1536, 132) == hopper_choice.TRIPLE  # 72
    assert (
        hopper_choice.choose(14336, 128, 2048, 132) == hopper_choice.MEDIUM
    )  # 112, of which half is nothing
    assert hopper_choice.choose(1920, 2240, 2048, 132) == hopper_choice.MEDIUM  # 135, 270 of MEDIUM
    assert hopper_choice.choose(4096, 4096, 4096, 132) == hopper_choice.WIDE
    assert kernel(2048, 2048) == kernel(1792, 2304) == "matmul_hopper_once"
    residual = torch.empty((2048, 2048)).bfloat16()
    assert kernel(1920, 2240) == kernel(2048, 2048, residual=residual) == "matmul_hopper"


def test_what_programs_do_not_share_evenly_is_cut_so_that_none_has_two_parts() -> None:
    def cut(M: int, N: int) -> tuple[hopper_choice.HopperConfig, int]:
        config = hopper_choice.choose(M, N, 4096, 132)
        return config, hopper_choice.parts_of_the_rest(config, M, N, 132)

    assert cut(4096, 28672) == (hopper_choice.WIDE, 4)  # 20 tiles left
    assert cut(1024, 6144) == (hopper_choice.MEDIUM, 1)  # 384: nearly three turns
    assert cut(1536, 1536) == cut(2304, 4096) == (hopper_choice.TRIPLE, 1)  # 96, 384
    assert cut(2304, 2304) == (hopper_choice.MEDIUM, 2)  # 60 left
    assert cut(4096, 4096) == (hopper_choice.WIDE, 1)  # 116 left
    assert cut(2048, 2048) == (hopper_choice.WIDE_ONCE, 1)
    for config in (hopper_choice.WIDE, hopper_choice.MEDIUM, hopper_choice.SMALL):
        for M, N in product_of(range(64, 6000, 448), range(64, 6000, 448)):
            count = hopper_choice.tiles(config, M, N)
            parts = hopper_choice.parts_of_the_rest(config, M, N, 132)
            assert parts == 1 or (count > 132 and 0 < count % 132 * parts <= 132)
            assert config.block_n // parts >= 64


def test_rows_go_by_class_where_those_of_b_begin_anywhere_in_a_line() -> None:
    def classes(M: int, N: int, K: int, order: str = "nn", skipped: int = 0) -> int:
        a, b = torch.empty((M, K)).half(), torch.empty(K * N + skipped).half()
        b = b[skipped:].view(K, N)
        a = torch.empty((K, M)).half().t() if order[0] == "t" else a
        b = torch.empty((N, K)).half().t() if order[1] == "t" else b
        return hopper.lines(a, b, hopper_choice.choose(M, N, K, 132), 132)

    assert classes(1000, 1000, 1000) == classes(1000, 1000, 1000, "nt") == 8
    assert classes(1000, 1000, 1008) == 4  # whole 32 bytes
    assert classes(1000, 1000, 1024) == classes(1024, 1024, 1024, skipped=8) == 1
    assert classes(1000, 1000, 1000, "tn") == 0  # a's lines lie along M
    assert classes(1001, 1000, 1000) == 0
    assert classes(1000, 1024, 1000) == 0
    assert classes(1024, 1024, 1024) == classes(2000, 1000, 1000) == classes(504, 504, 504) == 0


def test_rows_of_several_tiles_go_by_class_where_that_asks_for_less_in_all() -> None:
    def cut(M: int, N: int, K: int, order: str = "nn") -> unaligned.LinesConfig | None:
        a, b = torch.empty((M, K)).half(), torch.empty((K, N)).half()
        a = torch.empty((K, M)).half().t() if order[0] == "t" else a
        b = torch.empty((N, K)).half().t() if order[1] == "t" else b
        return unaligned.choose(a, b, 132)

    assert cut(4040, 4040, 4040) == cut(4040, 4040, 4040, "nt") == unaligned.TALL
    assert cut(4096, 4040, 4096) == unaligned.TALL  # of a rows begin with lines, of b none
    assert cut(5000, 5000, 5000) == unaligned.BROAD  # 625 rows a class
    assert cut(4104, 4104, 4104) is None  # 513 rows a class
    assert cut(3400, 3400, 3400) is None  # 425: of two tiles of 256 a sixth is no row
    assert cut(6000, 6000, 6000) is None  # rows begin with sectors of 32 bytes
    assert cut(4040, 4096, 4040) is None  # b's rows begin with lines
    assert cut(4040, 4040, 4040, "tn") is None  # a's lines lie along M
    assert cut(4041, 4040, 4040) is cut(4096, 4096, 4096) is cut(1000, 1000, 1000) is None


def test_programs_of_several_tiles_keep_step_where_that_is_no_turn_more() -> None:
    def programs(tiles: int) -> int:
        return hopper_choice.programs_in_step(tiles, 132)

    assert programs(512) == programs(1024) == programs(1792) == programs(2048) == 128
    assert programs(560) == 112  # five turns of 112, as of 132
    assert programs(1056) == programs(133 * 132) == 132  # eight of all; of 128 one more
    assert [programs(tiles) for tiles in (1, 100, 131, 132, 133)] == [1, 100, 131, 132, 80]
    for tiles in range(1, 3000):
        for multiprocessors in (7, 16, 114, 132):
            found = hopper_choice.programs_in_step(tiles, multiprocessors)
            assert found <= min(tiles, multiprocessors)
            assert -(-tiles // found) == -(-tiles // min(tiles, multiprocessors))

"""What the compiler makes of Hopper's fp8 kernels: wgmma of e4m3, nothing spilled or sorted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from kernels import matmul
from kernels.attention.hopper.fp8 import launch as hopper_fp8
from tests.hopper.recorded import SM_90, in_fp8, only_kernel, packed_in_fp8, product_of_fp8
from tests.meetings import meet
from warpwatch.instruments.compiled.formats.recording import Recording
from warpwatch.instruments.compiled.measure.reading import read_code, read_codes
from warpwatch.instruments.compiled.record.call import record

pytestmark = pytest.mark.sampled

DENSE: dict[str, dict[str, Any]] = {
    "D64": {"head_dim": 64},
    "D64-long": {"head_dim": 64, "seqlen_q": 4096},
    "D128": {"head_dim": 128},
    "D128-long": {"head_dim": 128, "seqlen_q": 4096},
    "D48-fp16": {"head_dim": 48, "out": torch.float16, "scales": None},
    "D96-fp32": {"head_dim": 96, "seqlen_q": 4096, "out": torch.float32},
    "D256": {"head_dim": 256},
    "D256-sequences": {"head_dim": 256, "seqlen_q": 1024, "scales": (2, 2)},
    "D64-sequences": {"head_dim": 64, "seqlen_q": 4096, "scales": (2, 2)},
    "D128-sequences": {"head_dim": 128, "seqlen_q": 1024, "scales": (2, 2)},
}
MASKS = (True, False)


@pytest.mark.parametrize(("form", "causal"), meet(list(DENSE), MASKS))
def test_fp8_products_without_spills_advisories_or_moves(form: str, causal: bool) -> None:
    options = DENSE[form]
    recording = in_fp8(causal=causal, **options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["attention_forward_fp8_hopper_prepare", "attention_forward_fp8_hopper"]
    check_fp8(recording)


PACKED: dict[str, dict[str, Any]] = {
    "D64": {"head_dim": 64},
    "D64-short": {"head_dim": 64, "longest": 300},
    "D64-long-sequences": {"head_dim": 64, "longest": 2048, "scales": (1, 2), "batch": 1},
    "D48-fp16": {"head_dim": 48, "out": torch.float16, "scales": None},
    "D128-sequences-used": {"head_dim": 128, "scales": (4, 2), "used": True},
    "D96-fp32": {"head_dim": 96, "longest": 2048, "out": torch.float32},
    "D256-sequences-used": {"head_dim": 256, "scales": (4, 2), "used": True},
    "D192-fp32": {"head_dim": 192, "out": torch.float32, "scales": (4, 2)},
}


@pytest.mark.parametrize(("form", "causal"), meet(list(PACKED), MASKS))
def test_packed_sequences_in_fp8_are_listed_turned_around_and_as_good(
    form: str, causal: bool
) -> None:
    options = PACKED[form]
    recording = packed_in_fp8(causal=causal, **options)
    assert recording.failures == ()
    assert [launch.kernel.name for launch in recording.launches] == [
        "clear_behind",
        "list_tiles",
        "attention_forward_fp8_hopper_prepare",
        "attention_forward_fp8_hopper",
    ]
    check_fp8(recording)


def check_fp8(recording: Recording) -> None:
    """That the last launch's code, and of that before it, is as it should be."""
    kernel = recording.launches[-1].kernel
    prepared, code = read_codes([launch.kernel for launch in recording.launches[-2:]])
    assert (prepared.spilled_bytes, prepared.advisories) == (0, ())
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "e4m3.e4m3"):
        assert feature in kernel.texts["ptx"]
    # Weights are left operands as their threads hold them: nothing is exchanged, and no bytes are
    # sorted.
    loops = [
        [code.program.instructions[i].opcode for i in loop.indices]
        for loop in code.program.hot_loops
    ]
    loops = [loop for loop in loops if any(one.startswith("QGMMA") for one in loop)]
    assert loops
    moves = ("PRMT", "LDS", "STS", "STSM", "LDSM")
    assert not [one for loop in loops for one in loop if one.split(".")[0] in moves]


def test_fp8_outputs_wider_than_a_box_in_one_part_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = hopper_fp8.choose(256, 1024, False)
    monkeypatch.setattr(hopper_fp8, "choose", lambda *_: replace(cut, parts=1))
    in_fp8(256)  # a box holds all columns of 16 bits
    with pytest.raises(ValueError, match="parts: fp32 outputs of head dim 256 want 2 or more"):
        in_fp8(256, out=torch.float32)
    monkeypatch.setattr(hopper_fp8, "choose", lambda *_: replace(cut, parts=2))
    assert in_fp8(256, out=torch.float32).failures == ()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64, "seqlen_q": 32}, id="few-queries"),
        pytest.param({"head_dim": 64, "window": 300}, id="window"),
        pytest.param({"head_dim": 72}, id="heads-not-16-bytes-apart"),
    ],
)
def test_portable_fp8_serves_what_hoppers_does_not_take(options) -> None:
    assert only_kernel(in_fp8(**options)).name == "attention_forward"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64, "longest": 64}, id="few-queries"),
        pytest.param({"head_dim": 128, "longest": 15}, id="fewer-above-64"),
        pytest.param({"head_dim": 64, "window_size": (300, -1)}, id="window"),
        pytest.param({"head_dim": 72}, id="heads-not-16-bytes-apart"),
        pytest.param({"head_dim": 64, "softmax_scale": -0.1}, id="scale-below-0"),
        pytest.param({"head_dim": 64, "batch": 65}, id="sequences-of-few-keys"),
    ],
)
def test_portable_fp8_serves_packed_sequences_that_hoppers_does_not_take(options) -> None:
    recording = packed_in_fp8(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["clear_behind", "attention_forward"]


def test_any_number_may_be_told_as_the_longest_of_packed_sequences_in_fp8() -> None:
    def told(longest: int) -> list[object]:
        recording = packed_in_fp8(64, causal=True, longest=longest)
        assert recording.failures == ()
        return [(one.kernel.name, one.grid) for one in recording.launches]

    assert told(2**31 - 1) == told(2048)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((4096, 4096, 4096), {}, id="wide"),
        pytest.param((4096, 4096, 4096), {"out": torch.float16, "activation": "silu"}, id="fp16"),
        pytest.param((4096, 4096, 512), {"scales": "rows", "activation": "gelu"}, id="rows-gelu"),
        pytest.param((4096, 4096, 512), {"scales": "none", "out": torch.float32}, id="fp32"),
        pytest.param(
            (4096, 4096, 512), {"out": torch.float32, "activation": "gelu"}, id="fp32-gelu"
        ),
        pytest.param((4096, 4096, 512), {"scales": "none"}, id="unscaled"),
        pytest.param((4096, 4096, 512), {"scales": "none", "activation": "silu"}, id="none-silu"),
        pytest.param((4096, 4096, 512), {"out": torch.float32, "activation": "silu"}, id="silu"),
        pytest.param((512, 4096, 4096), {"scales": "rows"}, id="narrow"),
        pytest.param((1024, 4096, 512), {"scales": "blocks"}, id="blocks"),
        pytest.param(
            (1024, 4096, 512),
            {"scales": "blocks", "out": torch.float32, "activation": "gelu"},
            id="blocks-fp32-gelu",
        ),
        pytest.param(
            (8192, 8192, 512), {"scales": "blocks", "activation": "gelu"}, id="blocks-gelu"
        ),
    ],
)
def test_fp8_matmul_without_spills_or_advisories(shape, options) -> None:
    kernel = only_kernel(product_of_fp8(*shape, **options))
    code = read_code(kernel)
    assert kernel.name == "matmul_hopper_fp8"
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "e4m3.e4m3"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize(
    ("shape", "options", "loads"),
    [
        pytest.param((4096, 4096, 4096), {}, 4, id="wide"),  # two consumers
        pytest.param((4096, 4096, 512), {"activation": "relu"}, 4, id="relu"),
        pytest.param((4096, 4096, 512), {"activation": "gelu"}, 4, id="gelu"),
        pytest.param((4096, 4096, 512), {"out": torch.float32}, 4, id="fp32"),
        pytest.param((512, 4096, 512), {}, 4, id="narrow"),
        pytest.param((512, 4096, 512), {"activation": "silu"}, 4, id="narrow-silu"),
        pytest.param((16, 4096, 4096), {}, 2, id="few-rows"),
        pytest.param((64, 6144, 512), {"out": torch.float32}, 2, id="few-rows-fp32"),
        pytest.param((128, 1024, 8192), {}, 2, id="split"),
    ],
)
def test_one_scale_a_tensor_is_loaded_once_a_program(shape, options, loads: int) -> None:
    """Not at the end of each tile by each thread for each of its columns, which was code."""
    code = read_code(product_of_fp8(*shape, **options).launches[0].kernel)
    loaded = sum(one.opcode.startswith("LDG") for one in code.program.instructions)
    assert loaded == loads
    assert (code.spilled_bytes, code.advisories) == (0, ())


@pytest.mark.parametrize(
    ("shape", "options", "copies"),
    [
        pytest.param((4096, 14336, 4096), {}, 6, id="wide"),  # a row's, two columns', for each half
        pytest.param((4096, 4096, 512), {"activation": "relu"}, 6, id="relu"),
        pytest.param((4096, 4096, 512), {"activation": "gelu"}, 6, id="gelu"),
        pytest.param((4096, 4096, 512), {"activation": "silu"}, 6, id="silu"),
        # Loaded once a program, one scale a tensor would spill here.
        pytest.param(
            (4096, 4096, 512), {"scales": "tensor", "activation": "silu"}, 6, id="one-silu"
        ),
        pytest.param((4096, 4096, 512), {"out": torch.float32}, 6, id="fp32"),
        pytest.param((512, 4096, 512), {}, 4, id="narrow"),
        pytest.param((512, 4096, 512), {"activation": "silu"}, 4, id="narrow-silu"),
        pytest.param((16, 4096, 4096), {}, 2, id="few-rows"),
        pytest.param((64, 6144, 512), {"out": torch.float32}, 2, id="few-rows-fp32"),
        pytest.param((512, 2048, 512), {}, 2, id="oblong"),
        pytest.param((128, 1024, 8192), {}, 2, id="split"),
    ],
)
def test_scales_of_rows_and_columns_pass_the_registers(shape, options, copies: int) -> None:
    """Asked for while a tile is multiplied, by each thread for one row and one or two columns."""
    code = read_code(product_of_fp8(*shape, **{"scales": "rows"} | options).launches[0].kernel)
    names = [one.opcode.split(".")[0] for one in code.program.instructions]
    assert (names.count("LDG"), names.count("LDGSTS")) == (0, copies)
    assert (code.spilled_bytes, code.advisories) == (0, ())


@pytest.mark.parametrize(
    "options", [{}, {"out": torch.float16}, {"activation": "silu"}], ids=["bf16", "fp16", "silu"]
)
def test_of_a_pair_one_product_is_added_before_the_other_is_waited_for(options) -> None:
    code = read_code(only_kernel(product_of_fp8(4096, 4096, 7168, scales="blocks", **options)))
    assert (code.spilled_bytes, code.advisories) == (0, ())
    names = [one.opcode for one in code.program.instructions]
    waits = [i for i, one in enumerate(names) if one == "WARPGROUP.DEPBAR.LE"]
    # Of a step: a product's, and before one that begins where another was added nothing's. A tile's
    # last step is code of its own; behind it are a step of two blocks and the odd one.
    consumer = [64, 0, 64, 0, 64, 64] * 2 + [64, 64] + [64]
    assert len(waits) == 2 * len(consumer)
    for i, added in enumerate(consumer):
        for first in (i, len(consumer) + i):
            ahead = code.program.instructions[waits[first]].operands.endswith("0x1")
            assert not ahead or names[waits[first] : waits[first + 1]].count("FFMA") == added


def test_a_tiles_last_step_of_four_blocks_is_code_of_its_own() -> None:
    """So that the next tile's scales are asked for beside its products, without a branch in the
    loop."""
    program = read_code(only_kernel(product_of_fp8(4096, 4096, 4096, scales="blocks"))).program
    names = [one.opcode.split(".")[0] for one in program.instructions]
    # Of each consumer: the loop's step, the last one, and what is left of two blocks and of one.
    assert names.count("QGMMA") == 2 * 4 * (4 + 4 + 2 + 1)


@pytest.mark.parametrize(
    ("scales", "activation", "out", "bias", "columns"),
    [
        ("none", "relu", torch.bfloat16, False, 256),
        ("none", "relu", torch.float16, True, 256),
        ("none", "gelu", torch.float16, False, 256),
        ("none", "gelu", torch.bfloat16, True, 256),
        ("none", "relu", torch.float32, False, 128),
        ("only a", "silu", torch.bfloat16, False, 128),
        ("only b", "silu", torch.float16, True, 128),
        ("only b", "gelu", torch.bfloat16, False, 256),
        ("only a", "relu", torch.float32, True, 256),
    ],
)
def test_activations_of_fp8_take_the_widest_tiles_that_do_not_spill(
    scales: str, activation: str, out: torch.dtype, bias: bool, columns: int
) -> None:
    options = {"scales": scales, "activation": activation, "out": out}
    if bias:
        options["bias"] = torch.empty(4096, dtype=out)
    recording = product_of_fp8(4096, 4096, 512, **options)
    code = read_code(only_kernel(recording))
    assert recording.launches[0].arguments["BLOCK_N"] == columns
    assert code.spilled_bytes == 0
    assert code.advisories == ()


@pytest.mark.parametrize(
    ("shape", "options", "launches"),
    [
        pytest.param((16, 4096, 4096), {}, 1, id="few-rows"),
        pytest.param(
            (64, 6144, 512), {"scales": "rows", "activation": "gelu"}, 1, id="few-rows-rows-gelu"
        ),
        pytest.param((1024, 1024, 512), {"out": torch.float32, "activation": "gelu"}, 1, id="fp32"),
        pytest.param((128, 1024, 8192), {"scales": "none", "activation": "silu"}, 2, id="split"),
        *(
            pytest.param(shape, {"scales": "blocks", **options}, launches, id=f"blocks-{name}")
            for name, shape, options, launches in (
                ("few-rows", (16, 4096, 512), {"activation": "gelu"}, 1),
                ("few-rows-many-scales", (64, 4096, 7168), {"out": torch.float32}, 1),
                ("few-rows-64-columns", (64, 6144, 2048), {"activation": "silu"}, 1),
                ("square", (128, 4096, 4096), {"out": torch.float16}, 1),
                ("oblong", (1024, 1024, 1024), {"out": torch.float32, "activation": "gelu"}, 1),
                ("oblong-many-scales", (256, 4096, 8192), {}, 1),
                ("large", (512, 4096, 4096), {"out": torch.float32, "activation": "gelu"}, 1),
                ("large-many-scales", (512, 4096, 8192), {}, 1),
                ("split", (128, 1024, 8192), {}, 2),
            )
        ),
    ],
)
def test_fp8_matmul_of_one_tile_a_program_is_one_launch_or_split(shape, options, launches) -> None:
    recording = product_of_fp8(*shape, **options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["matmul_hopper_fp8_once", "combine_kernel"][:launches]
    kernel = recording.launches[0].kernel
    code = read_code(kernel)
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    for feature in ("cp.async.bulk.tensor", "e4m3.e4m3"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize("out", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("K", [2048, 7168], ids=["one-chunk", "more"])
def test_two_programs_of_few_rows_beside_blocks_fit_a_multiprocessor(out, K) -> None:
    kernel = only_kernel(product_of_fp8(64, 7168, K, scales="blocks", out=out))
    code = read_code(kernel)
    assert kernel.name == "matmul_hopper_fp8_once"
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    assert 2 * (kernel.shared_bytes + 1024) <= 228 * 1024  # with what each block costs
    assert 2 * 128 * code.registers <= 65536


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((64, 1024, 4096), {}, id="few-columns"),
        pytest.param((64, 1024, 4096), {"scales": "blocks"}, id="few-columns-blocks"),
        pytest.param((64, 24576, 1536), {"scales": "blocks"}, id="many-columns-blocks"),
        pytest.param((4096, 4096, 512), {"layout": "nn"}, id="b-along-columns"),
        pytest.param((4096, 4096, 512), {"layout": "tt"}, id="a-along-rows"),
        pytest.param((4096, 4096, 520), {}, id="K-not-of-16"),
        pytest.param((4096, 4095, 512), {}, id="odd-columns"),
    ],
)
def test_portable_matmul_serves_fp8_that_hoppers_does_not_take(shape, options) -> None:
    recording = product_of_fp8(*shape, **options)
    assert recording.failures == ()
    assert recording.launches[0].kernel.name == "matmul_kernel"


@pytest.mark.parametrize(
    ("scales", "loads"),
    [("blocks", 12), ("only a", 8), ("only b", 4)],
    ids=["both", "only-a", "only-b"],
)
def test_a_step_asks_once_for_each_scale_that_rows_share(scales: str, loads: int) -> None:
    def call() -> None:
        a = torch.empty((4096, 7168), dtype=torch.float8_e4m3fn)
        b = torch.empty((4096, 7168), dtype=torch.float8_e4m3fn).t()
        given = {"a_scale": torch.empty((4096, 56)), "b_scale": torch.empty((56, 32))}
        if scales.startswith("only "):
            given = {f"{name}_scale": given[f"{name}_scale"] for name in scales[5:]}
        matmul(a, b, out_dtype=torch.bfloat16, **given)

    kernel = only_kernel(record(call, SM_90))
    code = read_code(kernel)
    assert (code.spilled_bytes, code.advisories) == (0, ())
    loops = [
        [code.program.instructions[i].opcode.split(".")[0] for i in loop.indices]
        for loop in code.program.hot_loops
    ]
    loops = [loop for loop in loops if loop.count("QGMMA")]
    assert [loop.count("QGMMA") for loop in loops] == [4 * 4] * 2  # of each consumer
    for loop in loops:
        assert loop.count("LDG") == loads
        # Nothing asked for is copied to a register of the warp, which would wait for it.
        assert "R2UR" not in loop

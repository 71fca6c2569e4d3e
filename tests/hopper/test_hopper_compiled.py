"""What the compiler makes of the Hopper kernels: wgmma, TMA, nothing spilled or serialised."""

from __future__ import annotations

import sys

import pytest
import torch
import triton

from benchmarks.instruments.compiled import record
from benchmarks.instruments.compiled.reading import read_code
from kernels import flash_attention, matmul, specialised
from tests.hopper.recorded import (
    SM_90,
    attention,
    backward,
    in_tf32,
    only_kernel,
    packed,
    product,
)


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(lambda: product(4096, 4096, 512), id="matmul-wide"),
        pytest.param(
            lambda: product(4096, 4096, 512, layout="tt", activation="silu"),
            id="matmul-wide-transposed-silu",
        ),
        pytest.param(lambda: product(2048, 2048, 2048, activation="gelu"), id="matmul-wide-gelu"),
        pytest.param(lambda: product(1536, 1536, 512, layout="nt"), id="matmul-small"),
        pytest.param(lambda: attention(64, causal=True), id="attention-D64-causal"),
        pytest.param(lambda: attention(128, dtype=torch.float16), id="attention-D128-fp16"),
        pytest.param(lambda: attention(96, causal=True), id="attention-D96-causal"),
        pytest.param(lambda: attention(256, causal=True), id="attention-D256-causal"),
        pytest.param(
            lambda: attention(128, causal=True, window=500), id="attention-D128-causal-window"
        ),
    ],
)
def test_warp_specialised_code_without_spills_or_advisories(recorded) -> None:
    kernel = only_kernel(recorded())
    code = read_code(kernel)
    assert kernel.name in ("matmul_hopper", "attention_forward_hopper")
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    for feature in ("setmaxnreg", "cp.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((1024, 1024, 1024), {}, id="nn"),
        pytest.param((1000, 1000, 1000), {"layout": "nt", "activation": "silu"}, id="nt-silu"),
        pytest.param((1024, 1024, 512), {"layout": "tt", "activation": "gelu"}, id="tt-gelu"),
        pytest.param((72, 512, 512), {"layout": "tn", "activation": "relu"}, id="tn-relu-tiny"),
        pytest.param((1280, 1280, 512), {"activation": "gelu"}, id="gelu-medium"),
    ],
)
def test_one_tile_a_program_takes_little_code_and_no_partitions(shape, options) -> None:
    kernel = only_kernel(product(*shape, **options))
    code = read_code(kernel)
    assert kernel.name == "matmul_hopper_once"
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()
    assert "cp.async.bulk.tensor" in kernel.texts["ptx"]
    assert "setmaxnreg" not in kernel.texts["ptx"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64}, id="D64"),
        pytest.param({"head_dim": 64, "causal": True}, id="D64-causal"),
        pytest.param({"head_dim": 64, "causal": True, "longest": 4096}, id="D64-causal-long"),
        pytest.param({"head_dim": 80, "causal": True}, id="D80-causal"),
        pytest.param({"head_dim": 128, "dtype": torch.float16}, id="D128-fp16"),
        pytest.param({"head_dim": 256}, id="D256"),
        pytest.param({"head_dim": 256, "causal": True, "longest": 64}, id="D256-causal-short"),
        pytest.param(
            {"head_dim": 128, "causal": True, "window_size": (500, -1)}, id="D128-causal-window"
        ),
    ],
)
def test_packed_sequences_are_listed_and_then_as_good(options) -> None:
    recording = packed(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["list_tiles", "attention_forward_hopper"]
    code = read_code(recording.launches[1].kernel)
    assert code.tensor_level == 2  # wgmma
    assert code.spilled_bytes == 0
    assert code.advisories == ()


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128, "longest": 64}, id="few-rows"),
        pytest.param({"head_dim": 128, "dtype": torch.float32}, id="fp32"),
        pytest.param({"head_dim": 64, "columns": 68}, id="unaligned"),
        pytest.param({"head_dim": 128, "softcap": 2.0}, id="softcap"),
        pytest.param({"head_dim": 100}, id="D100"),
    ],
)
def test_portable_attention_serves_packed_sequences_that_hoppers_does_not_take(options) -> None:
    assert only_kernel(packed(**options)).name == "attention_forward"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128, "causal": True, "seqlen_k": 4096}, id="D128-causal"),
        pytest.param({"head_dim": 128, "dtype": torch.float16, "seqlen_k": 4096}, id="D128-fp16"),
        pytest.param({"head_dim": 80, "causal": True, "seqlen_k": 4096}, id="D80-causal"),
        pytest.param({"head_dim": 64}, id="D64"),
        pytest.param(
            {"head_dim": 64, "causal": True, "dtype": torch.float16}, id="D64-fp16-causal"
        ),
        pytest.param({"head_dim": 128, "seqlen_k": 4096}, id="D128"),
        pytest.param({"head_dim": 40, "causal": True, "seqlen_k": 1000}, id="D40-causal-K1000"),
    ],
)
def test_backward_without_spills_or_advisories(options) -> None:
    recording = backward(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    names_wanted = [
        f"attention_backward_{part}" for part in ("hopper_prepare", "hopper", "hopper_convert")
    ]
    assert names == names_wanted
    for launch in recording.launches:
        code = read_code(launch.kernel)
        assert code.spilled_bytes == 0
        assert code.advisories == ()
    kernel = recording.launches[1].kernel
    assert read_code(kernel).tensor_level == 2  # wgmma
    assert "mul.rn.bf16x2" not in kernel.texts["ptx"]  # weights times differences: in fp32
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 128}, id="D128"),
        pytest.param({"head_dim": 128, "causal": True}, id="D128-causal"),
        pytest.param({"head_dim": 128, "causal": True, "batch": 100}, id="D128-causal-many"),
        pytest.param({"head_dim": 128, "dtype": torch.float16}, id="D128-fp16"),
        pytest.param(
            {"head_dim": 128, "dtype": torch.float16, "causal": True}, id="D128-fp16-causal"
        ),
        pytest.param({"head_dim": 72, "dtype": torch.float16, "seqlen_k": 1000}, id="D72-fp16"),
        pytest.param({"head_dim": 96, "causal": True}, id="D96-causal"),
    ],
)
def test_backward_of_short_sequences_is_two_kernels_that_spill_nothing(options) -> None:
    recording = backward(**options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == [f"attention_backward_hopper_short_{part}" for part in ("q", "kv")]
    for launch, products in zip(recording.launches, (20, 24), strict=True):
        code = read_code(launch.kernel)
        assert code.spilled_bytes == 0
        assert code.advisories == ()
        assert code.tensor_level == 2  # wgmma
        loops = [
            [code.program.instructions[i].opcode for i in loop.indices]
            for loop in code.program.hot_loops
        ]
        # A product of 64 x 64 scores is 8 instructions, one of 64 x 128 is 4.
        counts = [sum(one.startswith("HGMMA") for one in loop) for loop in loops]
        assert set(counts) == {0, products}
        for absent in ("cp.reduce.async", "mul.rn.bf16x2"):
            assert absent not in launch.kernel.texts["ptx"]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 256, "causal": True}, id="D256-causal"),
        pytest.param({"head_dim": 256, "dtype": torch.float16}, id="D256-fp16"),
        pytest.param({"head_dim": 136, "causal": True, "seqlen_k": 1000}, id="D136-causal-K1000"),
    ],
)
def test_backward_of_wide_heads_is_two_kernels_that_spill_nothing_in_their_loops(options) -> None:
    recording = backward(**options)
    assert recording.failures == ()
    parts = ("prepare", "kv", "q")
    names = [launch.kernel.name for launch in recording.launches]
    assert names == [f"attention_backward_hopper_{part}" for part in parts]
    for launch in recording.launches:
        code = read_code(launch.kernel)
        assert code.spilled_bytes <= 4  # Triton 3.6, ahead of a loop of the causal dq
        assert code.advisories == ()
        loops = [
            [code.program.instructions[i].opcode for i in loop.indices]
            for loop in code.program.hot_loops
        ]
        assert not any(one.startswith(("STL", "LDL")) for loop in loops for one in loop)
        if launch is not recording.launches[0]:
            assert code.tensor_level == 2  # wgmma
            # A product of 64 x 64 scores is 16 instructions, one of 64 x 256 is 4.
            counts = {sum(one.startswith("HGMMA") for one in loop) for loop in loops}
            assert counts == ({0, 20} if launch.kernel.name.endswith("_kv") else {0, 36})


def test_nothing_of_backwards_steps_is_spilled_behind_an_incomplete_block() -> None:
    recording = backward(128, seqlen_k=4000)
    program = read_code(recording.launches[1].kernel).program
    opcodes = [program.instructions[i].opcode for loop in program.hot_loops for i in loop.indices]
    assert opcodes.count("UTMAREDG.2D.ADD") == 1
    assert not any(opcode.startswith(("STL", "LDL")) for opcode in opcodes)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 32}, id="D32"),
        pytest.param({"head_dim": 64, "seqlen_q": 48}, id="D64-few-queries"),
        pytest.param({"head_dim": 256, "window": 300}, id="D256-window"),
        pytest.param({"head_dim": 256, "seqlen_q": 31}, id="D256-few-queries"),
        pytest.param({"head_dim": 128, "window": 300}, id="window"),
        pytest.param({"head_dim": 128, "seqlen_k": 16}, id="few-keys"),
        pytest.param({"head_dim": 128, "seqlen_k": 40, "causal": True}, id="few-keys-causal"),
        pytest.param({"head_dim": 128, "seqlen_q": 16}, id="few-queries"),
        pytest.param({"head_dim": 100}, id="D100"),
        pytest.param({"head_dim": 128, "dtype": torch.float32}, id="fp32"),
        pytest.param(
            {"head_dim": 128, "dout_like": lambda x: x[:1, :1].expand_as(x)}, id="dout-expanded"
        ),
        pytest.param(
            {"head_dim": 72, "dout_like": lambda x: torch.cat((x, x), 3)[..., 4:76]},
            id="dout-unaligned",
        ),
    ],
)
def test_portable_backward_serves_what_hoppers_does_not_take(options) -> None:
    names = {launch.kernel.name for launch in backward(**options).launches}
    assert {"attention_backward_kv", "attention_backward_q"} <= names


@pytest.mark.parametrize(
    ("head_dim", "length", "causal", "batch", "kv_heads", "portable"),
    [
        pytest.param(64, 512, False, 16, 8, True, id="D64-512"),
        pytest.param(64, 640, False, 16, 8, False, id="D64-640"),
        pytest.param(64, 1024, True, 16, 8, True, id="D64-1024-causal"),
        pytest.param(64, 1152, True, 16, 8, False, id="D64-1152-causal"),
        pytest.param(64, 512, False, 8, 8, False, id="D64-512-few-programs"),
        pytest.param(64, 512, False, 64, 2, False, id="D64-512-grouped"),
        pytest.param(96, 256, True, 32, 8, False, id="D96-256-causal"),
        pytest.param(128, 256, False, 32, 8, False, id="D128-256"),
        pytest.param(128, 256, True, 32, 8, False, id="D128-256-causal"),
        pytest.param(256, 256, True, 32, 8, False, id="D256-256-causal"),
    ],
)
def test_portable_backward_serves_short_sequences_of_many_programs(
    head_dim: int, length: int, causal: bool, batch: int, kv_heads: int, portable: bool
) -> None:
    """By the times of docs/hopper.md."""
    from benchmarks.instruments.compiled import driver
    from kernels.attention import backward, hopper_backward_launch

    q = torch.empty((batch, length, 8, head_dim), dtype=torch.bfloat16, device="meta")
    k = torch.empty((batch, length, kv_heads, head_dim), dtype=torch.bfloat16, device="meta")
    seen = backward.keys_seen(length, causal, 0, None, length)
    with driver.active(SM_90):
        assert hopper_backward_launch.faster(q, k, seen) is not portable


@pytest.mark.parametrize(
    ("head_dim", "length", "causal", "two_kernels"),
    [
        pytest.param(128, 1024, False, True, id="D128-1024"),
        pytest.param(128, 1152, False, False, id="D128-1152"),
        pytest.param(72, 2048, True, True, id="D72-2048-causal"),
        pytest.param(72, 2176, True, False, id="D72-2176-causal"),
        pytest.param(64, 1024, False, False, id="D64"),
        pytest.param(256, 4096, False, True, id="D256"),
    ],
)
def test_two_kernels_serve_short_sequences_and_wide_heads(
    head_dim: int, length: int, causal: bool, two_kernels: bool
) -> None:
    """By the times of docs/hopper.md."""
    from kernels.attention import backward, hopper_backward_launch

    seen = backward.keys_seen(length, causal, 0, None, length)
    assert hopper_backward_launch.choose(head_dim, seen).two_kernels is two_kernels


def test_gradients_ask_which_kernels_are_faster() -> None:
    many = {"batch": 34, "kv_heads": 8, "seqlen_q": 64, "seqlen_k": 64}
    names = [launch.kernel.name for launch in backward(64, **many).launches]
    assert names == [f"attention_backward_{part}" for part in ("delta", "kv", "q")]


def test_inner_loop_of_attention_carries_p_packed() -> None:
    """The reason is told in hopper_pairs.py: unpacked, PRMT joins every pair again."""
    kernel = only_kernel(attention(128, causal=True))
    program = read_code(kernel).program
    for loop in program.hot_loops:
        opcodes = [program.instructions[i].opcode for i in loop.indices]
        assert not any(opcode.startswith("PRMT") for opcode in opcodes)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        pytest.param((2048, 2048, 2048), {}, id="wide"),
        pytest.param((2048, 2048, 512), {"layout": "tn", "activation": "gelu"}, id="wide-tn-gelu"),
        pytest.param((1024, 1024, 512), {"layout": "nt", "activation": "silu"}, id="small-nt-silu"),
        pytest.param((1024, 1000, 1000), {"layout": "tt"}, id="small-tt"),
        pytest.param((512, 512, 512), {"activation": "gelu"}, id="tiny-gelu"),
    ],
)
def test_tf32_is_multiplied_beside_a_rounded_copy_of_b(
    shape: tuple[int, int, int], options: dict[str, str]
) -> None:
    recording = in_tf32(*shape, **options)
    assert recording.failures == ()
    names = [launch.kernel.name for launch in recording.launches]
    assert names == ["tf32_copy", "matmul_hopper_tf32"]
    for launch in recording.launches:
        code = read_code(launch.kernel)
        assert code.spilled_bytes == 0
        assert code.advisories == ()
    kernel = recording.launches[1].kernel
    assert read_code(kernel).tensor_level == 2  # wgmma
    for feature in ("setmaxnreg", "cp.async.bulk.tensor", "f32.tf32.tf32"):
        assert feature in kernel.texts["ptx"]


@pytest.mark.parametrize("shape", [(256, 4096, 4096), (1000, 1001, 1000)], ids=str)
def test_portable_matmul_serves_tf32_of_few_rows_or_odd_strides(
    shape: tuple[int, int, int],
) -> None:
    assert only_kernel(in_tf32(*shape)).name == "matmul_kernel"


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_an_activation_adds_little_code_to_the_widest_tile(activation: str) -> None:
    """Once a tile every instruction of the epilogue waits to be fetched: unrolled over 128 values a
    thread, and for both consumers, gelu by the error function made 163 KiB of them."""
    plain, active = (
        len(read_code(only_kernel(product(2048, 2048, 2048, **options))).program.instructions)
        for options in ({}, {"activation": activation})
    )
    assert active < plain + 1000, (plain, active)


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


def test_portable_attention_serves_strides_the_copy_engine_does_not_take() -> None:
    def call() -> None:
        q, k, v = (torch.empty((1, 128, 2, 68), dtype=torch.float16)[..., 2:66] for _ in range(3))
        flash_attention(q, k, v)

    assert only_kernel(record(call, SM_90)).name == "attention_forward"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"head_dim": 64, "causal": True, "window": 500}, id="D64"),
        pytest.param({"head_dim": 128, "causal": True, "window": 100}, id="narrow"),
        pytest.param({"head_dim": 128, "window": 500}, id="left-limit-alone"),
        pytest.param(
            {"head_dim": 128, "causal": True, "window": 500, "seqlen_q": 64}, id="few-queries"
        ),
    ],
)
def test_portable_attention_serves_windows_where_it_is_as_fast(options) -> None:
    assert only_kernel(attention(**options)).name == "attention_forward"


def test_an_untested_triton_gets_the_portable_kernel_and_one_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(triton, "__version__", "3.12.0")
    monkeypatch.setattr(specialised, "_given_up", set())
    for name in ("hopper", "matmul.hopper", "matmul.hopper_kernel"):
        monkeypatch.delitem(sys.modules, f"kernels.{name}", raising=False)
    first, second = (product(256, 256, 256) for _ in range(2))
    assert only_kernel(first).name == only_kernel(second).name == "matmul_kernel"
    (said,) = (note for note in first.notes if "the portable kernel serves" in note)
    assert "tested on Triton 3.6 and 3.7, got 3.12.0" in said
    assert not [note for note in second.notes if "the portable kernel serves" in note]

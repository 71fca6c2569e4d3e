"""The readers of machine code, on kept samples of both vendors."""

from __future__ import annotations

import lzma
import re
import subprocess
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from warpwatch.config import targets
from warpwatch.instruments.compiled.formats import elf, ir, work
from warpwatch.instruments.compiled.formats.code import Instruction, Program
from warpwatch.instruments.compiled.machine_code import amdgcn, identity, sass
from warpwatch.instruments.compiled.record.call import record

SAMPLES = Path(__file__).parent / "samples"
SASS = sorted(SAMPLES.glob("*.sass.xz"))
AMDGCN = sorted(SAMPLES.glob("*.amdgcn.xz"))


def text_of(path: Path) -> str:
    return lzma.decompress(path.read_bytes()).decode()


def sample(name: str) -> str:
    return text_of(next(SAMPLES.glob(f"{name}*")))


@pytest.mark.parametrize("path", SASS, ids=lambda path: path.name.split(".")[0])
def test_every_nvidia_instruction_is_recognised(path: Path) -> None:
    text = text_of(path)
    program = sass.read(text)
    assert program.unknown == ()
    # Every instruction of the listing stands at an address of its own and ends in a semicolon.
    assert len(program.instructions) == len(re.findall(r"/\*[0-9a-f]{4,}\*/.*;", text))


@pytest.mark.parametrize("path", AMDGCN, ids=lambda path: path.name.split(".")[0])
def test_every_amd_instruction_is_recognised(path: Path) -> None:
    text = text_of(path)
    program = amdgcn.read(text)
    assert program.unknown == ()
    body = text[: text.index("s_endpgm") + len("s_endpgm")]
    assert len(program.instructions) >= len(re.findall(r"^\t[a-z]", body, re.MULTILINE))


def test_a_listing_says_under_which_condition_an_instruction_runs() -> None:
    text = sample("sm_90-attention-d64")
    guards = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+) ", text)
    listed = identity.listing(sass.read(text)).splitlines()
    assert guards
    assert [line.split()[0] for line in listed if line.startswith("    @")] == guards


def test_a_listing_numbers_the_labels_of_a_table_as_they_are_met() -> None:
    """A disassembler numbers them over all that it reads."""
    text = (
        '/*0000*/ BRX R2 -0x10     (*"BRANCH_TARGETS .L_x_2,.L_x_3"*);\n'
        ".L_x_2:\n/*0010*/ EXIT ;\n.L_x_3:\n/*0020*/ NOP ;\n/*0030*/ EXIT ;\n"
    )
    listed = identity.listing(sass.read(text))
    assert listed.startswith('    BRX R2 -0x10 (*"BRANCH_TARGETS L0,L1"*)\nL0:\n')
    elsewhere = text.replace(".L_x_3", ".L_x_319").replace("-0x10     ", "-0x10   ")
    assert identity.listing(sass.read(elsewhere)) == listed


def test_an_unknown_mnemonic_is_named() -> None:
    assert sass.read("        /*0000*/     FROBNICATE.X R1, R2 ;").unknown == ("FROBNICATE.X",)
    assert amdgcn.read("\tv_frobnicate_f32 v1, v2\n").unknown == ("v_frobnicate_f32",)


@pytest.mark.parametrize(
    ("mnemonic", "dtype"),
    [
        ("v_mfma_f32_32x32x16_fp8_fp8", "fp8"),
        ("v_mfma_f32_16x16x32_bf8_fp8", "fp8"),
        ("v_mfma_f32_32x32x16_bf8_bf8", "fp8"),
        ("v_mfma_f32_32x32x64_f8f6f4", "fp8"),
        ("v_mfma_f32_32x32x8_bf16_1k", "bf16"),
        ("v_mfma_f32_32x32x8_f16", "fp16"),
    ],
)
def test_an_amd_matrix_instruction_is_counted_at_the_rate_of_its_dtype(
    mnemonic: str, dtype: str
) -> None:
    (found,) = amdgcn.read(f"\t{mnemonic} a[0:15], v[0:1], v[2:3], a[0:15]\n").instructions
    assert (found.kind, found.dtype) == ("tensor", dtype)


@pytest.mark.parametrize(
    "mnemonic",
    [
        "v_addfoo_u32",
        "v_movx_b32",
        "v_fma_f32x",
        "v_expand_f32",
        "s_waitcntx",
        "s_branchx",
        "IADDX",
    ],
)
def test_what_only_begins_like_a_known_word_is_unknown(mnemonic: str) -> None:
    read = sass.read if mnemonic.isupper() else amdgcn.read
    line = f"        /*0000*/     {mnemonic} R1 ;" if mnemonic.isupper() else f"\t{mnemonic} v1\n"
    assert read(line).unknown == (mnemonic,)


# One iteration of the 64x64 attention loop at head dim 64: two products of 64x64x64, and an
# exponential for each of the 64x64 scores and for each of the 64 rows.
FLOPS = 2 * 2 * 64 * 64 * 64
EXPONENTIALS = 64 * 64


@pytest.mark.parametrize(
    ("name", "level", "flops", "exponentials"),
    [
        ("sm_90-attention-d64", 2, FLOPS, EXPONENTIALS),
        # Two of the four waves repeat the scores of the other two: 64 rows are two tiles of 32.
        ("gfx942-attention-d64", 1, FLOPS * 3 // 2, 2 * EXPONENTIALS),
    ],
)
def test_the_hot_loop_holds_the_work_of_one_iteration(
    name: str, level: int, flops: int, exponentials: int
) -> None:
    read = amdgcn.read if name.startswith("gfx") else sass.read
    program = read(sample(name))
    (loop,) = program.hot_loops
    assert program.tensor_level == level
    assert program.work("tensor", loop.indices) * 4 == flops
    special = program.work("special", loop.indices) * 4
    assert special == pytest.approx(exponentials, rel=0.07)


def test_tcgen05_is_level_3_and_out_of_line_waits_belong_to_their_loop() -> None:
    program = sass.read(sample("sm_100-attention-d64"))
    assert program.tensor_level == 3
    (loop,) = program.hot_loops
    polls = [i for i, one in enumerate(program.instructions) if "TRYWAIT" in one.opcode]
    assert len(program.instructions) - max(polls) < 100  # the compiler moved polling to the end
    assert sum(i in loop.indices for i in polls) >= 4
    assert program.count(loop.indices)["tensor"] == 8


def test_shuffles_between_barriers_are_no_loop() -> None:
    (loop,) = sass.read(sample("sm_80-attention-d128")).hot_loops
    assert len(loop.indices) > 500


@pytest.mark.parametrize(
    ("name", "expected"),
    # ptxas: a stack frame of 696 bytes, 8 of them alignment; AMD: scratch of 748 and 772 bytes.
    [("sm_80-wide-tile", 688), ("gfx90a-wide-tile", 744), ("gfx942-wide-tile", 768)],
)
def test_spilled_bytes_are_the_slots_registers_are_kept_in(name: str, expected: int) -> None:
    text = sample(name)
    if name.startswith("sm"):
        program, spilled = sass.read(text), sass.spilled_bytes(sass.read(text))
    else:
        program, spilled = amdgcn.read(text), amdgcn.spilled_bytes(text)
    assert spilled == expected
    assert program.count()["local"] > 0
    assert program.count(program.hot_loops[0].indices)["local"] > 0


@pytest.mark.parametrize("name", ["sm_90-attention-d64", "gfx950-attention-d64"])
def test_code_without_spills_has_none(name: str) -> None:
    text = sample(name)
    if name.startswith("sm"):
        assert sass.spilled_bytes(sass.read(text)) == 0
    else:
        assert amdgcn.spilled_bytes(text) == 0


def test_a_local_array_is_no_spill() -> None:
    text = """
        /*0000*/                   STL [R5], R4 ;
        /*0010*/                   LDL R6, [R5+0x4] ;
        /*0020*/                   STL [R1+0x8], R4 ;
        /*0030*/                   STL.64 [R1+0x10], R4 ;
        /*0040*/                   LDL.64 R6, [R1+0x10] ;
    """
    assert sass.spilled_bytes(sass.read(text)) == 8


def test_amd_resources_are_read_from_the_metadata() -> None:
    found = amdgcn.resources(sample("gfx942-attention-d64"))
    assert found.vector_registers == 170
    assert found.scratch_bytes == 0
    with pytest.raises(ValueError, match="expected AMD metadata"):
        amdgcn.resources("s_endpgm")


def test_a_loop_that_only_polls_is_no_work() -> None:
    wait = Instruction("SYNCS", "", "barrier", labels=("a",))
    back = Instruction("BRA", "", "control", "branch", ("a",))
    add = Instruction("FADD", "", "fma", labels=("b",), work=32)
    again = Instruction("BRA", "", "control", "branch", ("b",))
    program = Program((add, wait, back, again, Instruction("EXIT", "", "control", "end")))
    (loop,) = program.hot_loops
    assert loop.indices == {0, 1, 2, 3}


@triton.jit
def center(x, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    b_x = tl.load(x + o)
    tl.store(x + o, b_x - tl.sum(b_x, 0) / N)


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_100"])
def test_registers_and_stack_agree_with_the_vendors_tool(name: str, tmp_path: Path) -> None:
    def call() -> None:
        # 128 values a thread, 40 registers to hold them in.
        center[(64,)](torch.empty(64, 4096), N=4096, num_warps=1, maxnreg=40)

    (launch,) = record(call, targets.get(name)).launches
    found = elf.read(launch.kernel.binary)
    path = tmp_path / "kernel.cubin"
    path.write_bytes(launch.kernel.binary)
    tool = [triton.knobs.nvidia.cuobjdump.path, "-res-usage", str(path)]
    said = subprocess.run(tool, capture_output=True, text=True, check=True, timeout=600).stdout
    assert re.search(r"REG:(\d+) STACK:(\d+)", said).groups() == (
        str(found.registers),
        str(found.stack_bytes),
    )
    assert found.stack_bytes
    spilled = sass.spilled_bytes(sass.read(sass.disassemble(launch.kernel.binary)))
    assert 0 <= found.stack_bytes - spilled <= 32  # the frame is padded


def test_what_is_no_elf_object_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a little-endian 64-bit ELF"):
        elf.read(b"MZ" + bytes(100))


def test_loops_of_specialised_warps_are_found_behind_an_indirect_jump() -> None:
    # The warps wait in .L_x_1 for what to do; .L_x_2 is one task, with a loop of its own.
    text = """
.L_x_1:
        /*0000*/                   BAR.SYNC.DEFER_BLOCKING 0x1 ;
        /*0010*/                   BRX R2 -0x20 (*"BRANCH_TARGETS .L_x_2,.L_x_3"*);
.L_x_2:
        /*0020*/                   FADD R1, R1, R2 ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
        /*0040*/                   BRA `(.L_x_1) ;
.L_x_3:
        /*0050*/                   EXIT ;
    """
    program = sass.read(text)
    (loop,) = program.loops
    assert sorted(loop.indices) == [2, 3]


@pytest.mark.parametrize(
    ("mnemonic", "flops"),
    [
        ("v_mfma_f32_4x4x4f16", 16 * 2 * 4**3),  # gfx90a: sixteen products at once
        ("v_mfma_f32_4x4x4_16b_f16", 16 * 2 * 4**3),  # the same on gfx942
        ("v_mfma_f32_4x4x4bf16_1k", 16 * 2 * 4**3),
        ("v_mfma_f32_32x32x4bf16_1k", 2 * 2 * 32 * 32 * 4),
        ("v_mfma_f32_32x32x4bf16", 2 * 32 * 32 * 4),  # one: its like has two of K
        ("v_mfma_f32_16x16x4f32", 2 * 16 * 16 * 4),
        ("v_mfma_f32_16x16x4f16", 4 * 2 * 16 * 16 * 4),
        ("v_mfma_f64_4x4x4f64", 4 * 2 * 4**3),
        ("v_mfma_f32_32x32x8f16", 2 * 32 * 32 * 8),
        ("v_mfma_scale_f32_32x32x64_f8f6f4", 2 * 32 * 32 * 64),
    ],
)
def test_a_matrix_instruction_of_several_blocks_does_all_of_them(mnemonic: str, flops: int) -> None:
    (found,) = amdgcn.read(f"\t{mnemonic} v[0:3], v[4:5], v[6:7], 0\n").instructions
    assert found.work == flops


def _product(text: str) -> dict[str, int]:
    module = f'module attributes {{"ttg.num-warps" = 4 : i32}} {{\n' \
        f"tt.func public @k(%a: !tt.ptr<i8>) {{\n{text}\ntt.return\n}}\n}}"  # fmt: skip
    function = ir.parse(module)
    return dict(work.of_function(function)[function.body].flops)


def test_a_product_with_scales_is_that_of_its_operands() -> None:
    left, right = "tensor<128x{k}x{t}, #ttg.dot_op<{{opIdx = 0}}>>", "tensor<{k}x64x{t}, #x>"
    scales = "tensor<128x4xi8, #l>", "tensor<64x4xi8, #l>"
    head = (
        "%5 = tt.dot_scaled %1 scale %3, %2 scale %4, %c lhs = {f} rhs = {f} {{fastMath = false}}"
    )

    def types(k: int, element: str) -> str:
        one, other = (text.format(k=k, t=element) for text in (left, right))
        return f" : {one}, {scales[0]} * {other}, {scales[1]} -> tensor<128x64xf32, #mma>"

    flops = 2 * 128 * 64 * 128
    assert _product(head.format(f="e4m3") + types(128, "f8E4M3FN")) == {"fp8": flops}
    # Two values of fp4 share a byte.
    assert _product(head.format(f="e2m1") + types(64, "i8")) == {"fp4": flops}
    tensor_memory = (
        "ttng.tc_gen5_mma_scaled %1, %2, %3, %4, %5, %6, %7 lhs = e4m3 rhs = e4m3 : "
        "!ttg.memdesc<128x128xf8E4M3FN, #s>, !ttg.memdesc<128x64xf8E4M3FN, #s>, "
        "!ttg.memdesc<128x64xf32, #t>, !ttg.memdesc<128x4xi8, #t>, !ttg.memdesc<64x4xi8, #t>"
    )
    assert _product(tensor_memory) == {"fp8": flops}


def test_what_goes_through_a_descriptor_made_on_the_device_goes_to_its_tensor() -> None:
    described = "!tt.tensordesc<tensor<8x64xf16, #s>>"
    text = f"""
    %1 = ttg.global_scratch_alloc {{alignment = 128 : i32, nbytes = 128 : i32}} : !tt.ptr<i8>
    ttng.tensormap_create %1, %a, [%c, %c], [%K, %M], [%2], [%i, %i] {{elem_type = 6 : i32}} : (x)
    %3 = ttng.reinterpret_tensor_descriptor %1 : !tt.ptr<i8> to {described}
    ttng.async_tma_copy_global_to_local %3[%c, %c] %6, %b, %p : {described}, !ttg.memdesc<1xi64, #t>
    """
    function = ir.parse(f"module {{\ntt.func public @k(%a: !tt.ptr<f16>) {{\n{text}\n}}\n}}")
    assert dict(work.of_function(function)[function.body].loads) == {"a": 8 * 64 * 2}

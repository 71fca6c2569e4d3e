"""Files with machine code: Triton's own cubins, those of other compilers, and broken ones."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch
import triton

from kernels import matmul
from tests.compiled.test_readers import center
from warpwatch.__main__ import main
from warpwatch.config import targets
from warpwatch.instruments.compiled.files import containers, kernels, names
from warpwatch.instruments.compiled.formats import elf
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.record.call import record

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
"""
# Names as C++ has them, blocks of a known number of threads, of at most that many, of any.
EXACT = """
.visible .entry _Z5exactILi4EEvPf(.param .u64 p) .reqntid 96, 2 {
    .reg .b64 %x<2>; .reg .b32 %r<3>; .shared .align 4 .b8 s[1024];
    ld.param.u64 %x1, [p];
    mov.u32 %r1, %tid.x;
    st.volatile.shared.u32 [s], %r1;
    ld.volatile.shared.u32 %r2, [s + 500];
    st.global.u32 [%x1], %r2;
    ret;
}
"""
ADVANCED = """
.visible .entry at_most(.param .u64 p) .maxntid 256 {
    .reg .b64 %x<2>; .reg .b32 %r<2>;
    ld.param.u64 %x1, [p];
    mov.u32 %r1, %ctaid.x;
    st.global.u32 [%x1], %r1;
    ret;
}
.visible .entry of_the_launch(.param .u64 p) {
    .reg .b64 %x<2>; .reg .b32 %r<2>;
    ld.param.u64 %x1, [p];
    cp.async.ca.shared.global [dynamic], [%x1], 16;
    cp.async.wait_all;
    ld.volatile.shared.u32 %r1, [dynamic];
    st.global.u32 [%x1], %r1;
    ret;
}
"""


def product(name: str, count: int = 24, kind: str = "bf16", blocks: int = 1) -> str:
    """A kernel with tensor instructions whose ``count`` sums live at once, and which is to leave
    room for so many ``blocks``."""
    load = "".join(f"ld.global.f32 %f{i}, [%x1 + {4 * i}];\n" for i in range(4 * count))
    store = "".join(f"st.global.f32 [%x1 + {4 * i}], %f{i};\n" for i in range(4 * count))
    steps = "".join(
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
        f"{{{s}}}, {{%r1, %r1, %r1, %r1}}, {{%r1, %r1}}, {{{s}}};\n"
        for s in (", ".join(f"%f{i}" for i in range(4 * n, 4 * n + 4)) for n in range(count))
    )
    return f"""
.visible .entry {name}(.param .u64 p, .param .u32 n) .reqntid 128 .minnctapersm {blocks} {{
    .reg .b64 %x<2>; .reg .b32 %r<4>; .reg .f32 %f<{4 * count}>; .reg .pred %q<2>;
    ld.param.u64 %x1, [p];
    ld.param.u32 %r2, [n];
    mov.u32 %r1, %tid.x;
    {load}
again:
    {steps}
    add.u32 %r2, %r2, -1;
    setp.ne.u32 %q1, %r2, 0;
    @%q1 bra again;
    {store}
    ret;
}}
"""


def assembled(path: Path, *entries: str, target: str = "sm_80") -> Path:
    """A cubin of kernels in PTX, by the assembler that Triton brings."""
    source = path.with_suffix(".ptx")
    source.write_text(HEAD + "".join(entries))
    tool = [triton.knobs.nvidia.ptxas.path, f"-arch={target}"]
    subprocess.run([*tool, str(source), "-o", str(path)], check=True, timeout=600)
    return path


def inspected(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str]]:
    code = main(["inspect", *map(str, arguments)])
    said = capsys.readouterr()
    return code, (said.out or said.err).splitlines()


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "sm_100"])
def test_a_cubin_of_triton_says_what_its_recording_says(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def call() -> None:
        matmul(*(torch.empty((256, 256), dtype=torch.float16) for _ in "ab"))
        center[(64,)](torch.empty(64, 4096), N=4096, num_warps=1, maxnreg=40)

    for number, one in enumerate(reading.read(record(call, targets.get(name)).launches)):
        path = tmp_path / f"{number}.cubin"
        path.write_bytes(one.launch.kernel.binary)
        shared = one.launch.kernel.shared_bytes
        code, _ = inspected(capsys, path, "--shared", shared, "--json", tmp_path / "x.json")
        (found,) = json.loads((tmp_path / "x.json").read_text())["results"]
        assert (code, found["target"], found["name"]) == (0, name, one.launch.kernel.name)
        (launch,) = found["evidence"]["launches"]
        recorded = one.evidence()
        same = {"num_warps", "shared_bytes", *one.code.evidence()}
        assert {key: launch[key] for key in same} == {key: recorded[key] for key in same}
        assert launch["occupancy"]["limits"] == one.occupancy.limits
        assert found["values"]["blocks_in_flight"] == one.occupancy.blocks
        assert (launch["grid"], launch["bound"]) == (None, None)


def test_a_table_leaves_empty_what_only_a_launch_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = assembled(tmp_path / "k.cubin", EXACT, ADVANCED, product("dot"))
    code, lines = inspected(capsys, path)
    rows = {line[8:22].strip(): line[22:].split() for line in lines if line.startswith("sm_80")}
    assert code == 0
    # Warps, registers, spilled bytes, shared bytes, tensor cores, copies, blocks and their limit.
    assert rows["exact<4>"][0] == "6"
    assert rows["exact<4>"][3:] == ["1024", "-", "-", "10", "(warps)"]
    assert rows["at_most"][0] == "8"
    assert rows["at_most"][3:] == ["0", "-", "-", "8", "(warps)"]
    assert len(rows["of_the_launch"]) == len(["registers", "spilled", "tensor", "copies"])
    assert rows["dot"][4:6] == ["mma", "plain"]
    said = "\n".join(lines)
    assert "at_most: of blocks the file states only the most threads" in said
    assert "of_the_launch: its shared memory is of a size that the launch gives" in said
    assert "of_the_launch: the file does not state the threads of a block" in said
    assert lines[-1].startswith("a file holds no launch, so grid, bound and use")
    _, lines = inspected(capsys, path, "--threads", 512, "--shared", 4096)
    rows = {line[8:22].strip(): line[22:].split() for line in lines if line.startswith("sm_80")}
    assert rows["of_the_launch"][0] == "16"
    assert rows["of_the_launch"][3:] == ["4096", "-", "async", "4", "(warps)"]
    assert "exact<4>, dot: its blocks have" not in "\n".join(lines)  # each has its own number
    assert any(line.startswith("at_most: it is compiled for blocks of at most") for line in lines)


def test_two_files_are_compared_in_the_words_of_commits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = assembled(tmp_path / "old.cubin", product("dot"), EXACT)
    same = assembled(tmp_path / "same.cubin", EXACT, product("dot"))
    assert inspected(capsys, "--diff", old, same) == (0, [f"{old} -> {same}: 2 same"])
    spills = assembled(tmp_path / "spills.cubin", product("dot", blocks=8), EXACT)
    code, lines = inspected(capsys, "--diff", old, spills, "--code")
    assert code == 1
    assert lines[0] == f"{old} -> {spills}: 1 regressed, 1 same"
    assert lines[1].startswith("regressed    sm_80   dot  spilled_bytes 0 -> ")
    assert any("dot: local instructions in hot loops 0 -> " in line for line in lines)
    assert any(line.startswith("+    STL") for line in lines)
    less = assembled(tmp_path / "less.cubin", product("dot", 8), EXACT)
    code, lines = inspected(capsys, "--diff", old, less)
    assert (code, lines[1][:19]) == (0, "improved     sm_80 ")
    assert "blocks_in_flight" in lines[1]
    other = assembled(tmp_path / "other.cubin", product("dot", kind="f16"), EXACT)
    code, lines = inspected(capsys, "--diff", old, other)
    assert (code, lines[0]) == (0, f"{old} -> {other}: 1 other code, 1 same")


def test_kernels_are_paired_by_name_then_by_code_then_as_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = assembled(tmp_path / "old.cubin", product("a"), product("b", 8), EXACT)
    new = assembled(tmp_path / "new.cubin", product("c", 8), product("d", 23), EXACT)
    code, lines = inspected(capsys, "--diff", old, new)
    assert (code, lines[0]) == (0, f"{old} -> {new}: 1 other code, 2 same")
    assert lines[1].startswith("other code   sm_80   d")
    assert "             launches a -> d" in lines
    less = assembled(tmp_path / "less.cubin", product("a"), EXACT)
    code, lines = inspected(capsys, "--diff", old, less)
    assert (code, lines[0]) == (3, f"{old} -> {less}: 2 same, 1 nothing")
    assert lines[1:] == [
        "nothing      sm_80   b",
        "             the second file has no such kernel",
    ]


def fatbin(*cubins: bytes) -> bytes:
    """A container of cubins for sm_80, as nvcc writes it without compression."""
    body = b"".join(
        struct.pack("<HHIQIIHHIQQQQ", 2, 0x101, 64, len(one), 0, 0, 8, 1, 80, 0, 0x11, 0, 0) + one
        for one in (one + bytes(-len(one) % 8) for one in cubins)
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def test_cubins_are_taken_out_of_what_carries_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = assembled(tmp_path / "a.cubin", product("a"), EXACT)
    other = assembled(tmp_path / "b.cubin", product("a", 8))
    together = tmp_path / "both.fatbin"
    together.write_bytes(fatbin(first.read_bytes(), other.read_bytes(), first.read_bytes()))
    found = kernels.of_file(together, kernels.Given())
    ours = [*kernels.of_file(first, kernels.Given()), *kernels.of_file(other, kernels.Given())]
    assert sorted(one.job.name for one in found) == ["_Z5exactILi4EEvPf", "a", "a 2"]
    codes = [{one.evidence["launches"][0]["code"] for one in side} for side in (found, ours)]
    assert codes[0] == codes[1]
    code, lines = inspected(capsys, together, "--target", "sm_90")
    assert code == 2
    assert lines[0].endswith("holds no kernel for sm_90: expected --target sm_80")


def test_a_target_without_a_datasheet_has_all_but_blocks(tmp_path: Path) -> None:
    path = assembled(tmp_path / "k.cubin", product("dot"), target="sm_86")
    (found,) = kernels.of_file(path, kernels.Given())
    assert found.job.target == "sm_86"
    assert found.values["tensor_core_level"] == 1
    assert "blocks_in_flight" not in found.values
    assert found.evidence["remarks"][0].startswith("no datasheet of sm_86")


CALLS = """
.extern .func (.param .b32 r) elsewhere(.param .b32 a);
.visible .entry calls(.param .u64 p) {
    .reg .b64 %x<2>; .reg .b32 %r<3>; .param .b32 a; .param .b32 r;
    ld.param.u64 %x1, [p];
    mov.u32 %r1, %tid.x;
    st.param.b32 [a], %r1;
    call (r), elsewhere, (a);
    ld.param.b32 %r2, [r];
    st.global.u32 [%x1], %r2;
    ret;
}
"""


def test_code_that_stands_apart_from_its_kernel_is_named(tmp_path: Path) -> None:
    source = tmp_path / "k.ptx"
    source.write_text(HEAD + CALLS)
    path = tmp_path / "k.cubin"
    tool = [triton.knobs.nvidia.ptxas.path, "-arch=sm_80", "-c", str(source), "-o", str(path)]
    subprocess.run(tool, check=True, timeout=600)
    (found,) = kernels.of_file(path, kernels.Given())
    assert "it calls elsewhere, which is not counted with it" in found.evidence["remarks"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.cubin"], "none.cubin: expected a file that holds cubins, and there is no such"),
        (["text.cubin"], "text.cubin: expected a little-endian 64-bit ELF object"),
        (["empty.cubin"], "empty.cubin: expected a little-endian 64-bit ELF object"),
        (["good.cubin", "json:dumps"], "'json:dumps' next to a file with cubins: expected files"),
        (["good.cubin", "--backward"], "are for callables, not for files"),
        (["good.cubin", "--threads", "2000"], "--threads: expected 1 to 1,024, got 2,000"),
        (["good.cubin", "--shared", "-1"], "--shared: expected 0 to 232,448, got -1"),
        (["--diff", "HEAD", "good.cubin"], "'HEAD' next to a file with cubins: expected files"),
        (["json:dumps", "--threads", "32"], "--threads and --shared are for files with cubins"),
        (["host.so"], "host.so holds no cubin: expected machine code, which nvcc writes"),
        (["amd.cubin"], "amd.cubin is AMD's machine code: only NVIDIA's can be read"),
        (["function.cubin"], "holds no kernel: expected a function with __global__"),
    ],
)
def test_a_mistake_is_one_sentence(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    good = assembled(Path("good.cubin"), EXACT).read_bytes()
    Path("text.cubin").write_text("a cubin, or so it says\n" * 10)
    Path("empty.cubin").touch()
    Path("amd.cubin").write_bytes(good[:18] + struct.pack("<H", 224) + good[20:])
    assembled(Path("function.cubin"))
    library = Path(sysconfig.get_config_var("DESTSHARED"), next_extension())
    Path("host.so").write_bytes(library.read_bytes())
    code, lines = inspected(capsys, *arguments)
    assert code == 2
    assert len(lines) == 1
    assert message in lines[0]


def next_extension() -> str:
    """A library of this Python's, which has no code for a GPU."""
    folder = Path(sysconfig.get_config_var("DESTSHARED"))
    return min(one.name for one in folder.glob("*.so"))


def test_broken_files_end_in_one_error_or_are_read(tmp_path: Path) -> None:
    path = assembled(tmp_path / "k.cubin", EXACT, ADVANCED, product("dot"))
    whole = path.read_bytes()
    generator = random.Random(40)
    refused = 0
    for number in range(400):
        broken = bytearray(whole)
        if number % 4 == 0:
            del broken[generator.randrange(len(broken)) :]
        else:
            # A word of the header, of the table of sections or of the symbols: where it points.
            header, sections = elf.sections(whole)
            table = next(one for one in sections if one.kind == elf.SYMBOLS)
            start, end = generator.choice(
                [
                    (4, 64),
                    (header[6], header[6] + 64 * header[12]),
                    (whole.index(table.body), whole.index(table.body) + table.size),
                ]
            )
            place = generator.randrange(start, end - 3)
            broken[place : place + 4] = generator.randbytes(4)
        path.write_bytes(broken)
        try:
            for cubin in containers.cubins(path):
                kernels._kernels(elf.sections(cubin)[1])
        except ValueError:
            refused += 1
    assert refused > 100
    # What the tables hide, the disassembler refuses, or shows less of than there is.
    code = next(one for one in elf.sections(whole)[1] if one.name == ".text.dot").body
    path.write_bytes(whole.replace(code, bytes(len(code) // 2) + code[len(code) // 2 :]))
    with pytest.raises(ValueError, match="nvdisasm cannot read the cubin"):
        kernels.of_file(path, kernels.Given())


@pytest.mark.parametrize(
    ("symbol", "said"),
    [
        ("_Z5saxpyifPKfPf", "saxpy"),
        ("_ZN12_GLOBAL__N_14copyEPf", "(anonymous namespace)::copy"),
        ("_Z2wmILi64EEvPK6__halfS2_Pf", "wm<64>"),
        ("matmul_kernel", "matmul_kernel"),
        ("_Zwhatever", "_Zwhatever"),
        ("k" * 40 + "m" * 40, "k" * 30 + ".." + "m" * 16),
    ],
)
def test_names_are_as_their_authors_wrote_them(symbol: str, said: str) -> None:
    assert names.readable(symbol) == said

"""A kernel from the kept compiler cache is the kernel that was compiled, its log included."""

from __future__ import annotations

import importlib.util
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from warpwatch.config import targets
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.formats.recording import Kernel
from warpwatch.instruments.compiled.machine_code import sass
from warpwatch.instruments.compiled.record.call import record
from warpwatch.instruments.compiled.record.compiler_cache import without_paths


@triton.jit
def double(x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


def compiled(kernel: Any = double, target: str = "sm_90") -> Kernel:
    def call() -> None:
        kernel[(4,)](torch.empty(1024, device="cuda"), BLOCK=256)

    recording = record(call, targets.get(target))
    assert recording.failures == ()
    return recording.launches[0].kernel


def test_the_second_process_reads_what_the_first_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    first = compiled()
    files = sorted(tmp_path.rglob("*.cubin"))
    written = [file.stat().st_mtime_ns for file in files]
    assert compiled() == first
    assert "registers" in first.log
    assert sorted(tmp_path.rglob("*.cubin")) == files
    assert [file.stat().st_mtime_ns for file in files] == written


# The same program of another source, in other lines, with a branch that is not taken.
EDITED = """
import triton
import triton.language as tl


# A comment.
@triton.jit
def double(x, BLOCK: tl.constexpr, THRICE: tl.constexpr = False):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if THRICE:
        tl.store(x + offsets, tl.load(x + offsets) * 3)
    else:
        tl.store(x + offsets, tl.load(x + offsets) * 2)
"""


def edited(folder: Path, source: str) -> Any:
    path = folder / f"edited_{len(source)}.py"
    path.write_text(source)
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.double


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_only_another_program_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    first = compiled(target=target)
    again = compiled(edited(tmp_path, EDITED), target)
    # The seconds are those of the one compilation there was.
    assert replace(again, texts={}) == replace(first, texts={})
    assert again.texts.keys() == first.texts.keys()
    assert len(list((tmp_path / "compilations").iterdir())) == 1
    other = compiled(edited(tmp_path, EDITED.replace("* 2", "* 2.5")), target)
    assert other.binary != first.binary
    assert len(list((tmp_path / "compilations").iterdir())) == 2


def test_a_kernel_that_another_process_has_just_compiled_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    first = compiled()
    (heard,) = tmp_path.rglob("heard.json")
    heard.rename(tmp_path / "late")
    timer = threading.Timer(0.5, lambda: (tmp_path / "late").rename(heard))
    timer.start()
    assert compiled() == first
    timer.join()


def test_what_was_disassembled_is_not_disassembled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(cubin: bytes) -> str:
        raise AssertionError("nvdisasm was started")

    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    binary = compiled().binary
    text = sass.disassemble(binary)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert sass.disassemble(binary) == text
    monkeypatch.setattr(sass, "_disassembled", never)
    assert sass.disassemble(binary) == text
    with pytest.raises(AssertionError, match="nvdisasm was started"):
        sass.disassemble(binary + b"\0")


def test_the_tests_of_one_run_share_what_they_compile() -> None:
    assert Path(os.environ[CACHE_VARIABLE]).name == "compiled"


def test_nothing_is_kept_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    first, second = compiled(), compiled()
    assert first.binary == second.binary
    assert first.compile_seconds != second.compile_seconds


def test_a_helper_that_moves_to_another_file_compiles_nothing_again() -> None:
    def program(module: str, kernel: str = "gelu") -> str:
        helper = f'@"{module}.erf__fp32S1024S__"'
        return (
            f"tt.func public @{kernel}(%x: i32) {{ tt.call {helper}(%x) }}\n"
            f"tt.func private {helper}(%x: i32) {{ tt.return }}\n"
        )

    moved = without_paths(program("ops.special"))
    assert moved == without_paths(program("ops"))
    assert moved != without_paths(program("ops", "silu")), "the kernel's name is in its binary"
    assert "ops" not in moved


def test_what_inline_assembly_is_predicated_on_is_not_a_symbol() -> None:
    def program(predicate: str) -> str:
        return f'tt.func public @k(%x: i32) {{ tt.elementwise_inline_asm "@{predicate} ld" }}\n'

    assert without_paths(program("p")) != without_paths(program("q"))
    assert without_paths(program("$1")) != without_paths(program("$2"))

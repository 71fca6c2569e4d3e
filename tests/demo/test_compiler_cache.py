"""A kernel from the kept compiler cache is the kernel that was compiled, its log included."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from benchmarks import targets
from benchmarks.configuration import CACHE_VARIABLE
from benchmarks.instruments.compiled import record, sass
from benchmarks.instruments.compiled.recording import Kernel


@triton.jit
def double(x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets) * 2)


def compiled() -> Kernel:
    def call() -> None:
        double[(4,)](torch.empty(1024, device="cuda"), BLOCK=256)

    recording = record(call, targets.get("sm_90"))
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

"""Launches that every card refuses are failures, with their reason and their configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton

from tests.compiled import foreign_kernels
from warpwatch import __main__ as cli
from warpwatch.config import targets
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.measure.workload import measure_call
from warpwatch.instruments.compiled.record.call import record

HERE = "tests.compiled.foreign_kernels"
HOPPER = targets.get("sm_90")


@pytest.fixture
def no_allocator() -> None:
    from triton.runtime import _allocation

    triton.set_allocator(_allocation.NullAllocator())


@pytest.mark.usefixtures("no_allocator")
def test_descriptors_made_on_the_device_want_an_allocator() -> None:
    def call() -> None:
        foreign_kernels.by_descriptors(torch.empty(4096, 64, dtype=torch.float16, device="cuda"))

    (failure,) = record(call, HOPPER).failures
    assert (failure.kernel, failure.stage) == ("through_descriptors", "resources")
    assert failure.error.startswith("launch refused: 256 bytes of global memory a program")
    assert "triton.set_allocator" in failure.error
    assert record(call, targets.get("gfx942")).failures == ()
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    recording = record(call, HOPPER)
    assert recording.failures == ()
    # Each byte is read once and written once, however many programs share a descriptor.
    (found,) = reading.read(recording.launches)
    assert found.bound.units_us["memory"] == pytest.approx(2 * 4096 * 64 * 2 / 4.8e6, rel=0.01)


def test_a_tensor_on_the_host_is_refused() -> None:
    found = measure_call(f"{HERE}:on_the_host", HOPPER)
    assert found.status == "compile failed"
    assert found.detail == "tuned_copy: launch refused: x, y lie on the host"


@pytest.mark.parametrize(
    "how",
    [
        "cuda",
        "to",
        "to_device",
        "to_other",
        "made_there",
        "made_like",
        "pinned",
        "made_pinned",
        "copied",
        "added",
        "new",
        "module",
    ],
)
def test_a_tensor_that_is_brought_to_the_device_is_not(how: str) -> None:
    found = measure_call(f"{HERE}:brought_to_the_device", HOPPER, arguments=how)
    assert (found.status, found.detail) == ("ok", "")


def test_a_space_of_which_nothing_fits_says_how_many_were_tried() -> None:
    found = measure_call(f"{HERE}:too_wide", HOPPER, arguments="fp32[64]")
    assert found.status == "compile failed"
    assert found.detail.startswith(
        "tuned_too_wide: none of 2 configurations; BLOCK: 64, num_warps: 64"
    )
    assert "2048 threads a block, h200 has 1024 (BLOCK=64, num_warps=64" in found.detail


def test_a_call_of_another_generator_is_refused_with_the_way_that_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The CuTe DSL is larger than all that this project installs; it fails where no card is.
    (tmp_path / "cutlass.py").write_text(
        "def launch(x):\n    raise RuntimeError('no CUDA-capable device is detected')\n"
    )
    (tmp_path / "rivals.py").write_text(
        "def scaled(x):\n    import cutlass\n\n    return cutlass.launch(x)\n\n\n"
        "def unknown(x):\n    import cuda.tile_that_is_not_there\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    names = ["rivals:scaled", "rivals:unknown"]
    assert cli.main(["inspect", *names, "--args", "fp32[64]", "--target", "sm_90"]) == 3
    _, scaled, _, unknown = capsys.readouterr().out.splitlines()
    assert scaled == (
        "sm_90: not measured: the CuTe DSL makes kernels that are not recorded (RuntimeError: no "
        "CUDA-capable device is detected): write its cubins to files, and give those to "
        "`warpwatch inspect FILE.cubin`"
    )
    # One that is not installed has said so itself.
    assert unknown.startswith("sm_90: call failed: ModuleNotFoundError: No module named 'cuda")


@pytest.mark.parametrize(
    "command",
    [
        ["inspect", f"{HERE}:copied", "--args", "fp32[64]", "--diff", "3.4.0", "3.7.1"],
        ["upgrade", "3.9.0", "--from", "3.4.0"],
    ],
)
def test_a_triton_that_is_too_old_is_one_clear_line(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(command) == 2
    said = capsys.readouterr().err.strip().splitlines()
    expected = "triton 3.4.0: expected 3.5 or later, launches cannot be recorded under an older one"
    assert said == [f"error: {expected}"]

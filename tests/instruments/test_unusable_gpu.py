"""The driver's node is there, but no GPU that torch can use: one clear line, exit code 3."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warpwatch import __main__ as command_line
from warpwatch.commands.measure import run
from warpwatch.instruments import presence
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.instruments.gpu.card.interface import GpuError
from warpwatch.session.session import Session

NAME = "matmul-fp16-1024x1024x1024"
# As torch is on such a machine, for processes that only ask it this.
TORCH = """
class cuda:
    is_available = is_initialized = staticmethod(lambda: False)


def __getattr__(name):
    raise RuntimeError("Found no NVIDIA driver on your system.\\nPlease check that you have one.")
"""


BUSY = """
class cuda:
    is_available = staticmethod(lambda: True)
    is_initialized = staticmethod(lambda: False)

    @staticmethod
    def set_device(index):
        raise RuntimeError(
            "CUDA error: CUDA-capable device(s) is/are busy or unavailable\\n"
            "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
        )

    synchronize = set_device


def zeros(*_, **__):
    cuda.set_device(0)
"""


@pytest.fixture
def no_usable_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "torch.py").write_text(TORCH)
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(presence, "has_gpu", lambda: True)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compilers have their word elsewhere; here they are done."""

    def results(asked: Sequence[jobs.Job], _: object) -> Iterator[jobs.Result]:
        op = {"name": "aten::mm", "copied_bytes": 0}
        return (jobs.Result(job, "ok", evidence={"torch_ops": [op]}) for job in asked)

    side = nullcontext(SimpleNamespace(environment={}))
    monkeypatch.setattr(run.sides, "opened", lambda _: side)
    monkeypatch.setattr(run.jobs, "run", results)


def test_run_still_writes_what_the_compilers_said(
    no_usable_gpu: None, compiled: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "run.json"
    assert command_line.main(["run", NAME, "--target", "sm_90", "--json", str(file)]) == 3
    said = capsys.readouterr()
    why = "the measuring process ended: no GPU: torch sees neither a CUDA nor a HIP device"
    assert said.err == f"on this GPU: failed: {why}\n"
    assert "torch aten::mm" in said.out
    written = json.loads(file.read_text())
    assert written["results"][0]["status"] == "ok"
    assert written["measured"]["detail"] == why


@pytest.mark.parametrize("ahead", [False, True])
def test_a_gpu_that_another_process_has_for_itself_is_one_line(
    no_usable_gpu: None, tmp_path: Path, ahead: bool
):
    (tmp_path / "site" / "torch.py").write_text(BUSY)
    session = Session({"mode": "latency", "methods": ["cold"]})
    if ahead:
        session.start_ahead()
        assert session.wait_ahead()
    assert session.run([NAME])[NAME].detail == (
        "the measuring process ended: this GPU cannot be used: RuntimeError: CUDA error: "
        "CUDA-capable device(s) is/are busy or unavailable: another process has it for itself, "
        "end it or wait"
    )


def test_a_call_that_hangs_is_ended_by_run(
    compiled: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    file = tmp_path / "run.json"
    written: list[dict[str, Any]] = []

    def session(request: dict[str, Any]) -> Session:
        written.append(json.loads(file.read_text()))
        request |= {"scripts": {NAME: {"hangs": True}}}
        return Session(request, seconds_each=0.5, start_seconds=0.5)

    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(run, "Session", session)
    assert command_line.main(["run", NAME, "--target", "sm_90", "--json", str(file)]) == 3
    assert "measured" not in written[0] and written[0]["results"]
    assert capsys.readouterr().err == "on this GPU: hung: no answer within 1 s: ended\n"


def test_profile_says_it_in_two_lines(
    no_usable_gpu: None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    arguments = ["profile", NAME, "--with", "torch", "--output", str(tmp_path / "trace")]
    assert command_line.main(arguments) == 3
    assert capfd.readouterr().err.splitlines() == [
        f"{NAME}: RuntimeError: Found no NVIDIA driver on your system.",
        "torch wrote no report (exit code 1)",
    ]


def test_no_command_calls_it_a_regression(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def unusable(_: object) -> int:
        raise GpuError("no GPU: torch sees neither a CUDA nor a HIP device")

    monkeypatch.setattr(sys.modules["warpwatch.commands.measure.run"], "main", unusable)
    assert command_line.main(["run", NAME]) == 3
    said = capsys.readouterr().err
    assert said == "error: no GPU: torch sees neither a CUDA nor a HIP device\n"

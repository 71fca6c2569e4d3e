"""The command ``peers``: its table, and what it keeps when it is stopped."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workloads.matmul import MatmulWorkload
from warpwatch import devices
from warpwatch.__main__ import main
from warpwatch.commands.gpu import peers as command
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry as peers
from warpwatch.session import session as sessions
from warpwatch.session import worker
from warpwatch.session.session import Session


def outcome(name: str, *times: float) -> Outcome:
    samples = {"latency_cold": times, "relative_error": (1e-3, 2e-3), "peak_share": (50.0, 52.0)}
    return Outcome(name, "ok", samples=samples)


def test_the_table_ranks_by_time_and_compares_with_the_best_peer():
    base = MatmulWorkload(group="t", dtype="bf16", M=4096, N=4096, K=4096)
    outcomes = {
        one.workload: one
        for one in (
            outcome(base.name, 250.0, 251.0, 249.0),
            outcome(f"{base.name} @ cublas", 200.0),
            outcome(f"{base.name} @ slow", 300.0),
            Outcome(f"{base.name} @ lost", "failed", "it broke"),
        )
    }
    calls = [[{"duration_ns": 250_000.0, "sm_hz": 1.55e9}]]
    counted = {
        base.name: Outcome(
            base.name, "ok", samples={"tensor_pipe": (80.0,)}, evidence={"calls": calls}
        )
    }
    rows = command.table([base], outcomes, counted, devices.load("h200"))
    assert [row.by for row in rows] == ["cublas", "ours", "slow", "lost"]
    ours = rows[1]
    assert ours.versus_best == pytest.approx(0.8)
    assert ours.tflops == pytest.approx(2 * 4096**3 / 250e-6 / 1e12)
    assert ours.gbps == pytest.approx(3 * 2 * 4096**2 / 250e-6 / 1e9)
    assert ours.peak_percent == pytest.approx(100 * 549.76 / 989.43, rel=1e-3)
    assert ours.clock_percent == pytest.approx(100 * 549.76e12 / (132 * 4096 * 1.55e9), rel=1e-3)
    assert (ours.tensor_pipe, ours.relative_error) == (80, 2e-3)
    assert rows[0].clock_percent == 51
    assert command.geometric_mean(rows) == pytest.approx(0.8)
    text = "\n".join(command.lines(rows))
    heads, cells = (line.split() for line in text.splitlines()[1:3])
    assert heads[4:6] == ["TFLOP/s", "GB/s"] and cells[3:5] == ["687.2", "503"]
    assert "lost              failed: it broke" in text
    assert text.endswith("best peer's time over ours, geometric mean: 0.800")
    assert json.loads(json.dumps(command.document(rows, {})))["schema_version"] == 1


MEASURED = "matmul-fp16-1024x1024x1024"


WAITING = "matmul-fp16-4096x4096x4096"


def test_what_waits_for_compilers_is_compiled_on_all_cores_before_anything_is_measured(
    software_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[tuple[str, list[str]]] = []

    class Ahead(Session):
        def run(self, workloads: Any, report: Any = None) -> dict[str, Outcome]:
            asked.append((self.request["mode"], list(workloads)))
            return {}

    monkeypatch.setattr(sessions, "Session", Ahead)
    few = ["peers", "--workload", MEASURED, "--workload", MEASURED, "--seconds", "0"]
    assert main(few) == 3 and asked == []
    assert capsys.readouterr().out.splitlines().count(MEASURED) == 1, "named twice it is one"

    def late(request: dict[str, Any], seconds_each: float) -> Session:
        return Session({**request, "scripts": {}, "until": 0.0}, seconds_each=seconds_each)

    monkeypatch.setattr(command, "Session", late)
    # Whoever gives little time waits for no other workload's compilers.
    assert main(["peers", "--group", "guide", "--seconds", "35"]) == 3 and asked == []
    assert main(["peers", "--group", "guide", "--seconds", "60"]) == 3
    ((mode, names),) = asked
    assert mode == "ahead"
    compiled = {name.partition(peers.SEPARATOR)[2] for name in names}
    assert compiled == {"", "flex", "cudnn-frontend"}
    assert f"{len(names)} are compiled" in capsys.readouterr().err


@pytest.fixture
def software_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real workers on a software GPU: `WAITING` never answers."""

    def session(request: dict[str, Any], seconds_each: float) -> Session:
        scripts: dict[str, dict[str, object]] = {
            MEASURED: {"us": 20},
            f"{MEASURED} @ cublas": {"us": 10},
            WAITING: {"hangs": True},
            f"{WAITING} @ cublas": {"us": 10},
        }
        limits = {"warm_up_seconds": 0.002, "max_samples": 16}
        return Session({**request, "scripts": scripts, "limits": limits}, seconds_each=seconds_each)

    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(command, "Session", session)


def measured_rows(file: Path) -> list[str]:
    rows = json.loads(file.read_text())["rows"] if file.exists() else []
    return [row["by"] for row in rows if row["status"] == "ok"]


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [(signal.SIGTERM, 143, "SIGTERM"), (signal.SIGINT, 130, "Ctrl-C")],
    ids=["sigterm", "ctrl-c"],
)
def test_a_stop_keeps_what_was_measured(
    software_gpu: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    number: int,
    code: int,
    word: str,
):
    file = tmp_path / "rows.json"

    ended = threading.Event()

    def stop_at_the_third() -> None:
        until = time.monotonic() + 60
        while len(measured_rows(file)) < 2 and time.monotonic() < until:
            if ended.wait(0.02):
                return  # a signal now would end whoever runs the tests
        os.kill(os.getpid(), number)

    def not_caught(*_: object) -> None:
        raise AssertionError("the signal was not taken")

    before = signal.signal(signal.SIGTERM, not_caught)
    # A shell that starts the tests in the background has them ignore Ctrl-C.
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    stopper = threading.Thread(target=stop_at_the_third)
    stopper.start()
    try:
        asked = ["--workload", MEASURED, "--workload", WAITING, "--json", str(file)]
        assert main(["peers", *asked, "--peer", "cublas"]) == code
        assert signal.getsignal(signal.SIGTERM) is not_caught
    finally:
        ended.set()
        stopper.join()
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, interrupt)
    assert measured_rows(file) == ["cublas", "ours"]
    said = capsys.readouterr()
    assert f"stopped by {word}: 2 of 4 rows measured" in said.err
    assert "best peer's time over ours, geometric mean: 0.5" in said.out
    assert said.out.count(f"not tried: stopped by {word}") == 2
    assert [one.name for one in tmp_path.iterdir()] == ["rows.json"]


def test_a_stop_while_counters_are_read_keeps_the_times(
    software_gpu: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    file = tmp_path / "rows.json"

    def read(names: list[str], tell: Any, report: Any, until: float) -> None:
        assert measured_rows(file) == ["cublas", "ours"]
        assert time.time() + 580 < until <= time.time() + 595
        raise KeyboardInterrupt

    monkeypatch.setattr(command.utilization, "read", read)
    asked = ["--workload", MEASURED, "--peer", "cublas", "--counters", "--seconds", "600"]
    assert main(["peers", *asked, "--json", str(file)]) == 130
    said = capsys.readouterr()
    assert "stopped by Ctrl-C: 2 of 2 rows measured, counters of 0 of 2" in said.err
    assert measured_rows(file) == ["cublas", "ours"]


def test_nothing_is_begun_after_the_seconds_given(
    software_gpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked = ["peers", "--workload", MEASURED, "--peer", "cublas", "--seconds", "0"]
    assert main([*asked, "--json", str(tmp_path / "rows.json")]) == 3
    said = capsys.readouterr()
    assert "time was up: 0 of 2 rows measured" in said.err
    assert said.out.count("not tried: time was up") == 2
    assert main([*asked, "--json", str(tmp_path / "no" / "rows.json")]) == 2
    assert "--json: cannot write" in capsys.readouterr().err


def test_a_group_is_begun_if_the_longest_so_far_would_end_in_time(monkeypatch: pytest.MonkeyPatch):
    now = [100.0]
    monkeypatch.setattr(worker.time, "time", lambda: now[0])
    begun = []
    for (name,), in_time in worker._in_time([["a"], ["b"], ["c"], ["d"]], until=130):
        if in_time:
            begun.append(name)
            now[0] += {"a": 2, "b": 11, "c": 7}[name]
    assert begun == ["a", "b", "c"]


def test_without_a_gpu_the_command_says_so_and_measures_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(presence, "has_gpu", lambda: False)
    assert main(["peers", "--group", "guide"]) == 3
    assert capsys.readouterr().err == "no GPU: nothing measured\n"


def test_an_unknown_group_is_answered_with_the_known_ones(capsys: pytest.CaptureFixture[str]):
    assert main(["peers", "--group", "guides"]) == 2
    assert "groups are amd fa3 gemm guide" in capsys.readouterr().err
    named = ["peers", "--workload", "matmul-fp16-1024x1024x1024"]
    assert main([*named, "--group", "fa3"]) == 2
    said = "--workload matmul-fp16-1024x1024x1024 is in --group guide, not fa3: leave out one of"
    assert said in capsys.readouterr().err
    assert main([*named, "--group", "guide", "--kernel", "flash_attention"]) == 2
    assert "is in --kernel matmul, not flash_attention" in capsys.readouterr().err
    assert main(["peers", "--group", "sdpa", "--kernel", "flash_attention"]) == 2
    said = capsys.readouterr().err
    assert "the group has --kernel scaled_dot_product_attention; the kernel is in --group" in said
    assert main(["peers", "--seconds", "-3"]) == 2
    assert "--seconds: expected 0 or more, got -3" in capsys.readouterr().err
    assert main(["peers", "--peer", "blas"]) == 2
    assert "expected one of torch-flash" in capsys.readouterr().err

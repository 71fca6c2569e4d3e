"""Peers: they compute what our kernels compute, stand beside them, and fail one at a time."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import configuration, devices
from benchmarks.__main__ import main
from benchmarks.commands import peers as command
from benchmarks.instruments import accuracy, peer_calls, peers, presence, worker
from benchmarks.instruments.outcome import Outcome
from benchmarks.instruments.peers import PeerWorkload
from benchmarks.instruments.session import Session
from benchmarks.workloads.attention import (
    AttentionWorkload,
    SdpaWorkload,
)
from benchmarks.workloads.attention_backward import BackwardWorkload
from benchmarks.workloads.attention_kvcache import KvcacheWorkload
from benchmarks.workloads.base import Workload
from benchmarks.workloads.matmul import MatmulWorkload
from benchmarks.workloads.matmul_fp8 import Fp8MatmulWorkload

ATTENTION = AttentionWorkload(group="t", dtype="fp32", B=1, S=48, H=4, G=2, D=32, causal=True)
BACKWARD = BackwardWorkload(group="t", dtype="fp32", B=2, S=40, H=2, D=32, causal=True)
SDPA = SdpaWorkload(group="t", dtype="fp32", B=1, S=40, H=2, D=32)
CACHE = KvcacheWorkload(group="t", dtype="fp32", B=2, KV=40, H=4, G=2, D=32)
PRODUCT = MatmulWorkload(
    group="t", dtype="fp32", M=32, N=48, K=64, layout="nt", bias=True, activation="gelu"
)
RESIDUAL = replace(PRODUCT, bias=False, activation=None, residual=True)
LOW_PRODUCT = Fp8MatmulWorkload(group="t", M=32, N=48, K=64)


@pytest.mark.parametrize(
    ("workload", "name"),
    [
        (ATTENTION, "torch-flash"),
        (SDPA, "torch-flash"),
        (BACKWARD, "torch-flash"),
        (replace(ATTENTION, KV=80), "torch-flash"),
        (CACHE, "torch-flash"),
        (replace(CACHE, S=3, page=16), "torch-flash"),
        (replace(CACHE, S=3, page=16, causal=False), "torch-flash"),
        (PRODUCT, "cublas"),
        (RESIDUAL, "cublas"),
        (LOW_PRODUCT, "cublas-fp8"),
        (replace(LOW_PRODUCT, scales="rows", bias=True, activation="silu"), "cublas-fp8-fast"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_peer_computes_the_workloads_formula(workload: Workload, name: str):
    (peer,) = (one for one in peers.PEERS if one.name == name)
    inputs = workload.inputs("cpu")
    accuracy.check(workload, inputs, peer.run(workload, inputs))


def test_gradients_are_those_of_the_inputs_given_and_the_forward_pass_is_done_once():
    runs: list[Any] = []

    def forward(workload: Any, inputs: Any) -> Any:
        runs.append(inputs)
        return inputs["q"] * inputs["k"] + inputs["v"]

    run = peer_calls.with_gradients(forward)
    for seed in (0, 1):
        inputs = BACKWARD.inputs("cpu", seed)
        for _ in range(3):
            dq, dk, dv = run(BACKWARD, inputs)
        assert dq.equal(inputs["k"] * inputs["dout"]) and dk.equal(inputs["q"] * inputs["dout"])
        assert dv.equal(inputs["dout"])
    assert len(runs) == 2


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize(
    "workload",
    [SDPA, ATTENTION, replace(ATTENTION, KV=90), replace(ATTENTION, window=20)],
    ids=lambda one: one.name,
)
def test_flex_computes_the_workloads_formula_uncompiled(
    monkeypatch: pytest.MonkeyPatch, workload: AttentionWorkload
):
    from torch.nn.attention.flex_attention import flex_attention

    monkeypatch.setattr(peer_calls, "compiled_flex", lambda: flex_attention)
    (peer,) = (one for one in peers.PEERS if one.name == "flex")
    inputs = workload.inputs("cpu")
    accuracy.check(workload, inputs, peer.run(workload, inputs))


def test_a_workload_is_found_by_name_with_and_without_a_peer():
    found = peers.get("matmul-fp16-1024x1024x1024 @ cublas")
    assert isinstance(found, PeerWorkload)
    assert found.name == "matmul-fp16-1024x1024x1024 @ cublas"
    assert found.flops == 2 * 1024**3
    assert peers.get("matmul-fp16-1024x1024x1024 @ ours").name == "matmul-fp16-1024x1024x1024"
    with pytest.raises(ValueError, match="unknown peer 'cudnn': expected one of torch-flash"):
        peers.get("matmul-fp16-1024x1024x1024 @ cudnn")


def test_only_peers_with_the_same_mask_stand_beside():
    square = AttentionWorkload(group="t", dtype="bf16", B=1, S=64, H=1, D=64, causal=True)
    more_keys, fewer_keys = replace(square, KV=96), replace(square, KV=32)
    assert "torch-cudnn" in {one.peer.name for one in peers.beside(square)}
    assert "torch-cudnn" in {one.peer.name for one in peers.beside(more_keys)}
    assert peers.beside(fewer_keys) == []
    assert [one.peer.name for one in peers.beside(PRODUCT)] == ["cublas"]


def test_no_peer_stands_beside_what_it_does_not_compute():
    """Packed sequences, fp8 attention, caches that are written to: another formula than that of q,
    k and v. Windows are Flex's alone, and with scales of blocks no sum is longer than they are."""
    other = ("varlen", "attention-fp8", "fp8kv", "append")
    for workload in configuration.workloads().select():
        found = peers.beside(workload)
        if any(word in workload.name for word in other):
            assert found == [], workload.name
        elif "window" in workload.name:
            assert [one.peer.name for one in found] == ["flex"], workload.name
        elif "kvcache" in workload.name:
            assert {"torch-flash", "torch-cudnn"} < {one.peer.name for one in found}, workload.name
        elif workload.name.startswith("matmul-fp8"):
            low = ["cublas-fp8"] + ["cublas-fp8-fast"] * (not workload.name.endswith("blocks"))
            assert [one.peer.name for one in found] == low, workload.name
        elif workload.kernel == "matmul":
            assert [one.peer.name for one in found] == ["cublas"], workload.name
    assert peers.beside(replace(PRODUCT, residual=True)) == []
    assert peers.beside(replace(RESIDUAL, bias=True)) == []
    assert peers.beside(replace(RESIDUAL, activation="relu")) == []
    assert peers.beside(replace(LOW_PRODUCT, layout="nn")) == []


def test_scales_of_blocks_are_given_to_cublas_as_it_reads_them_and_turned_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """The CPU's torch takes none: strides are those its check on a GPU asks for."""
    import torch

    workload = Fp8MatmulWorkload(group="t", M=40, N=200, K=512, scales="blocks")
    inputs = workload.inputs("cpu")
    given: list[Any] = []

    def scaled_mm(a: Any, b: Any, *, scale_a: Any, scale_b: Any, **_: Any) -> Any:
        given.append((scale_a, scale_b))
        return workload.reference({**inputs, "a_scale": scale_a, "b_scale": scale_b})

    monkeypatch.setattr(torch, "_scaled_mm", scaled_mm)
    (peer,) = (one for one in peers.PEERS if one.name == "cublas-fp8")
    for _ in range(2):
        accuracy.check(workload, inputs, peer.run(workload, inputs))
    a_scale, b_scale = given[0]
    assert (a_scale.shape, a_scale.stride()) == ((40, 4), (1, 40))
    assert (b_scale.shape, b_scale.stride()) == ((4, 2), (1, 4))
    assert given[1][0] is a_scale and given[1][1] is b_scale


@pytest.mark.parametrize(
    ("cuda", "major", "K", "why"),
    [
        (None, 9, 512, "scales of blocks need a torch of CUDA 12.9 or later, got none"),
        ("12.8", 9, 512, "scales of blocks need a torch of CUDA 12.9 or later, got 12.8"),
        ("13.0", 10, 512, "scales of blocks need a Hopper GPU, got a card"),
        ("13.0", 9, 640, "scales of blocks need a K of whole 512, got 640"),
        ("12.9", 9, 512, None),
    ],
    ids=str,
)
def test_scales_of_blocks_are_refused_with_what_they_need(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, major: int, K: int, why: str | None
):
    import torch

    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a card")
    (low,) = peers.beside(replace(LOW_PRODUCT, scales="blocks", K=K))
    assert low.missing == (why and f"cublas-fp8: {why}")
    (other, _) = peers.beside(LOW_PRODUCT)
    assert other.missing is None


def test_flex_is_compiled_for_every_shape_of_the_yardstick():
    """Beyond its limit torch goes on uncompiled, and says so once among its warnings."""
    import torch._dynamo.config as dynamo

    peer_calls.compiled_flex()
    shapes = [
        one
        for workload in configuration.workloads().select()
        for one in peers.beside(workload)
        if one.peer.name == "flex"
    ]
    assert 8 < len(shapes) < dynamo.recompile_limit
    assert len(shapes) < dynamo.accumulated_recompile_limit


def test_what_waits_for_compilers_is_compiled_on_all_cores_before_anything_is_measured(
    software_gpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    asked: list[tuple[str, list[str]]] = []

    def ahead(request: dict[str, Any], names: list[str], most: int, **_: Any) -> dict[str, Outcome]:
        asked.append((request["mode"], names))
        return {}

    monkeypatch.setattr(command, "side_by_side", ahead)
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
    assert {name.partition(peers.SEPARATOR)[2] for name in names} == {"", "flex"}
    assert f"{len(names)} are compiled" in capsys.readouterr().err


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

    monkeypatch.setattr(command.counters, "read", read)
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

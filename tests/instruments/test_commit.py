"""asv's view of a commit on a GPU: one measuring process, values by metric, nothing without one."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.suite import attention, compiled, host, matmul, peers
from tests.instruments.scripted_commit import FAST, SLOW, track
from tests.root import ROOT
from warpwatch.asv import environment
from warpwatch.asv.suite import peers as suite_of_peers
from warpwatch.commands.measure import queues
from warpwatch.config import metrics
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry
from warpwatch.session import commit, session, unfinished
from warpwatch.session.session import Session

SUITES = (attention, matmul, peers)
SETS = load_package().sets


def functions() -> list[tuple[str, Any, list[str]]]:
    return [
        (f"{module.__name__}.{name}.{key}", function, vars(one)["params"][0])
        for module in SUITES
        for name, one in vars(module).items()
        if isinstance(one, type) and "params" in vars(one)
        for key, function in vars(one).items()
        if key.startswith("track_")
    ]


def test_importing_the_suites_imports_no_torch():
    code = (
        "import sys; from benchmarks.suite import attention, matmul, peers, host;"
        "sys.exit('torch' in sys.modules or 'triton' in sys.modules)"
    )
    import subprocess

    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=600).returncode == 0


def test_every_workload_is_a_parameter_of_exactly_one_kernel():
    named: list[str] = []
    for key, _, params in functions():
        if key.endswith("track_latency_cold") and ".peers." not in key:
            named += params
    assert sorted(named) == sorted(one.name for one in load_workloads().all_workloads())


def test_one_run_serves_all_suites():
    caches = {
        vars(module)[name].setup_cache
        for module, name in (
            (attention, "FlashAttention"),
            (matmul, "Matmul"),
            (peers, "FlashAttention"),
        )
    }
    assert len(caches) == 1


def test_every_benchmark_says_what_a_report_needs():
    found = functions()
    assert len(found) > 20
    for name, function, params in found:
        metric = metrics.get(function.metric)
        assert function.unit == metric.unit, name
        assert function.better in ("lower", "higher"), name
        assert function.role == ("evidence" if ".peers." in name else metric.role), name
        assert function.instrument and function.version, name
        assert function.kernel == load_workloads().get(params[0].partition(" @ ")[0]).kernel, name
        assert len(function.flops) == len(function.bytes_moved) == len(params), name
        if metric.name == "latency_cold":
            assert len(function.peaks["h200"]) == len(params)


def test_without_a_gpu_nothing_is_measured_and_every_value_is_not_applicable(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(presence, "has_gpu", lambda: False)
    cache = commit.measure([FAST])
    assert cache == {}
    for _, function, params in functions():
        assert math.isnan(function(None, cache, params[0]))


def test_what_is_not_kept_of_a_commit_is_compiled_on_all_cores_before_it_is_timed(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    names = [one.name for one in load_workloads().all_workloads()][:8]
    scripted |= {name: {"us": 20} for name in names}
    asked: list[tuple[str, list[str]]] = []

    class OneIsKept(unfinished.Unfinished):
        def __init__(self, methods: dict[str, str]) -> None:
            super().__init__(methods)
            self._outcomes = {names[0]: Outcome(names[0], "ok")}

    class Ahead(Session):
        def run(self, workloads: Any, report: Any = None) -> dict[str, Outcome]:
            asked.append((self.request["mode"], list(workloads)))
            return {}

    monkeypatch.setattr(session, "Session", Ahead)
    monkeypatch.setattr(commit, "Unfinished", OneIsKept)
    commit.measure([*names, f"{names[0]} @ cublas"])
    assert asked == [("ahead", names[1:])], "cuBLAS waits for no compiler"
    commit.measure(names[:6])
    assert len(asked) == 1, "five take less than the processes that would compile them"


def test_all_metrics_of_a_commit_come_from_one_measurement(scripted: dict[str, dict[str, Any]]):
    scripted[FAST] = {"us": 20}
    scripted[SLOW] = {"out_of_memory_at": 0}
    cache = commit.measure([FAST, SLOW])
    timed = track("latency_cold", cache, FAST)
    assert timed["number"] == 1
    assert sorted(timed["samples"])[7] == pytest.approx(20, rel=0.01)
    assert track("tensor_pipe", cache, FAST) == {"samples": [56.6], "number": 1}
    assert math.isnan(track("dram_bytes", cache, FAST)), "the tier that read it has no such counter"
    with pytest.raises(RuntimeError, match="12 GiB asked for, 3 GiB free"):
        track("latency_cold", cache, SLOW)


def test_the_history_set_is_a_part_of_the_workloads(monkeypatch: pytest.MonkeyPatch):
    names = [one.name for one in load_workloads().all_workloads()]
    assert set(SETS.history) <= set(names)
    monkeypatch.setenv(commit.SET_VARIABLE, "history")
    assert set(commit.wanted(names)) == set(SETS.history)
    assert set(SETS.history_peers) <= {one.name for one in commit.canaries()}
    monkeypatch.setenv(commit.SET_VARIABLE, "some")
    with pytest.raises(ValueError, match="expected full, history or peers"):
        commit.wanted(names)


def test_the_peers_set_has_a_peer_of_nearly_every_workload(monkeypatch: pytest.MonkeyPatch):
    """Only a cache that the call writes to, or that holds fp8, has none."""
    names = [one.name for one in load_workloads().all_workloads()]
    watched = {one.name for one in commit.peers_measured()}
    assert watched == {one.name for one in commit.canaries()}
    monkeypatch.setenv(commit.SET_VARIABLE, "peers")
    found = commit.peers_measured()
    assert commit.wanted(names) == names and watched <= {one.name for one in found}
    assert {one.peer.name for one in found} == set(SETS.peers)
    without = set(names) - {one.base.name for one in found}
    assert {"append" in one or "fp8kv" in one for one in without} == {True} and len(without) == 2


def test_counters_are_read_of_our_kernels_and_canaries(
    monkeypatch: pytest.MonkeyPatch, scripted: dict[str, dict[str, Any]]
):
    scripted[FAST] = scripted[f"{FAST} @ quack"] = scripted[f"{FAST} @ cublas"] = {"us": 20}
    monkeypatch.setattr(commit, "canaries", lambda: [registry.get(f"{FAST} @ cublas")])
    cache = commit.measure([FAST, f"{FAST} @ quack", f"{FAST} @ cublas"])
    assert {name: "tensor_pipe" in row["samples"] for name, row in cache.items()} == {
        FAST: True,
        f"{FAST} @ quack": False,
        f"{FAST} @ cublas": True,
    }


def test_a_set_that_names_an_unknown_peer_says_which_there_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(commit.SET_VARIABLE, "peers")
    wrong = replace(commit.load_package(), sets=replace(SETS, peers=("cudnn",)))
    monkeypatch.setattr(commit, "load_package", lambda: wrong)
    with pytest.raises(ValueError, match="names the peer 'cudnn': expected some of torch-flash"):
        commit.peers_measured()


@pytest.mark.parametrize(
    ("pattern", "kept"),
    [
        ("^attention|^matmul|^peers", {"attention", "matmul", "peers"}),
        ("Matmul.*track_latency", {"matmul", "peers"}),
        ("^host|^attention", {"attention", "host"}),
    ],
)
def test_asv_starts_no_process_for_a_value_the_history_set_leaves_out(
    monkeypatch: pytest.MonkeyPatch, pattern: str, kept: set[str]
):
    assert queues.patterns_of_the_set([pattern]) == [pattern], "the full set leaves none out"
    monkeypatch.setenv(commit.SET_VARIABLE, "history")
    (narrow,) = queues.patterns_of_the_set([pattern])
    found: dict[str, set[str]] = {}
    for name, _, workloads in functions():
        module = name.removeprefix("benchmarks.suite.")
        for workload in workloads:
            if re.search(narrow, f"{module}({workload!r})"):
                found.setdefault(module.partition(".")[0], set()).add(workload)
    if re.search(narrow, "host.Host.track_host_us('matmul-fp16-1024x1024x1024')"):
        found["host"] = set()
    assert set(found) == kept
    matmuls = {one for one in SETS.history if one.startswith("matmul")}
    assert found.get("matmul", matmuls) == matmuls
    assert found.get("attention", set(SETS.history) - matmuls) == set(SETS.history) - matmuls
    assert found.get("peers", set()) <= set(SETS.history_peers)


def test_a_hidden_gpu_is_no_gpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presence, "_NODES", (presence.Path("/dev/null"),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("HIP_VISIBLE_DEVICES", raising=False)
    assert presence.has_gpu()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert not presence.has_gpu()


def test_every_published_benchmark_is_found_under_its_name(monkeypatch: pytest.MonkeyPatch):
    """asv knows a series by the names of file, class and method. Every peer was measured once."""
    monkeypatch.setenv(commit.SET_VARIABLE, "peers")
    described = json.loads((ROOT / "reports/published/benchmarks.json").read_text("utf-8"))
    published = [name for name in described if name != "version"]
    suites = {one.__name__.rpartition(".")[2]: vars(one) for one in (*SUITES, compiled, host)}
    suites["peers"] = suite_of_peers.classes("peers")
    lacking = []
    for name in published:
        module, kind, method = name.split(".")
        if not hasattr(suites[module].get(kind), method):
            lacking.append(name)
    assert len(published) > 100 and lacking == []
    assert environment.KernelsOverlay.tool_name == "kernels-overlay"

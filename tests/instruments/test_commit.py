"""asv's view of a commit on a GPU: one measuring process, values by metric, nothing without one."""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.suite import attention, compiled, host, matmul, peers
from tests.root import ROOT
from warpwatch import project
from warpwatch.asv import environment
from warpwatch.asv.suite import measured
from warpwatch.asv.suite import peers as suite_of_peers
from warpwatch.commands.measure import history, queues
from warpwatch.config import isolation, metrics
from warpwatch.config.package import load as load_package
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments import presence
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers import registry
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.session import commit, series_versions, session, unfinished, utilization
from warpwatch.session.session import Session
from warpwatch.session.utilization import Readings

FAST, SLOW = "matmul-fp16-1024x1024x1024", "matmul-fp16-4096x4096x4096"
SUITES = (attention, matmul, peers)
SETS = load_package().sets
READ = utilization.read  # most tests have another


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


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """A GPU is there, its workers follow this script, and counters are read for who was right."""
    scripts: dict[str, dict[str, Any]] = {}

    def make(request: dict[str, Any], **options: Any) -> Session:
        quick = {"warm_up_seconds": 0.002}
        return Session({**request, "scripts": scripts, "limits": quick}, **options)

    def read(names: list[str], *_: object) -> Readings:
        return Readings(
            "ncu", {name: Outcome(name, "ok", samples={"tensor_pipe": (56.6,)}) for name in names}
        )

    monkeypatch.setattr(presence, "has_gpu", lambda: True)
    monkeypatch.setattr(commit, "Session", make)
    monkeypatch.setattr(utilization, "read", read)
    return scripts


def track(metric: str, cache: commit.Cache, workload: str) -> Any:
    yardstick = load_workloads()
    function = measured.tracker(metrics.get(metric), [yardstick.get(workload)], "kernels")
    return function(None, cache, workload)


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


def test_raw_samples_are_kept_beside_the_results(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path / "asv" / "results"))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    scripted[FAST] = {"us": 20}
    cache = commit.measure([FAST])
    (file,) = (tmp_path / "asv" / "results" / "evidence").iterdir()
    document = json.loads(gzip.decompress(file.read_bytes()))
    assert (document["schema_version"], document["commit"]) == (1, "a" * 40)
    (timed,) = document["timed"]
    assert timed["samples"]["latency_cold"] == cache[FAST]["samples"]["latency_cold"]
    assert document["methods"]["latency"] == series_versions.TIMES
    assert "host" not in document["methods"], "it is asked by a benchmark of its own"


REFUSING_NCU = """#!/bin/sh
for one; do case "$one" in --log-file=*) log="${one#*=}";; esac; done
echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters" > "$log"
exit 1
"""


def test_counters_are_read_in_the_process_that_timed_after_all_times(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    monkeypatch.setattr(utilization, "read", READ)
    asked: list[tuple[int, str, list[str]]] = []
    sent = session.Running.send

    def send(worker: Any, request: dict[str, Any], more: bool = False) -> None:
        asked.append((worker.process.pid, request["mode"], request["workloads"]))
        sent(worker, request, more)

    monkeypatch.setattr(session.Running, "send", send)
    counters = {"sm_cycles": [1000.0, 1010.0], "kernel_cycles": [2000.0, 2020.0]}
    scripted[FAST] = {"us": 20, "counters": counters}
    scripted[SLOW] = {"us": 200, "counters": counters}
    cache = commit.measure([FAST, SLOW])
    assert [one[1:] for one in asked] == [("latency", [FAST, SLOW]), ("staying", [FAST, SLOW])]
    assert len({pid for pid, *_ in asked}) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(asked[0][0], 0)  # it is ended when all is read
    assert track("sm_cycles", cache, FAST) == {"samples": [1000.0, 1010.0], "number": 1}
    assert len(track("latency_cold", cache, FAST)["samples"]) > 10, "those of the timing"
    counted = Evidence([tmp_path]).asked("a" * 40).counted
    assert counted is not None and (counted.tier, counted.why) == ("cupti", "")


def test_one_call_without_counters_leaves_the_others_theirs(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(utilization, "read", READ)
    scripted[FAST] = {"us": 20, "counters": {"sm_cycles": [1000.0]}}
    scripted[SLOW] = {"us": 200}
    cache = commit.measure([FAST, SLOW])
    assert track("sm_cycles", cache, FAST) == {"samples": [1000.0], "number": 1}
    assert math.isnan(track("sm_cycles", cache, SLOW))
    assert "counters: a software GPU has none" in cache[SLOW]["detail"]


def test_a_missing_right_is_in_the_evidence_and_history_says_it_once(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """What ``setup_cache`` prints is thrown away by asv: nothing here listens to it."""
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path / ".asv" / "results"))
    monkeypatch.setattr(project, "folder", lambda: tmp_path)
    monkeypatch.setattr(utilization, "read", READ)
    monkeypatch.setattr(utilization, "Session", commit.Session)
    ncu = tmp_path / "ncu"
    ncu.write_text(REFUSING_NCU)
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    scripted[FAST] = {"us": 20}
    for digit in "ab":
        found = isolation.Measured("k", 40 * digit, "t", "")
        monkeypatch.setattr(isolation, "measured", lambda found=found: found)
        commit.measure([FAST])
    counted = Evidence([tmp_path / ".asv" / "results"]).asked("a" * 40).counted
    assert counted is not None
    assert (counted.tier, counted.card) == ("gpm", "")
    assert "ERR_NVGPUCTRPERM" in counted.why and "CAP_SYS_ADMIN" in counted.why
    assert history.said_since(0) == [f"utilization is {counted.said}"]
    assert history.said_since(time.time_ns() + 10**9) == [], "not measured by this run"


def test_what_was_measured_for_want_of_a_datasheet_is_said_by_history(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    results = tmp_path / ".asv" / "results"
    monkeypatch.setattr(project, "folder", lambda: tmp_path)
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(results))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    start = Session.__init__

    def unknown_card(session: Session, request: dict[str, Any], **more: Any) -> None:
        start(session, {**request, "ceilings": 1000.0}, **more)

    monkeypatch.setattr(Session, "__init__", unknown_card)
    scripted[FAST] = {"us": 20}
    commit.measure([FAST])
    found = Evidence([results]).asked("a" * 40).ceilings
    assert found is not None and found.card == "Fake GPU"
    assert history.said_since(0) == [
        f"no datasheet of 'Fake GPU': shares are of ceilings measured on it ({found.said}), "
        "times have no floor"
    ]


def test_who_else_computes_on_the_card_is_said_by_history(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(project, "folder", lambda: tmp_path)
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path / ".asv" / "results"))
    start = Session.__init__

    def shared_card(session: Session, request: dict[str, Any], **more: Any) -> None:
        start(session, {**request, "computing": [[], [4242, 99]], "ours": [99]}, **more)

    monkeypatch.setattr(Session, "__init__", shared_card)
    scripted[FAST] = {"us": 20}
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    commit.measure([FAST])
    note = "another process computes on this GPU: times are not its own, end it or wait"
    assert history.said_since(0) == [note]


def test_a_run_that_was_ended_goes_on_where_it_stood(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    (tmp_path / "evidence").mkdir()
    unfinished = tmp_path / "evidence" / f"gpu-{'a' * 12}.unfinished"
    scripted[FAST] = {"us": 20}
    scripted[SLOW] = {"us": 200}

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(utilization, "read", killed)
        with pytest.raises(KeyboardInterrupt):
            commit.measure([FAST])
    assert len(unfinished.read_text().splitlines()) == 2
    # It would be noticed if it were measured again.
    scripted[FAST] = {"us": 40}
    cache = commit.measure([FAST, SLOW])
    assert sorted(cache[FAST]["samples"]["latency_cold"])[7] == pytest.approx(20, rel=0.01)
    assert sorted(cache[SLOW]["samples"]["latency_cold"])[7] == pytest.approx(200, rel=0.01)
    assert [one.name for one in unfinished.parent.iterdir()] == [f"gpu-{'a' * 12}.json.gz"]


def test_what_there_is_no_time_for_is_left_to_the_next_run(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """asv would end the process, and everything measured would be lost."""
    assert commit._TIMING_SECONDS < commit._COUNTER_SECONDS < commit.SETUP_SECONDS - 180
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))
    monkeypatch.setattr(commit, "_TIMING_SECONDS", 0.0)
    scripted[FAST] = {"us": 20}
    cache = commit.measure([FAST])
    assert cache[FAST]["status"] == "not tried"
    with pytest.raises(RuntimeError, match="time was up"):
        track("latency_cold", cache, FAST)
    evidence = tmp_path / "evidence"
    document = json.loads(gzip.decompress((evidence / f"gpu-{'a' * 12}.json.gz").read_bytes()))
    assert document["timed"] == [], "a gap, and nothing that was lost"
    assert len(list(evidence.glob("*.unfinished"))) == 1


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

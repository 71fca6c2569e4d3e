"""Worker processes: what hangs is ended, what is lost is left behind, results come one by one."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.processes import ends
from warpwatch.instruments.gpu import measuring
from warpwatch.instruments.gpu.card import clocks
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import session as sessions
from warpwatch.session.session import Session, make_ready, side_by_side
from warpwatch.session.stopping import Stopped, stopped_by_sigterm

QUICK = {"warm_up_seconds": 0.002, "max_samples": 16}


def session(scripts: dict[str, dict[str, object]], seconds_each: float = 30) -> Session:
    request = {"mode": "latency", "scripts": scripts, "limits": QUICK}
    return Session(request, seconds_each=seconds_each, start_seconds=60)


def test_every_failure_costs_its_own_workload_only():
    scripts: dict[str, dict[str, object]] = {
        "good": {"us": 50},
        "bad-launch": {"fails_at": 3},
        "too-big": {"out_of_memory_at": 0},
        "crashes": {"crashes": True},
        "after-crash": {"us": 60},
        "loses-device": {"lost_at": 5},
        "after-loss": {"us": 70},
    }
    seen: list[str] = []
    outcomes = session(scripts).run(list(scripts), lambda outcome: seen.append(outcome.workload))
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "good": "ok",
        "bad-launch": "failed",
        "too-big": "out of memory",
        "crashes": "failed",
        "after-crash": "ok",
        "loses-device": "device lost",
        "after-loss": "ok",
    }
    assert seen == list(scripts)
    assert statistics.median(outcomes["after-loss"].samples["latency_cold"]) == pytest.approx(
        70, rel=0.02
    )
    assert outcomes["bad-launch"].detail == "GpuError: too many resources requested for launch"
    assert outcomes["crashes"].detail.startswith("the measuring process ended: ")


def test_who_shares_the_card_is_said_once_and_noted_on_every_outcome(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sessions, "_SAID", set())
    scripts: dict[str, dict[str, object]] = {"good": {"us": 50}, "bad": {"fails_at": 0}}
    shared = session(scripts)
    shared.request["computing"] = [[4242, 17], [4242, 99]]
    outcomes = shared.run(list(scripts))
    note = "another process computes on this GPU: times are not its own, end it or wait"
    assert outcomes["good"].status == "ok"
    assert outcomes["good"].detail.endswith(note)
    assert outcomes["bad"].detail == f"GpuError: too many resources requested for launch; {note}"
    assert capsys.readouterr().err == note + "\n"
    shared.request["computing"] = [[], [99]]
    assert note not in shared.run(["good"])["good"].detail
    assert capsys.readouterr().err == ""


def test_a_hanging_workload_is_ended_and_the_next_one_measured():
    # The first has the time a process takes to start, so that the second need not.
    scripts: dict[str, dict[str, object]] = {
        "first": {"us": 10},
        "hangs": {"hangs": True},
        "next": {"us": 10},
    }
    outcomes = session(scripts, seconds_each=2.0).run(list(scripts))
    assert outcomes["first"].status == "ok"
    assert outcomes["hangs"].status == "hung"
    assert outcomes["hangs"].detail == "no answer within 2 s: ended"
    assert outcomes["next"].status == "ok"


def test_a_process_that_is_ready_ahead_measures_later_and_is_none_of_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(sessions, "_SAID", set())
    monkeypatch.setattr(sessions, "_ready", set())
    # What the driver says before and after the worker has its context: 17 was there.
    told = iter([{"GPU-fake": frozenset({17})}, {"GPU-fake": frozenset({17, 71, 72})}])
    monkeypatch.setattr(clocks, "computing", lambda: next(told))
    scripts: dict[str, dict[str, object]] = {"w": {"us": 50}}
    ahead = session(scripts)
    assert not ahead.wait_ahead(0.0)
    make_ready([ahead])
    # When it has its turn, 17 has left and 99 has come.
    ahead.request["computing"] = [[], [71, 72, 99]]
    note = "another process computes on this GPU: times are not its own, end it or wait"
    measured = ahead.run(["w"])["w"]
    assert measured.status == "ok" and measured.detail.endswith(note)
    assert capsys.readouterr().err == note + "\n"
    # A profiler's worker between two turns is none that was made ready: 72 waits, 99 computes.
    profiled = session(scripts)
    profiled.request["computing"] = [[72], [72, 80]]
    assert "on this GPU" not in profiled.run(["w"])["w"].detail
    profiled.request["computing"] = [[72, 99], [72, 99, 80]]
    assert profiled.run(["w"])["w"].detail.endswith(note)


def test_what_is_not_timed_is_done_side_by_side():
    scripts: dict[str, dict[str, object]] = {f"w{i}": {"us": 10 + i} for i in range(3)}
    scripts["w1"] = {"crashes": True}
    request = {"mode": "latency", "scripts": scripts, "limits": QUICK}
    seen: list[str] = []
    outcomes = side_by_side(request, list(scripts), 2, lambda one: seen.append(one.workload))
    statuses = {name: outcome.status for name, outcome in outcomes.items()}
    assert statuses == {"w0": "ok", "w1": "failed", "w2": "ok"}
    assert sorted(seen) == sorted(scripts)
    assert side_by_side(request, [], 2) == {}


def test_no_worker_outlives_a_stop(monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[str]] = []
    start = Session._start

    def remember(session: Session, *arguments: str) -> subprocess.Popen[str]:
        started.append(start(session, *arguments))
        return started[-1]

    monkeypatch.setattr(Session, "_start", remember)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})  # however many there are
    scripts: dict[str, dict[str, object]] = {f"w{i}": {"hangs": True} for i in range(4)}
    scripts["w0"] = {"us": 10}
    request = {"mode": "latency", "scripts": scripts, "limits": QUICK}

    seen: list[str] = []

    def came(outcome: Outcome) -> None:
        seen.append(outcome.workload)
        # Once: the next could come when nothing takes it any more, and end the tests themselves.
        if len(seen) == 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped), stopped_by_sigterm():
        side_by_side(request, list(scripts), 2, came)
    assert seen == ["w0"], "what was ended by the stop did not fail by itself"
    assert len(started) == 2
    assert all(process.poll() is not None for process in started)


def test_a_device_lost_again_and_again_ends_the_session():
    scripts: dict[str, dict[str, object]] = {f"w{i}": {"lost_at": 0} for i in range(5)}
    seen: list[str] = []
    outcomes = session(scripts).run(list(scripts), lambda outcome: seen.append(outcome.workload))
    assert seen == list(scripts)
    assert all(outcome.status == "device lost" for outcome in outcomes.values())
    assert outcomes["w4"].detail == (
        "not tried after DeviceLostError: the GPU has fallen off the bus"
    )


def test_who_hangs_or_dies_in_a_group_is_known_by_name_and_the_others_are_measured():
    checked, sampled = 1, 4  # calls: the first is checked, then all are timed
    groups: dict[str, dict[str, dict[str, object]]] = {
        "a": {"p": {"crashes": checked}, "q": {"crashes": sampled}, "r": {"crashes": checked}},
        "b": {"p": {"hangs": sampled}, "q": {"lost_at": 0}},
        "c": {"p": {"fails_at": 9}, "q": {"us": 20}},
    }
    scripts: dict[str, dict[str, object]] = {}
    for base, peers in groups.items():
        scripts[base] = {"us": 10}
        scripts |= {f"{base} @ {name}": script for name, script in peers.items()}
    request = {"mode": "beside", "scripts": scripts, "limits": QUICK}
    seen: list[str] = []
    twice = [*scripts, "c @ q"]
    outcomes = Session(request, seconds_each=2.0).run(
        twice, lambda outcome: seen.append(outcome.workload)
    )
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "a": "ok",
        "a @ p": "failed",
        "a @ q": "failed",
        "a @ r": "failed",
        "b": "ok",
        "b @ p": "hung",
        "b @ q": "device lost",
        "c": "ok",
        "c @ p": "failed",
        "c @ q": "ok",
    }
    assert sorted(seen) == sorted(scripts)
    assert outcomes["a @ q"].detail.startswith("the measuring process ended: ")
    assert outcomes["b @ p"].detail == "no answer within 2 s: ended"
    assert outcomes["c @ p"].detail == "GpuError: too many resources requested for launch"
    assert statistics.median(outcomes["c @ q"].samples["latency_cold"]) == pytest.approx(
        20, rel=0.02
    )


def test_processes_that_cannot_begin_are_not_started_for_every_row():
    request = {"mode": "beside", "scripts": {}, "limits": {"unknown": 1}}
    names = ["a", *(f"a @ {peer}" for peer in "pqrs")]
    outcomes = Session(request).run(names)
    assert all(outcome.status == "failed" for outcome in outcomes.values())
    started = [name for name in names if "not tried after" not in outcomes[name].detail]
    assert started == names[:3]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the worker")
def test_a_worker_ends_with_the_process_that_was_killed():
    """What hangs on the card would stand in the way of all that is measured after it."""
    code = (
        "from warpwatch.session.session import Session\n"
        "request = {'mode': 'latency', 'scripts': {'w': {'us': 9}, 'hangs': {'hangs': True}}}\n"
        "Session(request).run(['w', 'hangs'], lambda outcome: print(outcome.status, flush=True))"
    )
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert asking.stdout and asking.stdout.readline() == "ok\n"
    children = Path(f"/proc/{asking.pid}/task/{asking.pid}/children").read_text().split()
    assert len(children) == 1
    time.sleep(0.3)  # until the next one hangs
    asking.kill()
    asking.wait(timeout=60)
    asking.stdout.close()
    assert ends(children[0])


def test_an_outcome_survives_its_journey():
    sent = Outcome("w", "ok", "cold: drift", {"latency_cold": (1.0, 2.0)}, {"mhz": 1980})
    assert Outcome.from_json(sent.to_json()) == sent


@pytest.mark.parametrize(
    "text",
    [
        '{"workload": "w"}',
        '{"workload":"w","status":"fine","detail":"","samples":{},"evidence":{}}',
    ],
    ids=["fields-missing", "unknown-status"],
)
def test_a_line_that_is_no_outcome_is_refused(text: str):
    with pytest.raises(ValueError, match=r"expected an outcome|unknown status"):
        Outcome.from_json(text)


def test_what_is_compiled_ahead_is_called_once_in_forks_of_one_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Each fork notes its process and its workload; one of them dies at its first call."""

    class Noted:
        def __init__(self, name: str) -> None:
            self.name = name

    def call_once(workload: Noted) -> Outcome:
        if workload.name == "dies":
            os._exit(1)
        (tmp_path / workload.name).write_text(str(os.getpid()))
        return Outcome(workload.name, "ok")

    monkeypatch.setattr(measuring, "call_once", call_once)
    workloads: list[Any] = [Noted(name) for name in ("a", "dies", "c", "d", "not-reached")]
    found = {one.workload: one for one in measuring.call_each_once(workloads, 3)}
    assert {name: one.status for name, one in found.items()} == {
        **dict.fromkeys("acd", "ok"),
        **dict.fromkeys(("dies", "not-reached"), "failed"),
    }
    pids = {name: int((tmp_path / name).read_text()) for name in "acd"}
    assert pids["a"] == pids["d"] != pids["c"]
    assert os.getpid() not in pids.values()
    assert list(measuring.call_each_once([], 3)) == []

"""What is kept next to the results of a commit, who counted it, and what an ended run leaves."""

from __future__ import annotations

import gzip
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.instruments.scripted_commit import FAST, READ, SLOW, track
from warpwatch import project
from warpwatch.commands.measure import history
from warpwatch.config import isolation, sharding
from warpwatch.judge.evidence.lookup import Evidence
from warpwatch.session import commit, series_versions, session, utilization
from warpwatch.session.session import Session


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


def test_what_is_not_measured_again_keeps_its_evidence(
    scripted: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", "a" * 40, "t", ""))

    def kept() -> dict[str, Any]:
        (file,) = (tmp_path / "evidence").iterdir()
        timed = json.loads(gzip.decompress(file.read_bytes()))["timed"]
        return {one["workload"]: one for one in timed}

    scripted[FAST], scripted[SLOW] = {"us": 20}, {"us": 200}
    commit.measure([FAST, SLOW])
    before = kept()
    scripted[FAST] = {"us": 40}
    monkeypatch.setenv(sharding.ONLY_VARIABLE, FAST)
    assert set(commit.measure([FAST, SLOW])) == {FAST}
    now = kept()
    assert now[SLOW] == before[SLOW] and len(now) == 2
    fast = [float(np.median(one[FAST]["samples"]["latency_cold"])) for one in (before, now)]
    assert fast[1] > 1.5 * fast[0]
    monkeypatch.delenv(sharding.ONLY_VARIABLE)
    commit.measure([FAST])
    assert set(kept()) == {FAST}, "a whole run says all that was requested"


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

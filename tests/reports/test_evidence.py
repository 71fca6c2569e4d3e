"""Evidence beside result files: found by commit, compared, and refused where it is not what it
says."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from tests.reports import keeping
from tests.reports.test_fuzz import MUTANTS, SEED, mutants
from warpwatch.instruments.gpu.latency import Limits
from warpwatch.judge.evidence import measured as measured_evidence
from warpwatch.judge.evidence.lookup import Asked, Evidence
from warpwatch.judge.evidence.measured import Counted, Sampling

OLD, NEW = "a" * 40, "b" * 40
PLACE = ("attention", "sm_90")
FAST, SLOW = "  HGMMA R0\n  MUFU.EX2 R1\n", "  HMMA R0\n  HMMA R2\n  MUFU.EX2 R1\n"


def test_code_is_compared_by_commit_and_triton(tmp_path: Path) -> None:
    keeping.write_compiled(tmp_path, OLD, "3.7.1", {PLACE: [FAST]})
    keeping.write_compiled(tmp_path, NEW, "3.7.1", {PLACE: [SLOW]})
    keeping.write_compiled(tmp_path, NEW, "3.6.0", {PLACE: [FAST]})
    found = Evidence([tmp_path])
    ((kernel, diff),) = found.differences(OLD, NEW, "3.7.1", *PLACE)
    assert kernel == "_attention"
    assert "-  HGMMA R0\n+  HMMA R0\n+  HMMA R2\n   MUFU.EX2 R1" in diff
    assert found.differences(OLD, NEW, "3.6.0", *PLACE) == []  # never compiled there before
    assert found.launches(NEW, "3.7.1")[PLACE][0].instructions == {"tensor": 2, "special": 1}


def test_the_toolchain_is_known_as_far_as_it_was_kept(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    card = {"name": "H200", "driver": "580\x1b.1", "software": {"torch": "2.11", "x": 3}}
    keeping.write_asked(results, OLD, {"attention": "ok"}, card=card)
    keeping.write_asked(results, NEW, {"attention": "ok"}, card=["H200"])
    said = {"assembler": "ptxas\n12.8", "devices": {"sm_90": "NVIDIA H200", "sm_80": 7}}
    keeping.write_compiled(
        results, OLD, "3.7.1", {PLACE: [FAST]}, values={PLACE: {"bound_us": 2.5}}, **said
    )
    keeping.write_compiled(results, NEW, "3.7.1", {PLACE: [FAST]}, assembler=["ptxas"])
    found = Evidence([results])
    assert found.asked(OLD).toolchain == {"torch": "2.11", "card": "H200", "driver": "580 .1"}
    assert found.asked(NEW).toolchain == {}
    assert found.assembler(OLD, "3.7.1") == "ptxas 12.8"
    assert found.devices(OLD, "3.7.1") == {"sm_90": "NVIDIA H200"}
    assert found.values(OLD, "3.7.1")[PLACE] == {"bound_us": 2.5}
    assert (found.assembler(NEW, "3.7.1"), found.devices(NEW, "3.7.1")) == ("", {})
    assert found.rejected == []


def test_equal_code_is_known_as_such_on_all_targets_or_not_at_all(tmp_path: Path) -> None:
    other = ("attention", "gfx942")
    keeping.write_compiled(tmp_path, OLD, "3.7.1", {PLACE: [FAST], other: [FAST]})
    keeping.write_compiled(tmp_path, NEW, "3.7.1", {PLACE: [FAST], other: [SLOW]})
    keeping.write_compiled(tmp_path, "c" * 40, "3.7.1", {PLACE: [FAST], other: [FAST]})
    found = Evidence([tmp_path])
    assert found.same_code(OLD, NEW, "attention") is False
    assert found.same_code(OLD, "c" * 40, "attention") is True
    assert found.same_code(OLD, NEW, "matmul") is None
    assert found.same_code(OLD, "d" * 40, "attention") is None


def test_the_state_of_the_card_is_found_beside_the_results(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    keeping.write_card(results, OLD, "attention", mhz=1500.0, watts=690.0)
    state = Evidence([results]).states(OLD)["attention", "latency_cold"]
    assert (len(state.us), state.mhz[0], state.power_w[0]) == (9, 1500.0, 690.0)
    assert state.throttled == ("power cap",)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not gzip", "is not gzip"),
        (gzip.compress(b"{}")[:-9], "is cut short"),
        (gzip.compress(b"0" * 1_000_001), "unpacks to more than the limit"),
        (gzip.compress(b"[" * 100_000), "nested too deeply"),
        (gzip.compress(b'{"schema_version": 2}'), "expected evidence of schema 1, got 2"),
        (gzip.compress(b'{"schema_version": 1, "commit": "c"}'), "is not the evidence of commit"),
    ],
    ids=["other", "cut", "bomb", "deep", "newer", "foreign"],
)
def test_what_is_no_evidence_is_named_and_nothing_of_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, reason: str
) -> None:
    monkeypatch.setattr(measured_evidence, "MAX_BYTES", 1_000_000)
    results = tmp_path / "results"
    results.mkdir()
    path = keeping.write_card(results, OLD, "attention", 1.0, 1.0)
    path.write_bytes(content)
    found = Evidence([results])
    assert found.states(OLD) == {}
    (rejected,) = found.rejected
    assert f"{path.parent.name}/{path.name}" in rejected
    assert reason in rejected


def test_what_gave_the_counters_is_known_where_it_was_kept(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    keeping.write_asked(results, OLD, {"attention": "ok"})
    told = {"tier": "gpm", "why": "ERR_NVGPUCTRPERM:\n\x1b[31m the remedy"}
    keeping.write_asked(results, NEW, {"attention": "ok"}, counters=told, card={"name": "H200"})
    found = Evidence([results])
    assert found.asked(OLD).counted is None
    assert found.asked(OLD).statuses == {"attention": "ok"}
    counted = found.asked(NEW).counted
    assert counted == Counted("gpm", "ERR_NVGPUCTRPERM: [31m the remedy", "H200")
    assert counted.said.startswith("from the driver's sampling (gpm), not from hardware counters: ")


@pytest.mark.parametrize(
    ("counters", "reason"),
    [
        ("gpm", "counters: expected an object, got 'gpm'"),
        ({}, "counters.tier: is missing"),
        ({"tier": "<b>"}, "counters.tier: expected 1 to 40 of a to z, 0 to 9 and -, got '<b>'"),
        ({"tier": ["gpm"]}, "counters.tier: expected 1 to 40"),
        ({"tier": "gpm", "why": 3}, "counters.why: expected text of at most 2000 characters"),
        ({"tier": "gpm", "why": "x" * 2001}, "counters.why: expected text of at most 2000"),
    ],
)
def test_odd_words_on_counters_are_refused_by_name(
    tmp_path: Path, counters: object, reason: str
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    keeping.write_asked(results, OLD, {"attention": "ok"}, counters=counters)
    found = Evidence([results])
    assert found.asked(OLD) == Asked()
    (rejected,) = found.rejected
    assert reason in rejected


def test_what_speaks_against_a_latency_is_known(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    said = {
        "notes": ["two modes, 9 and 12 us", "the samples\x1b[31m drift"],
        "unstable": True,
        "timed_out": False,
        "throttled": "power cap",
        "set_apart": [{"us": 9.0}, {"us": 8.0}],
        "interval_us": [103.0, 105.5],
    }
    detail = "cold: two modes, 9 and 12 us; another process computes on this GPU"
    keeping.write_card(results, OLD, "attention", 1.0, 1.0, detail, **said)
    keeping.write_card(results, NEW, "attention", 1.0, 1.0)
    found = Evidence([results])
    sampling = found.states(OLD)["attention", "latency_cold"].sampling
    assert (sampling.samples, sampling.set_apart, sampling.unstable) == (9, 2, True)
    assert sampling.said == (
        "unstable: two modes, 9 and 12 us; the samples [31m drift; known to ±1.20 %; "
        "throttled: power cap; 2 of 11 samples set apart; another process computes on this GPU"
    )
    assert found.states(NEW)["attention", "latency_cold"].sampling == Sampling(samples=9)
    assert Sampling(samples=9).said == ""
    assert not Sampling(known_to_percent=0.4).wide
    assert 100 * Limits().target == measured_evidence.AIMED_AT_PERCENT


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"notes": "<b>"}, "'attention' 'latency_cold': notes: expected at most 20 texts, got "),
        ({"notes": ["x"] * 21}, "notes: expected at most 20 texts, got ['x', 'x'"),
        ({"notes": ["x" * 2001]}, "notes: expected at most 20 texts"),
        ({"notes": [["x"]]}, "notes: expected at most 20 texts"),
        ({"unstable": 1}, "unstable: expected true or false, got 1"),
        ({"timed_out": "no"}, "timed_out: expected true or false, got 'no'"),
        ({"throttled": ["power cap"]}, "throttled: expected text of at most 2000 characters"),
        ({"set_apart": 3}, "set_apart: expected a list, got 3"),
        ({"interval_us": [2, 1]}, "interval_us: expected two times in us, the lower first, got [2"),
        ({"interval_us": [1, "2"]}, "interval_us: expected two times in us, the lower first"),
    ],
)
def test_odd_words_against_a_latency_are_refused_by_name(
    tmp_path: Path, said: dict[str, object], reason: str
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    path = keeping.write_card(results, OLD, "attention", 1.0, 1.0, **said)
    found = Evidence([results])
    assert (found.states(OLD), found.asked(OLD)) == ({}, Asked())
    (rejected,) = found.rejected
    assert rejected.startswith(f"results/evidence/{path.name}") and reason in rejected


def test_odd_values_are_left_out(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    path = keeping.write_card(results, OLD, "attention", 1.0, 1.0)
    document = json.loads(gzip.decompress(path.read_bytes()))
    summary = document["timed"][0]["evidence"]["latency_cold"]
    summary["samples"] = [{"us": "<b>"}, 7, {"us": 1e999, "clocks": 3}, {"us": 5}, {"us": True}]
    document["timed"] += [None, {"workload": 3, "evidence": {}}, {"workload": "x", "evidence": []}]
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    states = Evidence([results]).states(OLD)
    assert list(states) == [("attention", "latency_cold")]
    assert states["attention", "latency_cold"].us == (5.0,)


def test_no_mutant_of_a_cards_state_does_more_than_be_refused(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    path = keeping.write_card(
        results, OLD, "attention", 1500.0, 690.0, "said", notes=["a"], unstable=True, set_apart=[]
    )
    document = json.loads(gzip.decompress(path.read_bytes()))
    taken = 0
    for mutant in mutants(document, MUTANTS // 2, SEED):
        path.write_bytes(gzip.compress(mutant, compresslevel=1))
        found = Evidence([results])
        for state in found.states(OLD).values():
            taken += 1
            numbers = (*state.us, *state.mhz, *state.power_w, *state.temperature_c)
            assert all(map(math.isfinite, numbers))
        assert all(f"{path.parent.name}/{path.name}" in reason for reason in found.rejected)
    assert taken > MUTANTS // 20

"""Processes that stay and are visited in turn, on a software GPU; what one has ready, on a CPU."""

from __future__ import annotations

import itertools
import math
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from warpwatch.compare import paired_runs
from warpwatch.instruments.gpu import measuring, staying
from warpwatch.instruments.gpu.card.software import FakeGpu, Script
from warpwatch.instruments.gpu.latency import Limits
from warpwatch.instruments.gpu.staying import Staying
from warpwatch.instruments.outcome import Outcome
from warpwatch.judge.model import thresholds
from warpwatch.judge.pairs.plan import Plan
from warpwatch.session import residents, versions
from warpwatch.session.residents import Residents, most_together, wants_more
from warpwatch.session.session import Session

TURNS = [("base", "head"), ("head", "base")]


class Software(Residents):
    """Real worker processes over scripted workloads, others for each side."""

    def __init__(self, scripts: Mapping[str, Mapping[str, Any]], **options: Any) -> None:
        super().__init__({}, **options)
        self._wrong = {side: {} for side in scripts}
        self.scripts = scripts
        self.sessions: list[Session] = []
        self.order: list[tuple[int, tuple[str, ...]]] = []

    def _session(self, side: str, card: str) -> Session:
        request = {"mode": "staying", "scripts": self.scripts[side]}
        self.sessions.append(Session(request, seconds_each=20.0, stays=True))
        return self.sessions[-1]

    def _visit(self, session: Session, steps: Any, names: Sequence[str]) -> Mapping[str, Outcome]:
        self.order.append((self.sessions.index(session), tuple(steps)))
        return super()._visit(session, steps, names)


def test_every_process_is_visited_in_each_round_and_the_second_one_goes_backwards() -> None:
    scripts = {"base": {"w": {"us": 100.0}}, "head": {"w": {"us": 110.0}}}
    staying = Software(scripts)
    pairs = staying.measure(TURNS, ["w"])
    timed = [one for one, steps in staying.order if steps == ("time",)]
    assert timed[:8] == [0, 1, 2, 3, 3, 2, 1, 0]
    for pair in pairs:
        times = {side: pair[side]["w"].samples["latency_cold"] for side in ("base", "head")}
        assert len(times["base"]) == len(times["head"]) >= residents.ROUNDS
        ratio = statistics.median(times["head"]) / statistics.median(times["base"])
        assert ratio == pytest.approx(1.1, abs=0.02)


class TwoCards(Software):
    """The second card is a tenth slower; keeps where each process is, and when it was timed."""

    def __init__(self, scripts: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(scripts, cards=("0", "1"))
        self.cards_of: list[str] = []
        self.timed: list[tuple[str, float, float]] = []

    def _session(self, side: str, card: str) -> Session:
        session = super()._session(side, card)
        slower = 1.1 if card == "1" else 1.0
        session.request["scripts"] = {
            name: {**script, "us": script["us"] * slower}
            for name, script in self.scripts[side].items()
        }
        self.cards_of.append(card)
        return session

    def _visit(self, session: Session, steps: Any, names: Sequence[str]) -> Mapping[str, Outcome]:
        began = time.monotonic()
        found = super()._visit(session, steps, names)
        if steps == ("time",):
            card = self.cards_of[self.sessions.index(session)]
            self.timed.append((card, began, time.monotonic()))
        return found


def test_pairs_are_spread_over_cards_that_are_visited_at_the_same_time() -> None:
    scripts = {"base": {"w": {"us": 100.0}}, "head": {"w": {"us": 105.0}}}
    staying = TwoCards(scripts)
    for turns in (TURNS[:1], TURNS[:1] * 3):  # the second batch goes on with the second card
        for pair in staying.measure(turns, ["w"]):
            base, head = (pair[side]["w"].samples["latency_cold"] for side in ("base", "head"))
            assert statistics.median(head) / statistics.median(base) == pytest.approx(
                1.05, abs=0.01
            )
    assert staying.cards_of == ["0", "0", "1", "1", "0", "0", "1", "1"]
    spans = {card: [one[1:] for one in staying.timed if one[0] == card] for card in "01"}
    for own in spans.values():  # never two at a time on one card
        ordered = sorted(own)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(ordered))
    assert any(a < d and c < b for a, b in spans["0"] for c, d in spans["1"])
    assert residents.apart(staying.base_times) == pytest.approx(
        {"0": -0.0465, "1": 0.0488}, abs=4e-3
    )


def test_how_far_cards_are_apart_needs_two_that_measured_the_same() -> None:
    assert residents.apart({"0": {"w": [100.0]}}) == {}
    assert residents.apart({"0": {"w": [100.0]}, "1": {}}) == {}
    assert residents.apart({"0": {"w": [100.0]}, "1": {"v": [100.0]}}) == {}


def test_both_orders_come_equally_often_on_each_card() -> None:
    for seed in range(20):
        firsts = list(versions.order(24, seed, cards=3))
        for card in range(3):
            mine = firsts[card::3]
            assert sum(mine) == 4
            assert all(sum(mine[i : i + 4]) == 2 for i in (0, 4))


class Watched(Software):
    """Keeps the numbers of the processes that answered."""

    def __init__(self, scripts: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__(scripts)
        self.answered: list[int] = []

    def _visit(self, session: Session, steps: Any, names: Sequence[str]) -> Mapping[str, Outcome]:
        found = super()._visit(session, steps, names)
        if names:  # else there are more processes than workloads to make ready
            assert session._staying is not None
            self.answered.append(session._staying.process.pid)
        return found


def test_a_process_answers_every_visit_and_none_outlives_the_batch() -> None:
    staying = Watched({"base": {"w": {"us": 100.0}}, "head": {"w": {"us": 100.0}}})
    staying.measure(TURNS, ["w"])
    assert len(set(staying.answered)) == 4
    assert len(staying.answered) >= 4 * 3
    assert all(one._staying is None and one._ahead is None for one in staying.sessions)


def test_no_round_begins_once_the_time_is_up_and_answers_are_checked_still() -> None:
    scripts = {"base": {"w": {"us": 100.0}}, "head": {"w": {"us": 100.0}}}
    for over in ({"ends": -math.inf}, {"stop": threading.Event()}):
        if "stop" in over:
            over["stop"].set()
        staying = Software(scripts, counters=True, **over)
        (pair,) = staying.measure(TURNS[:1], ["w"])
        assert len(pair["head"]["w"].samples["latency_cold"]) == 1
        steps = [taken for _, taken in staying.order]
        assert ("check", "again") in steps
        assert ("count",) not in steps


def test_a_call_that_fails_is_the_outcome_of_its_pair_and_others_are_measured() -> None:
    broken = {"fine": {"us": 100.0}, "broken": {"us": 100.0, "fails_at": 0}}
    staying = Software({"base": {**broken, "broken": {"us": 100.0}}, "head": broken})
    duel = paired_runs.Duel("latency", staying.measure, Plan(), 120.0, together=2)
    judged = paired_runs.fight(duel, ["fine", "broken"], thresholds.load(), lambda _: None)
    found = {one.subject: one.judgement for one in judged if one.metric == "latency_cold"}
    assert found["fine"].verdict == "unchanged"
    assert found["broken"].verdict == "missing"
    assert "head: failed" in found["broken"].reason


def test_a_worker_that_dies_is_replaced() -> None:
    session = Session(
        {"mode": "staying", "steps": ["time"], "scripts": {"w": {"us": 100.0}}}, stays=True
    )
    try:
        assert session.run(["w"])["w"].status == "ok"
        assert session._staying is not None
        first = session._staying.process
        first.kill()
        first.wait(10)
        assert "the measuring process ended" in session.run(["w"])["w"].detail
        assert session.run(["w"])["w"].status == "ok"
    finally:
        session.discard()
    assert first.poll() is not None


def visits(rows: Sequence[Sequence[float]]) -> list[dict[str, list[dict[str, Outcome]]]]:
    """Of pairs whose base takes 100 us at each visit, and whose head takes those of a row."""

    def outcome(us: float) -> dict[str, Outcome]:
        return {"w": Outcome("w", "ok", "", {"latency_cold": (us,)})}

    return [
        {"base": [outcome(100.0) for _ in row], "head": list(map(outcome, row))} for row in rows
    ]


def test_visits_are_repeated_while_they_differ_more_than_processes() -> None:
    of_visits = visits([(101.0, 99.0), (99.0, 101.0), (101.5, 98.7)])
    of_processes = visits([(101.0, 101.1), (99.0, 99.1), (103.0, 103.1)])
    assert wants_more(of_visits, "w")
    assert not wants_more(of_processes, "w")
    assert not wants_more(of_visits[:1], "w")
    assert not wants_more(of_visits, "another")


def test_no_more_processes_start_than_the_machine_holds() -> None:
    assert most_together(cores=2, memory=8 << 30) == 2
    assert most_together(cores=128, memory=140 << 30) == 8
    assert most_together(cores=128, memory=40 << 30) == 5
    assert most_together(cores=128, memory=140 << 30, cards=4) == 32
    assert most_together(cores=32, memory=140 << 30, cards=4) == 16


class Doubled:
    """A workload whose call is right until ``wrong`` is set."""

    name, kernel, dtype, needs = "doubled", "double", "fp32", ()
    has_reference = True
    flops, bytes_moved = 1.0, 1.0

    def __init__(self) -> None:
        self.made = self.calls = 0
        self.wrong = False

    def inputs(self, device: str, seed: int = 0) -> dict[str, Any]:
        self.made += 1
        return {"x": torch.arange(8.0, device=device) + seed}

    def call(self, inputs: Mapping[str, Any]) -> torch.Tensor:
        self.calls += 1
        return inputs["x"] * (3.0 if self.wrong else 2.0)

    def reference(self, inputs: Mapping[str, Any], dtype: str) -> torch.Tensor:
        return inputs["x"].double() * 2.0


@pytest.fixture
def doubled(monkeypatch: pytest.MonkeyPatch) -> Doubled:
    monkeypatch.setattr(measuring, "missing", lambda _: None)
    return Doubled()


def test_inputs_are_made_once_and_serve_every_visit(doubled: Doubled) -> None:
    counted: list[str] = []

    class Count:
        def __call__(self, call: Any) -> Outcome:
            counted.append("yes")
            call()
            return Outcome("", "ok", "", {"sm_cycles": (5.0,)})

        def close(self) -> None:
            counted.append("closed")

    kept = Staying(FakeGpu(), "cpu", Count())
    limits = Limits()
    assert kept.take(doubled, ("ready",), limits).samples == {}  # type: ignore[arg-type]
    assert (doubled.made, doubled.calls) == (1, 1)
    for _ in range(2):
        timed = kept.take(doubled, ("time",), limits)  # type: ignore[arg-type]
        assert len(timed.samples["latency_cold"]) >= limits.min_samples
    assert doubled.made == 1
    checked = kept.take(doubled, ("check", "again", "count"), limits)  # type: ignore[arg-type]
    assert checked.samples["relative_error"] == (0.0, 0.0)
    assert checked.samples["sm_cycles"] == (5.0,)
    kept.rest()
    assert counted == ["yes", "closed"]
    assert doubled.made == 2  # fresh ones, of another seed


@pytest.mark.parametrize(("us", "copies"), [(10.0, staying.COPIES), (100.0, 1)])
def test_cycles_of_a_short_call_are_counted_on_copies_of_its_inputs(
    doubled: Doubled, us: float, copies: int
) -> None:
    kept_alive: list[Any] = []

    class Count:
        def __call__(self, call: Any) -> Outcome:
            kept_alive.append(call)
            return Outcome("", "ok", "", {"kernel_cycles": (1000.0 * len(kept_alive),)})

        def close(self) -> None: ...

    kept = Staying(FakeGpu(Script(us=us, mhz=2000.0)), "cpu", Count())
    workload: Any = doubled  # stands in for a workload, whose class it does not have
    kept.take(workload, ("ready", "time"), Limits())
    samples = kept.take(workload, ("count",), Limits()).samples
    assert samples["kernel_cycles"] == tuple(1000.0 * n for n in range(1, copies + 1))
    assert doubled.made == len(set(map(id, kept_alive))) == copies
    # What is left of the time, at its clock.
    assert samples["off_kernel_us"][0] == pytest.approx(us - 0.5, rel=0.02)


def test_a_wrong_answer_is_the_outcome_and_inputs_are_made_anew(doubled: Doubled) -> None:
    kept = Staying(FakeGpu(), "cpu")
    kept.take(doubled, ("ready",), Limits())  # type: ignore[arg-type]
    doubled.wrong = True
    outcome = kept.take(doubled, ("time", "check"), Limits())  # type: ignore[arg-type]
    assert outcome.status == "wrong answer"
    assert not outcome.samples
    doubled.wrong = False
    again = kept.take(doubled, ("check",), Limits())  # type: ignore[arg-type]
    assert again.status == "ok"
    assert doubled.made == 2
    assert math.isfinite(again.samples["relative_error"][0])


def test_a_wrong_answer_of_the_first_pair_leaves_no_pair_a_time() -> None:
    class Wrong(Software):
        def _visit(self, session: Session, steps: Any, names: Sequence[str]) -> Any:
            found = super()._visit(session, steps, names)
            if "check" in steps and session.request["scripts"] is self.scripts["head"]:
                return {"w": Outcome("w", "wrong answer", "off by one")}
            return found

    staying = Wrong({"base": {"w": {"us": 100.0}}, "head": {"w": {"us": 100.0}}})
    pairs = staying.measure(TURNS, ["w"])
    assert [pair["head"]["w"].status for pair in pairs] == ["wrong answer"] * 2
    assert [pair["base"]["w"].status for pair in pairs] == ["ok"] * 2

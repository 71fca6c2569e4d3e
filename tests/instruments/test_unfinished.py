"""What is kept of an unfinished measurement, and what of it counts when it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from warpwatch.config import isolation
from warpwatch.devices import Ceilings
from warpwatch.instruments.outcome import Outcome
from warpwatch.session.session import Report, Session
from warpwatch.session.unfinished import Unfinished

METHODS = {"latency": "latency-1"}


class Stub:
    """A session whose workloads end as told; it says which were measured."""

    def __init__(self, statuses: dict[str, Any], card: str = "H200", ends_after: int = 99) -> None:
        self.statuses, self.card, self.ends_after = statuses, {"name": card}, ends_after
        self.asked: list[str] = []
        self.ceilings: Ceilings | None = None

    def run(self, names: Sequence[str], report: Report) -> dict[str, Outcome]:
        found = {}
        for name in names:
            if len(self.asked) == self.ends_after:
                raise KeyboardInterrupt
            self.asked.append(name)
            found[name] = Outcome(name, self.statuses[name], samples={"us": (1.0,)})
            report(found[name])
        return found


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(isolation.RESULTS_VARIABLE, str(tmp_path))
    at_commit(monkeypatch, "a" * 40)
    return tmp_path / "evidence"


def at_commit(monkeypatch: pytest.MonkeyPatch, commit: str, tree: str = "t") -> None:
    monkeypatch.setattr(isolation, "measured", lambda: isolation.Measured("k", commit, tree, ""))


def measured(stub: Stub, names: str, methods: dict[str, str] = METHODS) -> str:
    """The names ``stub`` was asked for."""
    found = Unfinished(methods).run(cast(Session, stub), list(names), lambda _: None)
    assert list(found) == list(names)
    return "".join(stub.asked)


STATUSES = {"a": "ok", "b": "hung", "c": "device lost", "d": "failed", "e": "ok"}


def ended(statuses: dict[str, Any], after: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        measured(Stub(statuses, ends_after=after), "abcde")


def test_only_what_was_settled_is_not_measured_again(folder: Path):
    ended(STATUSES, 4)
    assert measured(Stub(STATUSES), "abcde") == "cde"
    assert measured(Stub(STATUSES), "abe") == "e", "one tells the card"


def test_another_card_measures_all_again(folder: Path):
    ended(STATUSES, 2)
    assert measured(Stub(STATUSES, card="A100"), "abcde") == "cdeab"
    assert measured(Stub(STATUSES, card="A100"), "abcde") == "cd"


def test_what_goes_on_takes_shares_of_the_ceilings_there_were(folder: Path):
    first = Stub(STATUSES, ends_after=2)
    unfinished = Unfinished(METHODS)

    def report(_: object) -> None:
        # A session has them when its worker says what card it is on.
        first.ceilings = Ceilings("H200", bandwidth_gbps=5000.0)

    with pytest.raises(KeyboardInterrupt):
        unfinished.run(cast(Session, first), list("abcde"), report)
    again = Stub(STATUSES)
    assert measured(again, "abcde") == "cde"
    assert again.ceilings == first.ceilings is not None
    other = Stub(STATUSES, card="A100")
    assert measured(other, "abcde") == "cdabe" and other.ceilings is None


@pytest.mark.parametrize("what", ["commit", "tree", "method", "torn header"])
def test_what_is_kept_of_something_else_does_not_count(
    folder: Path, monkeypatch: pytest.MonkeyPatch, what: str
):
    ended(STATUSES, 2)
    (file,) = folder.iterdir()
    if what == "commit":
        at_commit(monkeypatch, "a" * 12 + "b" * 28)
    elif what == "tree":
        at_commit(monkeypatch, "a" * 40, "other")
    elif what == "torn header":
        file.write_text(file.read_text()[:20])
    methods = {"latency": "latency-2"} if what == "method" else METHODS
    assert measured(Stub(STATUSES), "abcde", methods) == "abcde"


def test_a_line_that_was_being_written_is_cut_off(folder: Path):
    ended(STATUSES, 2)
    (file,) = folder.iterdir()
    file.write_text(file.read_text()[:-9])
    assert measured(Stub(STATUSES), "abcde") == "bcde"
    assert measured(Stub(STATUSES), "abcde") == "cd"
    unfinished = Unfinished(METHODS)
    unfinished.finish()
    unfinished.finish()
    assert not list(folder.iterdir())


@pytest.mark.parametrize("where", ["outside asv", "working tree"])
def test_nothing_is_kept_of_what_has_no_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str
):
    if where == "working tree":
        at_commit(monkeypatch, "working tree", "working tree")
    else:
        monkeypatch.delenv(isolation.RESULTS_VARIABLE)
    ended(STATUSES, 2)
    assert not folder.exists()
    assert measured(Stub(STATUSES), "abcde") == "abcde"

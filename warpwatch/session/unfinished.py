"""What is measured of a commit so far, on disk: a run that was ended goes on where it stood.

A line an outcome, beside the evidence, removed when that is written. Only what was settled counts
(a hang is, a lost device is not), by the same methods, of the same package, on the same card.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpwatch.config import isolation
from warpwatch.devices import Ceilings
from warpwatch.instruments.gpu import evidence
from warpwatch.instruments.outcome import Outcome

from .session import Report, Session

_SETTLED = ("ok", "not applicable", "wrong answer", "hung")


class Unfinished:
    """The outcomes kept of the commit this process measures; none outside asv, and none of a
    working tree, which changes under its name. ``methods`` are those it is measured by."""

    def __init__(self, methods: Mapping[str, str]) -> None:
        measured, where = isolation.measured(), evidence.folder()
        self._file: Path | None = None
        self._card: Any = None
        self._ceilings: Ceilings | None = None
        self._outcomes: dict[str, Outcome] = {}
        if measured is None or where is None or " " in measured.commit:
            return
        self._file = where / f"gpu-{measured.commit[:12]}.unfinished"
        self._key = {"commit": measured.commit, "tree": measured.tree, "methods": dict(methods)}
        self._read(self._file)

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        whole = text[: text.rfind("\n") + 1]  # the last line may have been in the writing
        key, *rows = whole.splitlines() or [""]
        if key != json.dumps(self._key):
            file.unlink()
            return
        file.write_text(whole, encoding="utf-8")
        lines = [json.loads(row) for row in rows]
        self._card = lines[-1]["card"] if lines else None
        if lines and "ceilings" in lines[-1]:
            self._ceilings = Ceilings.from_json(lines[-1]["ceilings"])
        for line in lines:
            outcome = Outcome.from_json(line["outcome"])
            if line["card"] == self._card and outcome.status in _SETTLED:
                self._outcomes[outcome.workload] = outcome

    def missing(self, names: Sequence[str]) -> list[str]:
        """Those of ``names`` that nothing is kept of."""
        return [name for name in names if name not in self._outcomes]

    def run(self, session: Session, names: Sequence[str], report: Report) -> dict[str, Outcome]:
        """As ``session.run``, with what is kept of ``names`` and keeping what comes."""

        def came(outcome: Outcome) -> None:
            self._keep(outcome, session)
            report(outcome)

        session.ceilings = self._ceilings  # what is kept has shares of these
        known = {name: self._outcomes[name] for name in names if name in self._outcomes}
        # At least one is measured: it tells which card this is.
        left = self.missing(names) or list(names[-1:])
        found = session.run(left, came)
        if session.card != self._card:
            found |= session.run([name for name in known if name not in found], came)
        session.ceilings = _of_its_card(session)
        together = known | found
        return {name: together[name] for name in names}

    def _keep(self, outcome: Outcome, session: Session) -> None:
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            if not file.tell():
                file.write(json.dumps(self._key) + "\n")
            line = {"card": session.card, "outcome": outcome.to_json()}
            if (ceilings := _of_its_card(session)) is not None:
                line["ceilings"] = ceilings.to_json()
            file.write(json.dumps(line) + "\n")

    def finish(self) -> None:
        """Nothing is left to do: the evidence holds it all."""
        if self._file is not None:
            self._file.unlink(missing_ok=True)


def _of_its_card(session: Session) -> Ceilings | None:
    """None where those it was given are of another card, and its own has a datasheet."""
    found, card = session.ceilings, session.card
    return None if found is not None and card and card["name"] != found.card else found

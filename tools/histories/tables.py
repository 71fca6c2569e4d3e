"""What people know of the histories: regressions that maintainers confirmed, and labels of asv's.

A regression is a series and a commit. ``confirmed.csv`` holds those that maintainers confirmed in
an issue or a pull request, with its address. ``listed.csv`` holds what ``asv publish`` lists in
three of the histories, with a person's label. Both were written before the judge first ran on them.
A miss stays in.
"""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from warpwatch.judge.model.benchmark import unquoted

HERE = Path(__file__).parent
Label = Literal["regression", "unclear", "no"]
_HASH = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Known:
    """A regression: the series, and either the guilty commit or the commits that it lies between.

    ``guilty`` may be the merge that brought it. ``before`` is the last commit at the old level, and
    ``after`` the first one at the new level.
    """

    history: str
    benchmark: str
    params: tuple[str, ...]
    guilty: str = ""
    before: str = ""
    after: str = ""
    source: str = ""
    label: Label = "regression"
    reason: str = ""

    @property
    def name(self) -> str:
        """As asv writes it."""
        return f"{self.benchmark}({', '.join(self.params)})" if self.params else self.benchmark


def confirmed(path: Path = HERE / "confirmed.csv") -> list[Known]:
    """The regressions that maintainers confirmed; ``ValueError`` for a row that is malformed."""
    return [
        Known(**_series(row), guilty=_commit(row["guilty"]), source=_address(row["source"]))
        for row in _rows(path)
    ]


def listed(path: Path = HERE / "listed.csv") -> list[Known]:
    """What asv lists, with a person's label; ``ValueError`` for a row that is malformed."""
    return [
        Known(
            **_series(row),
            before=_commit(row["last_before"]),
            after=_commit(row["first_after"]),
            label=_label(row["label"], row["reason"]),
            reason=row["reason"],
        )
        for row in _rows(path)
    ]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _series(row: dict[str, str]) -> dict[str, Any]:
    params = json.loads(row["params"])
    if not isinstance(params, list) or not all(isinstance(one, str) for one in params):
        raise ValueError(f"params: expected a list of texts, got {row['params']}")
    plain = tuple(map(unquoted, params))  # as the judge reads them
    return {"history": row["history"], "benchmark": row["benchmark"], "params": plain}


def _commit(text: str) -> str:
    if not _HASH.fullmatch(text):
        raise ValueError(f"expected a whole commit hash, got {text!r}")
    return text


def _address(text: str) -> str:
    if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", text):
        raise ValueError(f"expected the address of an issue or a pull request, got {text!r}")
    return text


def _label(text: str, reason: str) -> Label:
    for label in get_args(Label):
        if text == label and (label == "regression" or reason):
            found: Label = label
            return found
    raise ValueError(f"expected regression, or unclear or no with a reason, got {text!r}")

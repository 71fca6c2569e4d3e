"""Which series share a page, and the address of each: a benchmark's of one workload in one home.

Ten thousand pages take longer to write than what is on them takes to draw, and parameters of one
benchmark are looked at beside each other anyway.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from warpwatch.judge.model.core import SeriesKey
from warpwatch.judge.results.history import Table

MOST_SECTIONS = 32


@dataclass(frozen=True)
class SeriesPage:
    """One page: some rows of one table, in its order. A series alone needs no anchor."""

    path: str
    table: Table
    rows: tuple[int, ...]

    @property
    def anchors(self) -> list[str]:
        if len(self.rows) == 1:
            return [""]
        return [_anchor(self.table.series[row].key.params) for row in self.rows]


class Addresses:
    """The pages of all series of a history."""

    def __init__(self, tables: Iterable[Table]):
        self.pages = tuple(page for table in tables for page in _pages(table))

    @cached_property
    def _of(self) -> dict[SeriesKey, str]:
        return {
            page.table.series[row].key: f"{page.path}#{anchor}" if anchor else page.path
            for page in self.pages
            for row, anchor in zip(page.rows, page.anchors, strict=True)
        }

    def of(self, key: SeriesKey) -> str:
        """Where a series is shown, from the site's folder."""
        return self._of[key]


@lru_cache(maxsize=4096)
def _anchor(params: tuple[str, ...]) -> str:
    """Many benchmarks have the same parameters."""
    return "s" + digest(json.dumps(params), 5)


def _pages(table: Table) -> Iterable[SeriesPage]:
    groups: dict[tuple[str, str], list[int]] = {}
    for row, info in enumerate(table.series):
        groups.setdefault((info.key.benchmark, info.workload), []).append(row)
    for names, rows in groups.items():
        for start in range(0, len(rows), MOST_SECTIONS):
            identity = json.dumps([table.machine, table.environment, *names, start])
            part = tuple(rows[start : start + MOST_SECTIONS])
            yield SeriesPage(f"s/{digest(identity, 6)}.html", table, part)


def digest(text: str, size: int) -> str:
    """Addresses are hashes: no name, of any origin, can collide or leave the site's folder."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def short_address(path: str) -> str:
    """Without what all addresses of series share."""
    return path.removeprefix("s/").replace(".html", "")


def history_file(path: str) -> str:
    """The name of the script that holds the histories of a page's series, and of others: few
    enough that a page opens at once, and the same whatever series come and go."""
    return f"h{short_address(path)[:2]}"


def finding_path(identity: str) -> str:
    return f"f/{digest(identity, 6)}.html"

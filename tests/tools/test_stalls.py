"""Counters of ours and of a peer stand in one table, by launch."""

from __future__ import annotations

import csv
import io

import pytest

from tests.instruments.test_counters import RECORDED
from tools.kernels.speed import stalls

NAMES = ("matmul", "attention", "matmul @ cublas", "attention @ torch-cudnn")


def recorded() -> list[list[stalls.Launch]]:
    """One call of each of the recorded log's three."""
    return stalls.launches(RECORDED.read_text(encoding="utf-8"))[::3]


def test_each_call_has_its_launches_and_their_counters() -> None:
    printed = list(stalls.table(NAMES, recorded()))
    assert [line.split(":")[0] for line in printed[:4]] == [
        f"({n}) {name}" for n, name in enumerate(NAMES, 1)
    ]
    (time,) = (line for line in printed if line.startswith("time, us"))
    times = [own[0]["gpu__time_duration.sum"] for own in recorded()]
    wanted = [float(one.replace(",", "")) / 1e3 for one in times]
    cells = time.replace(",", "").split()[2:]
    assert [float(cell) for cell in cells] == pytest.approx(wanted, abs=0.06)
    assert not any("waited" in line for line in printed)


def test_stalls_are_clocks_and_the_longest_come_first() -> None:
    long, short = (f"{stalls.STALL[0]}{one}{stalls.STALL[1]}" for one in ("barrier", "wait"))
    launch = recorded()[0][0] | {"smsp__issue_active.avg": "2,000,000", long: "1.5", short: "0.25"}
    other = launch | {long: "0.5", short: "n/a"}
    assert stalls.stalls(launch) == {"barrier": 3000.0, "wait": 500.0}
    printed = list(stalls.table(["ours", "theirs"], [[launch], [other]]))
    assert [line.split() for line in printed[-2:]] == [
        ["barrier", "3,000.0", "1,000.0"],
        ["wait", "500.0"],
    ]


def test_launches_around_a_call_that_take_little_are_left_out() -> None:
    (launch,) = recorded()[0]
    small = launch | {"gpu__time_duration.sum": "1", "Kernel Name": "small"}
    assert not any("small" in line for line in stalls.table(["ours"], [[launch, small]]))
    even = launch | {"Kernel Name": "even"}
    assert any("(2) ours: even" in line for line in stalls.table(["ours"], [[launch, even]]))


def test_a_log_of_other_calls_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 2 calls in the log, got 4"):
        list(stalls.table(NAMES[:2], recorded()))


def test_what_precedes_the_first_mark_is_nobodys() -> None:
    text = RECORDED.read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO("\n".join(_table(text)))))
    first = next(row for row in rows[2:] if stalls.marks.KERNEL not in row[rows[0].index(KERNEL)])
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([*rows[:2], first, *rows[2:]])
    assert stalls.launches(written.getvalue()) == stalls.launches(text)
    assert stalls.value({"a": "1,024.5"}, "a") == 1024.5
    assert stalls.value({"a": "n/a"}, "a") is None


KERNEL = "Kernel Name"


def _table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith('"')]

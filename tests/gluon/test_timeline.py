"""A timeline shows who waits for whom."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.gluon.test_simulate import FILE, command
from warpwatch.simulator.errors import NOWHERE
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.timeline.log import COPY, Log

SVG = "{http://www.w3.org/2000/svg}"


def test_who_waits_goes_on_when_the_copy_has_come() -> None:
    program = Program((0, 0, 0), (1, 1, 1), 4, seed=0)
    program.log = log = Log("a kernel")
    program.new_barrier((0, 0, 0), 1, "a barrier")
    barrier, who = program.barriers[0, 0, 0], program.now
    barrier.arrive(who, expected=16)
    log.copies_in(barrier, who, "some memory")
    barrier.copied(16)
    program.wait([(who, barrier)], 0)
    *_, copy, wait = log.spans
    assert (copy.kind, copy.end - copy.begin) == ("copy in", COPY)
    assert (wait.kind, wait.end) == ("wait", copy.end)
    assert wait.site != NOWHERE


def test_perfetto_opens_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    assert command(f"{FILE}:run", "--seeds", "1", "--trace", str(file)) == 0
    events = json.loads(file.read_text())["traceEvents"]
    names = {one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert {"the default partition", "partition 1 (_load)", "copy engine"} <= names
    spans = [one for one in events if one["ph"] == "X"]
    assert {"word", "wait", "product", "copy in", "copy out"} <= {one["cat"] for one in spans}
    assert all(one["dur"] > 0 and "small_kernels.py" in one["args"]["line"] for one in spans)
    # Nobody does two things at once.
    tracks = {(one["pid"], one["tid"]) for one in spans}
    for track in tracks:
        own = sorted((one["ts"], one["dur"]) for one in spans if (one["pid"], one["tid"]) == track)
        for (begin, takes), (after, _) in pairwise(own):
            assert begin + takes <= after


@pytest.mark.parametrize("fault", ["", "no hand-back"])
def test_a_picture_marks_the_waits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    file = tmp_path / "trace.svg"
    code = command(f"{FILE}:run", fault, "--seeds", "1", "--trace", str(file))
    assert code == int(bool(fault))
    root = ElementTree.parse(file).getroot()
    kinds = [one.get("data-kind") for one in root.iter(f"{SVG}rect") if one.get("data-kind")]
    assert "wait" in kinds and ("stuck" in kinds) == bool(fault)
    words = "".join(one.text or "" for one in root.iter(f"{SVG}title"))
    assert "wait for phase 0 of barrier 0" in words
    assert "partition 1 (_load)" in [one.text for one in root.iter(f"{SVG}text")]


def test_a_picture_is_of_the_launch_with_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trace.svg"
    for fault, kernel in (("", "product"), ("behind the end", "fill")):
        command(f"{FILE}:run", fault, "--seeds", "1", "--trace", str(file))
        assert f"<title>What {kernel} does</title>" in file.read_text()


def test_a_name_that_says_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ends in \.json or \.svg"):
        command(f"{FILE}:run", "--trace", str(tmp_path / "trace.png"))

"""Two hundred hostile artifacts: none turns a worse head green, marks up text or leaves a file."""

from __future__ import annotations

import re
from pathlib import Path

from tests.workflows import hostile, stand_in
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE
from tests.workflows.stand_in import BASE, HEAD, MACHINE
from warpwatch.ci import message
from warpwatch.ci.github import Artifact
from warpwatch.ci.pull_request import Expected, judge


def test_no_hostile_artifact_wins(tmp_path: Path) -> None:
    trusted = stand_in.write_trusted(tmp_path / "trusted", GOOD_BASE)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    found = hostile.artifacts()
    assert len(found) >= 200
    lane = [Expected("cpu", 1, MACHINE)]
    wrong, conclusions = [], set()
    for name, data in found.items():
        artifact = Artifact(1, ONE_OF_ONE, len(data))
        judgement = judge([artifact], lambda _, d=data: d, lane, trusted, BASE, HEAD)
        conclusions.add(judgement.conclusion)
        if judgement.conclusion in ("success", "neutral"):
            wrong.append(f"{name}: {judgement.conclusion}")
        for text in (message.comment(judgement), message.summary(judgement)):
            # A code span ends with its line at the latest: none may hold a line's end.
            outside = re.sub(r"`[^`\n]*`", "", text)
            if any(words in outside for words in ("<img", "@everyone", "](java", "](http", "\x1b")):
                wrong.append(f"{name}: marks up what is said")
            if any(ord(one) in range(0x202A, 0x202F) or ord(one) in range(0x2066, 0x206A)
                   for one in text):  # fmt: skip
                wrong.append(f"{name}: turns the direction of what is said")
    assert not wrong
    assert conclusions == {"failure", "action_required"}
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert not Path("/tmp/hostile-out.json").exists()
    assert not list(Path("/tmp").glob("warpwatch-judge-*/../out.json"))

"""Two hundred hostile artifacts, each through the judge as its workflow starts it: none turns a
worse head green, marks up text, reaches another pull request or leaves a file."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from tests.workflows import hostile
from tests.workflows.flow import ONE_OF_ONE, judge
from tests.workflows.stand_in import NUMBER, OTHER, StandIn

# What the judge may write: its check, and its own pull request's comment.
ALLOWED = {("POST", "check-runs"), ("POST", f"issues/{NUMBER}/comments")}
OWN = {"event.json", "trusted", "verdict.json", "versions.toml"}


def test_no_hostile_artifact_wins(github: StandIn, tmp_path: Path) -> None:
    github.pull_request(OTHER, NUMBER + 1, source="somebody:else")
    found = hostile.artifacts()
    assert len(found) >= 200
    assert sum("climbs" in name for name in found) >= 2
    temporary = Path(tempfile.gettempdir())
    before = {path.name for path in temporary.iterdir()}
    wrong, conclusions = [], set()
    for name, data in found.items():
        github.artifacts = {ONE_OF_ONE: data}
        for written in (github.checks, github.comments, github.written):
            written.clear()
        judge(tmp_path)
        if set(github.written) != ALLOWED:
            wrong.append(f"{name}: wrote {github.written}")
            continue
        (check,), (comment,) = github.checks, github.comments
        conclusions.add(check["conclusion"])
        if check["conclusion"] in ("success", "neutral"):
            wrong.append(f"{name}: {check['conclusion']}")
        for text in (comment["body"], check["output"]["summary"], check["output"]["title"]):
            wrong += [f"{name}: {what}" for what in _marks(text)]
        left = {path.name for path in tmp_path.iterdir()} - OWN
        # Other tests of this run make folders of their own.
        left |= {one.name for one in temporary.iterdir() if "hostile" in one.name} - before
        if left or hostile.OUTSIDE.exists():
            wrong.append(f"{name}: left {sorted(left)}")
    assert not wrong
    assert conclusions == {"failure", "action_required"}
    assert not github.leaked


def _marks(text: str) -> list[str]:
    found = []
    # A code span ends with its line at the latest: none may hold a line's end.
    outside = re.sub(r"`[^`\n]*`", "", text)
    if any(words in outside for words in ("<img", "@everyone", "](java", "](http://x", "\x1b")):
        found.append("marks up what is said")
    if any(ord(one) in range(0x202A, 0x202F) or ord(one) in range(0x2066, 0x206A) for one in text):
        found.append("turns the direction of what is said")
    return found

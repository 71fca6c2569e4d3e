"""A week of a busy repository, against an API that keeps its state and a real data branch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.workflows import stand_in
from tests.workflows.flow import ONE_OF_ONE
from tests.workflows.stand_in import (
    MACHINE,
    REPOSITORY,
    StandIn,
    honest,
    manifest,
    result,
    zipped,
)
from tests.workflows.test_data_branch import (
    DAY,
    NOW,
    count_of,
    files_on,
    project,
    pushed,
    results,
)
from warpwatch.__main__ import main
from warpwatch.ci import branch

_ = project  # a fixture
GOOD, WORSE = ([0, 0, 8], [3, 3, 2]), ([0, 96, 8], [3, 1, 2])
CHECK = "warpwatch cpu"


@dataclass
class Week:
    """The repository: its default branch, its history on the data branch, and GitHub."""

    github: StandIn
    remote: str
    folder: Path
    clone: Path
    base: str = ""
    now: float = NOW - 9 * DAY
    heads: dict[int, str] = field(default_factory=dict)
    judged: int = 0

    def push(self, *, measured_by: tuple[str, ...] = (MACHINE,)) -> str:
        """A commit of the default branch, and what its runners deliver the same hour."""
        self.base = pushed(self.clone, "ops/a.py", (NOW - self.now) / DAY)
        for machine in measured_by:
            self.record(self.base, machine)
        return self.base

    def record(self, commit: str, machine: str) -> None:
        place = self.folder / f"{commit[:8]}-{machine}"
        started = int((self.now + 600) * 1000)
        results(place, commit, machine, date=started)
        (path,) = (place / machine).glob(f"{commit[:8]}-*.json")
        document = result(commit, *GOOD, date=started, params={"machine": machine})
        for row in document["results"].values():
            row[3] = started
        path.write_text(json.dumps(document))
        branch.record(self.remote, [place], message=commit)

    def open(self, number: int, into: str = "main") -> None:
        self.heads[number] = f"{number:x}" * 40
        self.github.pulls[:] = [p for p in self.github.pulls if p["number"] != number]
        self.github.pull_request(self.heads[number], number, into, source=f"fork{number}:work")
        self.github.departed[into] = self.base

    def judge(self, number: int, values: Any = GOOD, *, shard: bool = True, **event: Any) -> int:
        """The compile lane of a pull request has ended: the judge as its workflow starts it."""
        head = self.heads[number]
        files = honest(result(head, *values), result(self.base, *GOOD))
        names = {stand_in.BASE[:8]: self.base[:8], stand_in.HEAD[:8]: head[:8]}
        for old, new in names.items():
            files = {name.replace(old, new): text for name, text in files.items()}
        files["shard.json"] = json.dumps(manifest(base=self.base, head=head))
        self.github.artifacts = {ONE_OF_ONE: zipped(files)} if shard else {}
        self.judged += 1
        trusted = self.folder / f"trusted-{self.judged}"
        branch.fetch(self.remote, trusted)
        (trusted / "results").mkdir(exist_ok=True)
        versions = self.folder / "versions.toml"
        versions.write_text(f'[backends.cpu]\nshards = 1\nmachine = "{MACHINE}"\n')
        given = {
            "head_sha": head,
            "head_branch": "work",
            "head_repository": {"full_name": "x/y", "owner": {"login": f"fork{number}"}},
        }
        path = stand_in.write_event(self.folder, **given | event)
        command = ["ci", "judge", "--event", str(path), "--lane", "cpu"]
        command += ["--versions", str(versions), "--trusted", str(trusted / "results")]
        return main([*command, "--out", str(self.folder / "verdict.json")])

    def verdict(self, number: int) -> list[str]:
        """The conclusions of a pull request's newest head, in their order."""
        head = self.heads[number]
        return [c["conclusion"] for c in self.github.checks if c["head_sha"] == head]

    def comments(self, number: int) -> int:
        return sum(c["issue"] == str(number) for c in self.github.comments)

    def night(self) -> int:
        """The alarm for machines that owe results."""
        return main(["ci", "record", "silent", "--issue", "--remote", self.remote])


@pytest.fixture
def week(
    github: StandIn,
    remote: str,
    tmp_path: Path,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Week:
    github.pulls[:] = []
    found = Week(github, remote, tmp_path, project)
    monkeypatch.setattr(time, "time", lambda: found.now)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
    return found


def test_a_week_of_a_busy_repository(week: Week, monkeypatch: pytest.MonkeyPatch) -> None:
    both = (MACHINE, "cuda-runner")
    # Monday: nothing was ever measured, which the first pull request is told.
    week.base = pushed(week.clone, "ops/a.py", 9)
    week.open(1)
    assert (week.judge(1), week.verdict(1), week.night()) == (0, ["action_required"], 0)
    week.push(measured_by=both)
    week.open(1)
    week.judge(1)
    assert week.verdict(1)[-1] == "success" and week.comments(1) == 1

    # Tuesday: good and bad ones; a bad one is pushed over by force, and its old run is for nobody.
    week.now += DAY
    week.push(measured_by=both)
    for number, values in ((2, WORSE), (3, GOOD), (4, WORSE)):
        week.open(number)
        week.judge(number, values)
    assert [week.verdict(n)[-1] for n in (2, 3, 4)] == ["failure", "success", "failure"]
    old = week.heads[4]
    week.open(4)
    week.heads[4] = "4e" * 20
    week.github.pulls[-1]["head"]["sha"] = "4e" * 20
    written = len(week.github.written)
    assert week.judge(4, WORSE, head_sha=old) == 0 and len(week.github.written) == written
    week.judge(4)
    assert week.verdict(4) == ["success"] and week.comments(4) == 1

    # Wednesday: a shard dies and is run again; the API stumbles; a stacked one has its own base.
    week.now += DAY
    week.push(measured_by=both)
    week.open(5)
    week.judge(5, shard=False)
    week.github.trouble["GET actions"] = [502, 503]
    week.judge(5)
    assert week.verdict(5) == ["action_required", "success"] and week.comments(5) == 1
    week.open(6, into="feature")
    week.judge(6)
    names = [c["name"] for c in week.github.checks if c["head_sha"] == week.heads[6]]
    assert names == [f"{CHECK} on feature"]

    # Thursday: the GPU's runner is dead. Compiled results go on, and merge groups with them.
    week.now += DAY
    week.push()
    queue = {
        "event": "merge_group",
        "head_branch": f"gh-readonly-queue/main/pr-3-{week.base}",
        "head_repository": {"full_name": REPOSITORY, "owner": {"login": "team"}},
    }
    week.heads[7] = "7" * 40
    for values, conclusion in ((GOOD, "success"), (WORSE, "failure")):
        week.judge(7, values, **queue)
        assert week.verdict(7)[-1] == conclusion
    assert week.comments(3) == 1, "a group writes no comment"
    assert (week.night(), week.github.issues) == (0, [])

    # Friday to Sunday: nobody pushes, two runs record at once, and the dead machine is seen, once.
    week.now += DAY
    lost = week.push()
    lose_a_race(week, monkeypatch, lambda: week.record(lost, "second-runner"))
    week.open(8)
    week.judge(8, WORSE)
    assert week.verdict(8) == ["failure"]
    # Dependabot's has no variables and is judged alike; two pull requests share one head.
    week.open(9)
    bump = "dependabot/pip/triton-4.0.0"
    week.github.pulls[-1]["head"]["label"] = f"fork9:{bump}"
    week.judge(9, head_branch=bump)
    assert week.verdict(9) == ["success"]
    for number in (10, 11):
        week.open(number)
    shared = week.heads[11] = week.heads[10]
    week.github.pulls[-1] |= {"head": {"sha": shared, "label": "fork10:work"}}
    week.judge(10, WORSE)
    assert week.verdict(10)[-1] == "failure"
    assert (week.comments(10), week.comments(11)) == (1, 1), "both have the comment"
    week.now += 3.5 * DAY
    assert [week.night(), week.night()] == [3, 3]
    (issue,) = week.github.issues
    assert issue["title"] == "Warpwatch: cuda-runner has gone silent"

    # It comes back and fills its gap.
    week.record(week.base, "cuda-runner")
    assert week.night() == 0 and len(week.github.issues) == 1
    assert not week.github.leaked
    machines = {name.split("/")[1] for name in files_on(week.remote) if name.count("/") == 2}
    assert machines == {*both, "second-runner", "third-runner"}


def lose_a_race(week: Week, monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Somebody else pushes to the data branch between the look and the push."""
    before = count_of(week.remote)
    prune, others = branch._prune, iter([True])

    def slow(*arguments: Any) -> None:
        if next(others, False):
            week.record(week.base, "third-runner")
        prune(*arguments)

    monkeypatch.setattr(branch, "_prune", slow)
    act()
    monkeypatch.setattr(branch, "_prune", prune)
    assert count_of(week.remote) == before + 2, "both are there, one after the other"

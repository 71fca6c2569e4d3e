"""Every run that was to be judged ends with a check, whatever goes wrong on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, WORSE_HEAD, judge
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    BOT,
    HEAD,
    NUMBER,
    OTHER,
    REPOSITORY,
    StandIn,
    honest,
    manifest,
    result,
    zipped,
)
from warpwatch.ci import api, pull_request


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"results/benchmarks.json": json.dumps(BENCHMARKS)},
        {"results/evidence/x.json.xz": "x"},
    ],
    ids=["nothing", "descriptions", "evidence"],
)
def test_a_shard_without_results_is_missing_and_said_to_be(
    github: StandIn, tmp_path: Path, more: dict[str, str]
) -> None:
    github.artifacts[ONE_OF_ONE] = zipped({"shard.json": json.dumps(manifest()), **more})
    assert judge(tmp_path) == 0
    assert [check["conclusion"] for check in github.checks] == ["action_required"]
    assert f"missing: `{ONE_OF_ONE}` delivered nothing" in github.comments[0]["body"]


def test_a_judge_that_fails_says_so_and_blames_nobody(
    github: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("float division by zero `@everyone`")

    monkeypatch.setattr(pull_request, "compare", broken)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 3
    (check,) = github.checks
    assert (check["name"], check["conclusion"]) == ("warpwatch cpu", "action_required")
    assert check["output"]["title"].startswith("could not judge")
    (comment,) = github.comments
    assert "ZeroDivisionError: float division by zero '@everyone'`" in comment["body"]
    assert "regressed" not in comment["body"] and "says nothing about" in comment["body"]


def test_an_api_that_does_not_know_the_pull_request_leaves_no_check_pending(
    github: StandIn, tmp_path: Path
) -> None:
    github.trouble["GET pulls"] = [404]
    assert judge(tmp_path) == 3
    assert [(c["head_sha"], c["conclusion"]) for c in github.checks] == [(HEAD, "action_required")]


def test_a_file_of_versions_that_is_wrong_leaves_no_check_pending(
    github: StandIn, tmp_path: Path
) -> None:
    assert judge(tmp_path, shards="none") == 3  # type: ignore[arg-type]
    assert github.checks[0]["conclusion"] == "action_required"


@pytest.mark.parametrize("call", ["GET pulls", "GET actions/artifacts", "POST check-runs"])
def test_a_call_that_fails_in_passing_is_made_again(
    github: StandIn, tmp_path: Path, call: str
) -> None:
    github.trouble[call] = [502, 503, 429]
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    assert [check["conclusion"] for check in github.checks] == ["success"]


def test_a_comment_that_was_written_without_an_answer_is_not_written_twice(
    github: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = github.answer

    def lost(method: str, path: str, body: Any, authorized: bool) -> tuple[int, Any]:
        found = answer(method, path, body, authorized)
        first = method == "POST" and path.endswith("/comments") and len(github.comments) == 1
        return (502, {"message": "bad gateway"}) if first else found

    monkeypatch.setattr(github, "answer", lost)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    assert [comment["user"]["login"] for comment in github.comments] == [BOT]


def test_no_wait_lies_within_another(
    github: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An API that is down is waited for once: 20 seconds, and not four times as long."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    github.trouble["GET issues"] = [502] * 99
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    assert [check["conclusion"] for check in github.checks] == ["success"]
    assert len(waited) == len(api.WAITS_S) and github.comments == []


QUEUE = f"gh-readonly-queue/main/pr-{NUMBER}-{BASE}"
QUEUED: dict[str, Any] = {
    "event": "merge_group",
    "head_branch": QUEUE,
    "head_repository": {"full_name": REPOSITORY, "owner": {"login": "team"}},
}


@pytest.mark.parametrize(
    ("head", "conclusion"), [(SAME_HEAD, "success"), (WORSE_HEAD, "failure")], ids=["same", "worse"]
)
def test_a_merge_group_gets_the_check_that_its_queue_waits_for(
    github: StandIn, tmp_path: Path, head: dict[str, Any], conclusion: str
) -> None:
    github.pulls[:] = []
    github.artifacts[ONE_OF_ONE] = zipped(honest(head, GOOD_BASE))
    assert judge(tmp_path, **QUEUED) == 0
    (check,) = github.checks
    assert (check["name"], check["head_sha"]) == ("warpwatch cpu", HEAD)
    assert check["conclusion"] == conclusion
    assert github.comments == [], "a group is nobody's pull request"


@pytest.mark.parametrize(
    "change",
    [
        {"head_branch": "gh-readonly-queue/main/pr-7"},
        {"head_branch": f"queue/main/pr-7-{BASE}"},
        {"head_repository": {"full_name": "stranger/kernels", "owner": {"login": "stranger"}}},
    ],
)
def test_only_github_s_own_branches_are_merge_groups(
    github: StandIn, tmp_path: Path, change: dict[str, Any]
) -> None:
    assert judge(tmp_path, **QUEUED | change) == 2
    assert github.written == []


def two_of_one_head(github: StandIn) -> None:
    github.pull_request(number=8, branch="release")
    github.departed["release"] = OTHER


@pytest.mark.parametrize(
    ("measured", "number", "name"),
    [(BASE, NUMBER, "warpwatch cpu"), (OTHER, 8, "warpwatch cpu on release")],
)
def test_two_pull_requests_of_one_head_are_judged_each_against_its_base(
    github: StandIn, tmp_path: Path, measured: str, number: int, name: str
) -> None:
    two_of_one_head(github)
    base = result(measured, [0, 0, 8], [3, 3, 2])
    files = {k.replace(BASE[:8], measured[:8]): v for k, v in honest(SAME_HEAD, base).items()} | {
        "shard.json": json.dumps(manifest(base=measured))
    }
    github.artifacts[ONE_OF_ONE] = zipped(files)
    assert judge(tmp_path) == 0
    assert [(check["name"], check["conclusion"]) for check in github.checks] == [(name, "success")]
    comments = [call for call in github.written if call[1].endswith("comments")]
    assert comments == [("POST", f"issues/{number}/comments")]


def test_two_pull_requests_of_one_head_into_one_branch_get_a_comment_each(
    github: StandIn, tmp_path: Path
) -> None:
    github.pull_request(number=8)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    assert {check["conclusion"] for check in github.checks} == {"success"}
    told = {call[1] for call in github.written if call[1].endswith("comments")}
    assert told == {f"issues/{NUMBER}/comments", "issues/8/comments"}


def test_an_artifact_of_neither_base_is_refused(github: StandIn, tmp_path: Path) -> None:
    two_of_one_head(github)
    files = honest(SAME_HEAD, GOOD_BASE) | {"shard.json": json.dumps(manifest(base="d" * 40))}
    github.artifacts[ONE_OF_ONE] = zipped(files)
    assert judge(tmp_path) == 0
    assert [check["conclusion"] for check in github.checks] == ["failure"]

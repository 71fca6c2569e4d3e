"""The flow of a pull request without GitHub: event, artifacts and API are played on loopback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.workflows import stand_in
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, WORSE_HEAD, judge
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    BOT,
    HEAD,
    LEVEL,
    MACHINE,
    NUMBER,
    OTHER,
    POINTS,
    SPILLS,
    StandIn,
    honest,
    result,
    result_name,
    zipped,
)
from warpwatch.__main__ import main
from warpwatch.ci import artifact


def verdict(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    return document


def test_a_regression_fails_the_check_and_is_named_in_the_comment(
    github: StandIn, tmp_path: Path
) -> None:
    github.artifacts[ONE_OF_ONE] = zipped(honest(WORSE_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    (check,) = github.checks
    assert (check["conclusion"], check["head_sha"]) == ("failure", HEAD)
    assert check["output"]["title"].startswith("regressed: 2 regressed")
    (comment,) = github.comments
    assert "▼ regressed | 0 B | 96 B | `spilled_bytes` | `matmul-b`" in comment["body"]
    assert "▼ regressed | 3 | 1 | `tensor_core_level` | `matmul-b`" in comment["body"]
    assert ("POST", f"issues/{NUMBER}/comments") in github.written
    assert not github.leaked, "the token went to the artifact store"


def test_an_unchanged_head_is_green(github: StandIn, tmp_path: Path) -> None:
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "success"
    assert verdict(tmp_path)["counts"] == {"unchanged": 6}


@pytest.mark.parametrize(
    ("branch", "name"), [("main", "warpwatch cpu"), ("slow", "warpwatch cpu on slow")]
)
def test_a_verdict_against_another_branch_is_no_verdict_for_the_default_one(
    github: StandIn, tmp_path: Path, branch: str, name: str
) -> None:
    """A head that is no worse than a slow branch must not be green for the default one."""
    github.pulls[:] = []
    github.pull_request(branch=branch)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert [(c["name"], c["conclusion"]) for c in github.checks] == [(name, "success")]


def test_one_comment_is_kept_up_to_date_and_a_look_alike_left_alone(
    github: StandIn, tmp_path: Path
) -> None:
    github.artifacts[ONE_OF_ONE] = zipped(honest(WORSE_HEAD, GOOD_BASE))
    judge(tmp_path)
    marker = github.comments[0]["body"].splitlines()[0]
    github.comments.insert(0, {"id": 0, "user": {"login": "stranger"}, "body": f"{marker}\nmine"})
    github.comments[1]["id"] = 1
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert [c["user"]["login"] for c in github.comments] == ["stranger", BOT]
    assert github.comments[0]["body"].endswith("mine")
    assert "no regression" in github.comments[1]["body"]


def test_a_head_that_was_pushed_over_is_not_judged(github: StandIn, tmp_path: Path) -> None:
    github.pulls[:] = []
    github.pull_request(head=OTHER)
    github.artifacts[ONE_OF_ONE] = zipped(honest(WORSE_HEAD, GOOD_BASE))
    assert judge(tmp_path) == 0
    assert github.written == []


def test_a_failed_or_vanished_result_is_missing_and_red(github: StandIn, tmp_path: Path) -> None:
    broken = result(HEAD, [0, None, 8], [3, 3, 2])
    github.artifacts[ONE_OF_ONE] = zipped(honest(broken, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "failure"
    assert verdict(tmp_path)["counts"]["missing"] == 1


def sharded(github: StandIn, head: dict[str, Any], base: dict[str, Any]) -> None:
    """Two shards as asv writes them: the first measured point 0, the second the others."""
    for number, mine in ((1, {0}), (2, {1, 2})):
        parts = []
        for document in (head, base):
            part = json.loads(json.dumps(document))
            for row in part["results"].values():
                row[0] = [v if i in mine else math.nan for i, v in enumerate(row[0])]
            parts.append(part)
        files = honest(parts[0], parts[1], number, 2)
        github.artifacts[artifact.name_of("cpu", number, 2)] = zipped(files)


def test_a_shard_that_is_run_again_counts_by_its_newest_artifact(
    github: StandIn, tmp_path: Path
) -> None:
    """The job that died delivered what it had: GitHub lists that artifact beside the new one."""
    died = honest(SAME_HEAD, GOOD_BASE)
    del died["shard.json"]
    github.earlier[ONE_OF_ONE] = zipped(died)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "success"


@pytest.mark.parametrize("base", [None, GOOD_BASE], ids=["base not on record", "base on record"])
@pytest.mark.parametrize("dead", [1, 2])
def test_a_dead_shard_is_missing_and_never_green(
    github: StandIn, tmp_path: Path, base: dict[str, Any] | None, dead: int
) -> None:
    sharded(github, SAME_HEAD, GOOD_BASE)
    judge(tmp_path, base=base, shards=2)
    assert github.checks[-1]["conclusion"] == "success"
    del github.artifacts[artifact.name_of("cpu", dead, 2)]
    judge(tmp_path, base=base, shards=2)
    assert github.checks[-1]["conclusion"] == "action_required", "neutral would satisfy GitHub"
    found = verdict(tmp_path)
    assert found["missing_shards"] == [f"results-cpu-{dead}-of-2"]
    assert not found["refused"]
    assert f"missing: `results-cpu-{dead}-of-2`" in github.comments[0]["body"]


def test_a_shard_that_died_before_its_end_is_refused(github: StandIn, tmp_path: Path) -> None:
    files = honest(SAME_HEAD, GOOD_BASE)
    del files["shard.json"]
    github.artifacts[ONE_OF_ONE] = zipped(files)
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "failure"
    assert "died before its end" in github.comments[0]["body"]


def test_nothing_delivered_satisfies_no_required_check(github: StandIn, tmp_path: Path) -> None:
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "action_required"


def test_results_of_another_lane_at_base_do_not_matter(github: StandIn, tmp_path: Path) -> None:
    """The default branch has measured the base on a GPU as well; this is the compile lane."""
    results = stand_in.write_trusted(tmp_path / "trusted", GOOD_BASE)
    (results / "cuda-runner").mkdir()
    (results / "cuda-runner" / "machine.json").write_text('{"machine": "cuda-runner"}')
    other = result(BASE, [0, 0, 8], [3, 3, 2], params={"machine": "cuda-runner"})
    (results / "cuda-runner" / f"{BASE[:8]}-env.json").write_text(json.dumps(other))
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "success"


@pytest.mark.parametrize("base", [None, GOOD_BASE], ids=["base not on record", "base on record"])
def test_a_kernel_that_calls_itself_not_applicable_is_not_green(
    github: StandIn, tmp_path: Path, base: dict[str, Any] | None
) -> None:
    """NaN is what asv writes where a benchmark raises NotImplementedError."""
    head = result(HEAD, [0, math.nan, 8], [3, math.nan, 2])
    github.artifacts[ONE_OF_ONE] = zipped(honest(head, GOOD_BASE))
    judge(tmp_path, base=base)
    assert github.checks[0]["conclusion"] == "action_required"
    assert "2 results of base have no counterpart at head" in github.comments[0]["body"]


def test_what_never_applied_stays_green(github: StandIn, tmp_path: Path) -> None:
    both = [result(commit, [0, math.nan, 8], [3, math.nan, 2]) for commit in (HEAD, BASE)]
    github.artifacts[ONE_OF_ONE] = zipped(honest(*both))
    judge(tmp_path, base=both[1])
    assert github.checks[0]["conclusion"] == "success"


@pytest.mark.parametrize("how", ["no head", "another environment"])
def test_an_artifact_that_dodges_the_record_is_not_green(
    github: StandIn, tmp_path: Path, how: str
) -> None:
    files = honest(SAME_HEAD, GOOD_BASE)
    if how == "no head":
        del files[result_name(HEAD)]
    else:
        old = stand_in.ENVIRONMENT
        files = {k.replace(old, "mine"): v.replace(old, "mine") for k, v in files.items()}
    github.artifacts[ONE_OF_ONE] = zipped(files)
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "action_required"


LATENCY = "latency.Matmul.track_latency_us"


def timed(commit: str, us: float, day: int) -> dict[str, Any]:
    """A result with one noisy metric as well: its median and a 99 % interval of half a percent."""
    document = result(commit, [0, 0, 8], [3, 3, 2], date=1_700_000_000_000 + day * 86_400_000)
    document["result_columns"] += ["stats_ci_99_a", "stats_ci_99_b"]
    values, low, high = ([us * edge] * 3 for edge in (1.0, 0.9975, 1.0025))
    params = document["results"][SPILLS][1]
    document["results"][LATENCY] = [values, params, "1", document["date"], 1.0, low, high]
    return document


def judge_timed(
    github: StandIn, folder: Path, past: list[float], base: float, claimed: float, head: float
) -> dict[str, Any]:
    """Judge a head against a history of the machine; what the check says."""
    results = stand_in.write_trusted(folder / "trusted", None)
    described = {**BENCHMARKS[SPILLS], "name": LATENCY, "unit": "us", "metric": "latency_us"}
    described |= {"exact": False, "instrument": "latency"}
    (results / "benchmarks.json").write_text(json.dumps(BENCHMARKS | {LATENCY: described}))
    for day, us in enumerate([*past, base]):
        commit = f"{day:02d}" * 20 if day < len(past) else BASE
        path = results / MACHINE / f"{commit[:8]}-{stand_in.ENVIRONMENT}.json"
        path.write_text(json.dumps(timed(commit, us, day)))
    files = honest(timed(HEAD, head, 51), timed(BASE, claimed, 50))
    github.artifacts[ONE_OF_ONE] = zipped(files)
    judge(folder)
    check: dict[str, Any] = github.checks[0]
    return check


def test_values_at_the_edge_of_what_a_float_holds_are_judged(
    github: StandIn, tmp_path: Path
) -> None:
    check = judge_timed(github, tmp_path, STEADY, 1e308, 1e308, 5e-320)
    assert check["output"]["title"] == "inconclusive: 3 inconclusive, 6 unchanged"


STEADY = [100.0, 100.1, 99.9, 100.1, 99.9, 100.0, 100.1, 99.9, 100.0, 100.1]
WANDERING = [100.0, 104.0, 98.0, 103.0, 96.0, 101.0, 97.0, 104.0, 99.0, 103.0]


@pytest.mark.parametrize(
    ("past", "claimed", "head", "conclusion"),
    [
        (STEADY, 100.0, 100.1, "success"),
        (STEADY, 100.0, 106.0, "failure"),
        (WANDERING, 100.0, 104.0, "neutral"),
        (STEADY, 106.0, 106.0, "action_required"),
        (STEADY, 96.0, 96.1, "success"),
    ],
    ids=["unchanged", "slower", "slower within what the machine wanders", "base made slower too",
         "a faster machine"],
)  # fmt: skip
def test_a_measured_head_is_held_against_the_base_and_its_record(
    github: StandIn, tmp_path: Path, past: list[float], claimed: float, head: float, conclusion: str
) -> None:
    check = judge_timed(github, tmp_path, past, 100.0, claimed, head)
    assert check["conclusion"] == conclusion, check["output"]
    if conclusion == "action_required":
        assert "3 results of base are worse than on record" in github.comments[0]["body"]


def test_directions_of_the_artifact_do_not_count(github: StandIn, tmp_path: Path) -> None:
    """A pull request that swaps better and worse is judged by the default branch's words."""
    files = honest(WORSE_HEAD, GOOD_BASE)
    turned = {
        name: {**entry, "better": "", "role": "evidence"} if isinstance(entry, dict) else entry
        for name, entry in BENCHMARKS.items()
    }
    github.artifacts[ONE_OF_ONE] = zipped(files | {"results/benchmarks.json": json.dumps(turned)})
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "failure"


def test_a_benchmark_the_default_branch_does_not_know_is_left_out(
    github: StandIn, tmp_path: Path
) -> None:
    extra = result(HEAD, [0, 0, 8], [3, 3, 2])
    extra["results"]["compiled.<script>.track_x"] = extra["results"][LEVEL]
    github.artifacts[ONE_OF_ONE] = zipped(honest(extra, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "success"
    assert "script" not in github.comments[0]["body"]


def test_a_base_that_is_not_on_record_is_said(github: StandIn, tmp_path: Path) -> None:
    github.artifacts[ONE_OF_ONE] = zipped(honest(WORSE_HEAD, GOOD_BASE))
    judge(tmp_path, base=None)
    assert github.checks[0]["conclusion"] == "failure"
    assert "not on record" in github.comments[0]["body"]


def test_no_results_on_the_default_branch_yet_asks_for_them(
    github: StandIn, tmp_path: Path
) -> None:
    (tmp_path / "trusted" / "results").mkdir(parents=True)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME_HEAD, GOOD_BASE))
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "action_required"
    assert "no results yet" in github.comments[0]["body"]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"head_sha": "main"}, "head_sha"),
        ({"head_branch": ""}, "head_branch"),
        ({"id": "1; rm -rf /"}, "workflow_run.id"),
        ({"head_repository": None}, "head_repository"),
    ],
)
def test_a_strange_event_is_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], place: str
) -> None:
    event = stand_in.write_event(tmp_path, **change)
    trusted = stand_in.write_trusted(tmp_path / "trusted", GOOD_BASE)
    code = main(["ci", "judge", "--event", str(event), "--lane", "cpu", "--trusted", str(trusted)])
    assert code == 2
    error = capsys.readouterr().err
    assert place in error and error.count("\n") == 1


def test_machine_and_points_are_what_the_artifacts_say(github: StandIn, tmp_path: Path) -> None:
    github.artifacts[ONE_OF_ONE] = zipped(honest(WORSE_HEAD, GOOD_BASE))
    github.artifacts["site"] = b"not ours"
    judge(tmp_path)
    assert github.checks[0]["conclusion"] == "failure"
    assert MACHINE not in github.checks[0]["output"]["title"]
    assert POINTS[1] in github.checks[0]["output"]["summary"]

"""GitHub's own parser reads the workflows, its expressions say which jobs an event starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warpwatch.sandbox import images

ROOT = images.root()
TOOLS = Path(os.environ.get("WARPWATCH_TOOLS") or ROOT / ".tools")
WORKFLOWS = ROOT / ".github" / "workflows"
VARIABLES = {"WARPWATCH_GPU_BACKENDS": "cuda", "WARPWATCH_PAGES": "yes"}
PUBLIC = {"default_branch": "trunk", "visibility": "public", "full_name": "team/kernels"}

pytestmark = pytest.mark.tools


def ask(plays: list[dict[str, Any]], folder: Path = WORKFLOWS) -> dict[str, Any]:
    """What GitHub's packages say of the workflows in a folder, and of each play."""
    if shutil.which("node") is None or not (TOOLS / "node_modules/@actions/expressions").is_dir():
        pytest.skip(f"GitHub's packages are not in {TOOLS}: make setup-tools")
    program = Path(__file__).with_name("github_parser.mjs")
    done = subprocess.run(
        ["node", str(program), str(TOOLS), str(folder)],
        input=json.dumps(plays),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def play(workflow: str, event: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A workflow that an event starts, in a public repository whose default branch is `trunk`."""
    github = {
        "event": {"repository": PUBLIC} | (event or {}),
        "event_name": "push",
        "ref": "refs/heads/trunk",
        "ref_name": "trunk",
        "base_ref": "",
        "sha": "a" * 40,
    } | more.pop("github", {})
    contexts = {"github": github, "vars": more.pop("variables", VARIABLES), "inputs": {}}
    return {"workflow": workflow, "contexts": contexts} | more


def finished(
    event: str = "pull_request", conclusion: str = "success", **more: Any
) -> dict[str, Any]:
    return {"workflow_run": {"event": event, "conclusion": conclusion, "head_sha": "b" * 40} | more}


def run(plays: dict[str, dict[str, Any]]) -> dict[str, dict[str, str]]:
    """What becomes of each job, by the name of the play."""
    answers = ask(list(plays.values()))["plays"]
    return {name: one["results"] for name, one in zip(plays, answers, strict=True)}


def test_github_s_parser_finds_nothing_wrong() -> None:
    found = ask([])["problems"]
    assert len(found) >= 8
    assert not [name for name, problems in found.items() if problems]


def test_the_parser_would_find_it(tmp_path: Path) -> None:
    for path in WORKFLOWS.glob("*.yml"):
        shutil.copyfile(path, tmp_path / path.name)
    judge = tmp_path / "warpwatch-judge.yml"
    judge.write_text(judge.read_text().replace("fromJSON(", "fromYAML("))
    gpu = tmp_path / "warpwatch-gpu.yml"
    gpu.write_text(gpu.read_text().replace("inputs.head", "input.head"))
    found = ask([], tmp_path)["problems"]
    assert found["warpwatch-judge.yml"] and found["warpwatch-gpu.yml"]


def test_what_is_judged() -> None:
    judged = run(
        {
            "a pull request": play("warpwatch-judge.yml", finished()),
            "a fork's": play("warpwatch-judge.yml", finished(head_branch="x")),
            "whose compile lane died": play("warpwatch-judge.yml", finished(conclusion="failure")),
            "cancelled": play("warpwatch-judge.yml", finished(conclusion="cancelled")),
            "without variables": play("warpwatch-judge.yml", finished(), variables={}),
            "a merge group": play("warpwatch-judge.yml", finished("merge_group")),
            "waiting for approval": play(
                "warpwatch-judge.yml", finished(conclusion="action_required")
            ),
            "a push": play("warpwatch-judge.yml", finished("push")),
            "by hand": play("warpwatch-judge.yml", finished("workflow_dispatch")),
        }
    )
    assert {name for name, jobs in judged.items() if jobs["judge"] == "skipped"} == {
        "waiting for approval",
        "a push",
        "by hand",
    }


def test_what_is_measured_on_a_gpu() -> None:
    name = "warpwatch-pull-request-gpu.yml"
    found = run(
        {
            "a pull request": play(name, finished()),
            "whose compile lane failed": play(name, finished(conclusion="failure")),
            "waiting for approval": play(name, finished(conclusion="action_required")),
            "a merge group": play(name, finished("merge_group")),
            "no GPU here": play(name, finished(), variables={}),
            "refused by the gate": play(name, finished(), outcomes={"gpu": "failure"}),
            "nobody approved": play(name, finished(), outcomes={"gpu": "cancelled"}),
        }
    )
    measured = {case for case, jobs in found.items() if jobs["gpu"] != "skipped"}
    assert measured == {"a pull request", "refused by the gate", "nobody approved"}
    assert {case for case, jobs in found.items() if jobs["judge"] != "skipped"} == measured


@pytest.mark.parametrize(("base", "measured"), [("b" * 40, "success"), ("", "skipped")])
def test_nothing_is_measured_that_the_gate_left_out(base: str, measured: str) -> None:
    name = "warpwatch-gpu.yml"
    found = run(
        {
            "admitted": play(name, outputs={"plan": {"base": base}}),
            "refused": play(name, outcomes={"plan": "failure"}, outputs={"plan": {"base": base}}),
        }
    )
    assert found["admitted"] == {"plan": "success", "measure": measured}
    assert found["refused"]["measure"] == "skipped"


def test_a_pull_request_s_own_workflow_cannot_call_what_measures() -> None:
    """The runner group admits the called file, whoever calls it."""
    name, ready = "warpwatch-gpu.yml", {"plan": {"base": "b" * 40}}
    merge = {"event_name": "pull_request", "ref": "refs/pull/7/merge", "ref_name": "7/merge"}
    branch = {"ref": "refs/heads/mine", "ref_name": "mine"}
    target = {"event_name": "pull_request_target"}
    found = run(
        {
            "a pull request": play(name, github=merge, outputs=ready),
            "its target": play(name, github=target, outputs=ready),
            "a push to a branch": play(name, github=branch, outputs=ready),
            "after the compile lane": play(
                name, github={"event_name": "workflow_run"}, outputs=ready
            ),
        }
    )
    assert found.pop("after the compile lane") == {"plan": "success", "measure": "success"}
    assert all(set(jobs.values()) == {"skipped"} for jobs in found.values()), found


def test_a_push_to_the_default_branch_of_any_name_extends_the_history() -> None:
    name = "warpwatch-main.yml"
    other = {"ref": "refs/heads/mine", "ref_name": "mine"}
    found = run(
        {
            "the default branch": play(name),
            "another branch": play(name, github=other),
            "no GPU here": play(name, variables={}),
            "the compile lane died": play(name, outcomes={"compile": "failure"}),
            "the GPU machine is off": play(name, outcomes={"gpu": "failure"}),
            "cancelled": play(name, cancelled=True),
        }
    )
    jobs = ("compile", "gpu", "record", "record-gpu")
    ran = {case: [j for j in jobs if one[j] != "skipped"] for case, one in found.items()}
    assert ran == {
        "the default branch": list(jobs),
        "another branch": [],
        "no GPU here": ["compile", "record"],
        "the compile lane died": list(jobs),
        "the GPU machine is off": list(jobs),
        "cancelled": [],
    }


def test_a_night_is_of_the_default_branch() -> None:
    """By hand it can be started on any branch, whose code would then extend the history."""
    name = "warpwatch-nightly.yml"
    night = {"event_name": "schedule"}
    hand = {"event_name": "workflow_dispatch"}
    other = hand | {"ref": "refs/heads/mine", "ref_name": "mine"}
    # The event of a schedule names no repository.
    nameless: dict[str, Any] = {"repository": {}}
    found = run(
        {
            "a night": play(name, nameless, github=night),
            "by hand": play(name, github=hand),
            "by hand on another branch": play(name, github=other),
            "no GPU here": play(name, nameless, github=night, variables={}),
            "a shard died": play(name, nameless, github=night, outcomes={"fill": "failure"}),
            "cancelled": play(name, nameless, github=night, cancelled=True),
        }
    )
    jobs = ("plan", "fill", "record", "silent")
    ran = {case: [j for j in jobs if one[j] != "skipped"] for case, one in found.items()}
    assert ran == {
        "a night": list(jobs),
        "by hand": list(jobs),
        "by hand on another branch": [],
        "no GPU here": ["silent"],
        "a shard died": list(jobs),
        "cancelled": [],
    }


def test_a_matrix_is_read_as_the_plan_writes_it(tmp_path: Path) -> None:
    output = tmp_path / "output"
    plan = ["container", "plan", "--backends", "cuda", "rocm", "--output", str(output)]
    done = subprocess.run(
        [sys.executable, "-m", "warpwatch", *plan],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    matrix = output.read_text().strip().removeprefix("matrix=")
    one = play("warpwatch-nightly.yml")
    one["contexts"]["needs"] = {"plan": {"outputs": {"matrix": matrix}}}
    one["ask"] = [
        "fromJSON(needs.plan.outputs.matrix).include[0].backend",
        "fromJSON(needs.plan.outputs.matrix).include[1].runner != ''",
    ]
    (answer,) = ask([one])["plays"]
    first, named = answer["answers"]
    assert first == json.loads(matrix)["include"][0]["backend"]
    assert named == "true"


@pytest.mark.parametrize(
    ("variables", "starts"),
    [({}, "https://"), ({"PIP_EXTRA_INDEX_URL": "ours"}, "ours")],
    ids=["of a fork", "of a team"],
)
def test_a_run_without_variables_has_an_index_of_small_wheels(
    variables: dict[str, str], starts: str
) -> None:
    """GitHub gives no variable to a fork's pull request, nor to Dependabot's."""
    texts = {
        text
        for path in WORKFLOWS.glob("*.yml")
        for text in re.findall(r"PIP_EXTRA_INDEX_URL: \$\{\{ (.*?) \}\}", path.read_text())
    }
    assert texts
    (answer,) = ask([play("warpwatch-main.yml", variables=variables, ask=sorted(texts))])["plays"]
    assert len(answer["answers"]) == len(texts)
    assert all(one.startswith(starts) for one in answer["answers"])


@pytest.mark.parametrize(
    ("pages", "visibility", "published"),
    [
        ("yes", "public", True),
        ("no", "public", False),
        ("", "public", False),
        ("yes", "private", False),
        ("yes", "internal", False),
        ("yes", None, False),
        ("also of a private repository", "private", True),
    ],
)
def test_only_a_public_repository_publishes_unless_it_says_otherwise(
    pages: str, visibility: str | None, published: bool
) -> None:
    event = {"repository": PUBLIC | {"visibility": visibility}}
    one = play("warpwatch-publish.yml", event, variables={"WARPWATCH_PAGES": pages})
    assert (run({"it": one})["it"]["site"] == "success") is published


def test_a_dead_shard_is_red_after_all_else() -> None:
    name = "warpwatch-publish.yml"
    missing = {"record": {"missing": "results-cuda-1-of-1"}}
    found = run(
        {
            "all are there": play(name),
            "one is missing": play(name, outputs=missing),
            "no site": play(name, outputs=missing, outcomes={"site": "failure"}),
        }
    )
    assert [one["complete"] for one in found.values()] == ["skipped", "success", "success"]


def test_the_required_check_is_never_skipped() -> None:
    name = "warpwatch.yml"
    found = run(
        {
            "all well": play(name),
            "no image": play(name, outcomes={"image": "failure"}),
            "cancelled": play(name, cancelled=True),
        }
    )
    assert {one["done"] for one in found.values()} == {"success"}


def test_the_base_of_the_compile_lane() -> None:
    text = "github.event.merge_group.base_sha || format('origin/{0}', github.base_ref)"
    assert f"${{{{ {text} }}}}" in (WORKFLOWS / "warpwatch.yml").read_text()
    plays = [
        play("warpwatch.yml", ask=[text], github={"base_ref": "feature"}),
        play("warpwatch.yml", {"merge_group": {"base_sha": "c" * 40}}, ask=[text]),
    ]
    answers = [one["answers"] for one in ask(plays)["plays"]]
    assert answers == [["origin/feature"], ["c" * 40]]

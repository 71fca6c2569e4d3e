"""A GPU machine measures a stranger's commit only where somebody is asked to approve it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflows import stand_in
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE
from tests.workflows.stand_in import BASE, HEAD, MACHINE, OTHER, StandIn, manifest, zipped
from warpwatch.__main__ import main
from warpwatch.sandbox import images

REVIEWED = [
    {"type": "wait_timer", "wait_timer": 1},
    {"type": "required_reviewers", "reviewers": [{"type": "User", "reviewer": {"id": 1}}]},
]
PACKAGE = "src/fastops"


@pytest.fixture
def gate(github: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Asks for one event; the exit code, and what was written for the workflow."""
    project = tmp_path / "project"
    (project / PACKAGE).mkdir(parents=True)
    (project / "warpwatch.toml").write_text(
        f'[package]\nname = "fastops"\npath = "{PACKAGE}"\n'
        '[[workload]]\nname = "a"\ncall = "fastops:a"\nargs = "bf16[1]"\n'
    )
    monkeypatch.chdir(project)
    monkeypatch.setenv("WARPWATCH_CONFIG", str(project / "warpwatch.toml"))

    def ask(kind: str = "workflow_run", environment: str = "gpu", **event: Any) -> tuple[int, str]:
        path = stand_in.write_event(tmp_path, **event)
        monkeypatch.setenv("GITHUB_EVENT_NAME", kind)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(path))
        output = tmp_path / "output"
        output.unlink(missing_ok=True)
        command = ["ci", "gate", "--environment", environment, "--base", OTHER]
        code = main([*command, "--output", str(output)])
        return code, output.read_text() if output.exists() else ""

    github.environments["gpu"] = REVIEWED
    return ask


@pytest.mark.parametrize(
    "rules",
    [
        None,
        [],
        [{"type": "branch_policy"}],
        [{"type": "required_reviewers", "reviewers": []}],
        [{"type": "required_reviewers"}],
        [None],
    ],
    ids=["missing", "unprotected", "branches alone", "nobody", "no list", "odd"],
)
def test_an_environment_that_asks_nobody_is_refused(
    gate: Any, github: StandIn, capsys: pytest.CaptureFixture[str], rules: list[Any] | None
) -> None:
    github.environments.clear()
    if rules is not None:
        github.environments["gpu"] = rules
    assert gate() == (2, "")
    assert "has no required reviewers" in capsys.readouterr().err


def test_a_misspelt_environment_is_refused(gate: Any) -> None:
    assert gate(environment="gpus") == (2, "")


def test_an_api_that_cannot_say_it_refuses(gate: Any, github: StandIn) -> None:
    github.trouble["GET environments"] = [500] * 9
    assert gate() == (2, "")


@pytest.mark.parametrize("kind", ["", "pull_request", "pull_request_target", "issue_comment"])
def test_other_events_never_measure(gate: Any, kind: str) -> None:
    assert gate(kind) == (2, "")


@pytest.mark.parametrize("kind", ["push", "schedule", "workflow_dispatch"])
def test_the_default_branch_s_own_events_need_nobody(gate: Any, github: StandIn, kind: str) -> None:
    github.environments.clear()
    assert gate(kind) == (0, f"base={OTHER}\n")


def test_a_stacked_pull_request_is_measured_against_its_own_base(
    gate: Any, github: StandIn
) -> None:
    assert gate() == (0, f"base={BASE}\n")
    github.pulls[:] = []
    github.pull_request(branch="feature")
    github.departed["feature"] = OTHER
    assert gate() == (0, f"base={OTHER}\n")


@pytest.mark.parametrize(
    ("claim", "measured"), [(BASE, BASE), (OTHER, OTHER), ("d" * 40, BASE), (None, BASE)]
)
def test_of_two_pull_requests_with_one_head_each_run_measures_its_own(
    gate: Any, github: StandIn, claim: str | None, measured: str
) -> None:
    """A claim chooses among the bases that the API names, and adds none."""
    github.pull_request(number=8, branch="release")
    github.departed["release"] = OTHER
    if claim:
        github.artifacts[ONE_OF_ONE] = zipped({"shard.json": json.dumps(manifest(base=claim))})
    assert gate() == (0, f"base={measured}\n")


def test_a_head_that_was_pushed_over_is_not_measured(gate: Any, github: StandIn) -> None:
    github.pulls[:] = []
    assert gate() == (0, "base=\n")


def trees(github: StandIn, head: str) -> None:
    for commit, folder in ((BASE, "1" * 40), (HEAD, head)):
        github.trees |= {(commit, "src"): commit[::-1], (commit, PACKAGE): folder}
        github.trees[commit, "src"] = ("2" if commit == BASE else "3") * 40


@pytest.mark.parametrize(
    ("head", "said"), [("1" * 40, "base=\n"), ("4" * 40, f"base={BASE}\n")], ids=["same", "other"]
)
def test_a_change_of_documents_alone_asks_for_no_approval(
    gate: Any, github: StandIn, head: str, said: str
) -> None:
    trees(github, head)
    assert gate() == (0, said)


@pytest.mark.parametrize(("status", "said"), [(404, (0, f"base={BASE}\n")), (401, (2, ""))])
def test_what_the_api_does_not_know_of_folders_is_measured(
    gate: Any, github: StandIn, status: int, said: tuple[int, str]
) -> None:
    trees(github, "1" * 40)
    github.trouble["GET git/trees"] = [status]
    assert gate() == said


@pytest.mark.parametrize(
    ("head", "conclusion"), [("1" * 40, "success"), ("4" * 40, "action_required")]
)
def test_a_package_that_is_the_same_is_no_regression_and_anything_else_is_missing(
    gate: Any, github: StandIn, tmp_path: Path, head: str, conclusion: str
) -> None:
    trees(github, head)
    judged(tmp_path)
    (check,) = github.checks
    assert (check["name"], check["conclusion"]) == ("warpwatch cuda", conclusion)
    if conclusion == "success":
        assert check["output"]["title"] == "no regression: the measured package is the same"


def judged(folder: Path) -> None:
    """The judge of a GPU lane that delivered nothing."""
    trusted = stand_in.write_trusted(folder / "trusted", GOOD_BASE)
    versions = folder / "versions.toml"
    versions.write_text(f'[backends.cuda]\nshards = 1\nmachine = "{MACHINE}"\n')
    command = ["ci", "judge", "--event", str(stand_in.write_event(folder)), "--lane", "cuda"]
    command += ["--versions", str(versions), "--trusted", str(trusted)]
    assert main([*command, "--out", str(folder / "verdict.json")]) == 0


def test_of_two_with_one_head_the_unmeasured_one_gets_no_verdict_of_the_other_s_run(
    gate: Any, github: StandIn, tmp_path: Path
) -> None:
    trees(github, "4" * 40)
    github.pull_request(number=8, branch="release")
    github.departed["release"] = OTHER
    github.trees |= {(OTHER, "src"): "5" * 40, (OTHER, PACKAGE): "4" * 40}
    judged(tmp_path)
    found = [(check["name"], check["conclusion"]) for check in github.checks]
    assert found == [("warpwatch cuda on release", "success")]


def test_nothing_is_measured_before_the_gate_and_against_no_other_base() -> None:
    text = (images.root() / ".github" / "workflows" / "warpwatch-gpu.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    runs = [step["run"] for step in jobs["plan"]["steps"] if "run" in step]
    assert runs == [f"make --file docker/targets.mk {name}" for name in ("ci-gate", "ci-plan")]
    gate = jobs["plan"]["steps"][1]["env"]
    assert gate["ENVIRONMENT"] == jobs["measure"]["environment"]["name"]
    assert (jobs["measure"]["needs"], jobs["measure"]["if"]) == (
        "plan",
        "needs.plan.outputs.base != ''",
    )
    measured = [step["env"] for step in jobs["measure"]["steps"] if "BASE" in step.get("env", {})]
    assert len(measured) == 2
    assert {env["BASE"] for env in measured} == {"${{ needs.plan.outputs.base }}"}


def test_the_gate_needs_nothing_but_python() -> None:
    """It runs on a bare runner, before anything is installed: no site-packages here either."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    code = f"import sys; sys.path.insert(0, {str(images.root())!r}); "
    code += "from warpwatch.__main__ import main; "
    command = [str(python), "-I", "-S", "-c", code + "sys.exit(main(sys.argv[1:]))"]
    asked = ["ci", "gate", "--environment", "gpu", "--base", OTHER]
    done = subprocess.run(
        [*command, *asked],
        capture_output=True,
        text=True,
        cwd=images.root(),
        env={"GITHUB_EVENT_NAME": "push"},
        timeout=900,
    )
    assert (done.returncode, done.stdout) == (0, f"{OTHER}\n"), done.stderr

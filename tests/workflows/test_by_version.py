"""A project's workflows call Warpwatch's by version; one line is enough for the compile lane."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import warpwatch
from tests.containers.foreign import git
from tests.workflows.test_checkers import check, tool
from tests.workflows.test_github_parser import ask, finished, play
from warpwatch.commands.setup import starter
from warpwatch.commands.setup.starter import Origin, origin_of
from warpwatch.sandbox import images

ROOT = images.root()
WORKFLOWS = ROOT / ".github" / "workflows"
COMMIT = "c" * 40
PINNED = Origin("team/warpwatch", COMMIT, "v0.2.0")
CALL = re.compile(r"uses: team/warpwatch/\.github/workflows/([\w-]+\.yml)@(\S+)(?: # (\S+))?")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    git(folder, "init", "--quiet")
    starter.write(folder, PINNED)
    return folder


def jobs(path: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["jobs"]
    return found


def test_jobs_on_hosted_runners_are_called_and_those_beside_a_gpu_are_the_project_s(
    project: Path,
) -> None:
    """An organisation's runner group takes no workflow of another organisation."""
    folder = project / ".github" / "workflows"
    calls = {path.name: CALL.findall(path.read_text()) for path in folder.iterdir()}
    assert {name: [one for one, *_ in found] for name, found in calls.items()} == {
        "warpwatch.yml": ["warpwatch-lane.yml"],
        "warpwatch-gpu.yml": [],
        "warpwatch-judge.yml": ["warpwatch-verdict.yml"],
        "warpwatch-main.yml": ["warpwatch-lane.yml", *["warpwatch-publish.yml"] * 2],
        "warpwatch-nightly.yml": ["warpwatch-publish.yml"],
        "warpwatch-pull-request-gpu.yml": ["warpwatch-verdict.yml"],
    }
    assert {tuple(rest) for found in calls.values() for _, *rest in found} == {(COMMIT, "v0.2.0")}
    text = "".join(path.read_text() for path in folder.iterdir())
    assert set(re.findall(r"uses: \./(\S+)", text)) == {".github/workflows/warpwatch-gpu.yml"}
    targets = (project / "docker" / "targets.mk").read_text()
    assert f"WARPWATCH ?= git+https://github.com/team/warpwatch@{COMMIT}\n" in targets


def test_who_calls_allows_what_the_called_asks_for(project: Path) -> None:
    """GitHub refuses a call whose jobs ask for more than the caller has."""
    seen = 0
    for path in (project / ".github" / "workflows").iterdir():
        for name, job in jobs(path).items():
            if "uses" not in job:
                continue
            called = WORKFLOWS / job["uses"].partition("@")[0].rpartition("/")[2]
            asked = [one["permissions"] for one in jobs(called).values()]
            for permissions in asked:
                for right, level in permissions.items():
                    given = job["permissions"].get(right)
                    assert given in (level, "write"), f"{path.name} {name}: {right}"
                    seen += 1
            inputs = yaml.safe_load(called.read_text())[True]["workflow_call"]["inputs"]
            assert {k for k, v in inputs.items() if v.get("required")} <= job["with"].keys()
    assert seen > 15


@pytest.mark.tools
def test_zizmor_finds_nothing_in_a_project_s_workflows(project: Path) -> None:
    folder = project / ".github" / "workflows"
    check(tool("bin/zizmor"), "--offline", "--persona", "pedantic", str(folder))


@pytest.mark.tools
def test_github_s_parser_takes_them_with_what_they_call(project: Path, tmp_path: Path) -> None:
    names = [path.name for path in (project / ".github" / "workflows").iterdir()]
    for path in WORKFLOWS.glob("warpwatch*.yml"):
        shutil.copyfile(path, tmp_path / path.name)
    for name in names:
        shutil.copyfile(project / ".github" / "workflows" / name, tmp_path / name)
    found = ask([], tmp_path)["problems"]
    assert not [name for name in names if found[name]]
    judged = ask([play("warpwatch-judge.yml", finished())], tmp_path)["plays"]
    assert judged[0]["results"] == {"judge": "success"}


def test_where_the_workflows_are_is_what_the_user_says() -> None:
    version = f"v{warpwatch.__version__}"
    assert origin_of("team/warpwatch") == Origin("team/warpwatch", version)
    assert origin_of("team/warpwatch@main") == Origin("team/warpwatch", "main")
    for wrong in (
        "team",
        "https://github.com/team/warpwatch",
        "team/warpwatch@",
        "a/b/c",
        "a/$(b)",
    ):
        with pytest.raises(ValueError, match=r"--from: expected OWNER/NAME"):
            origin_of(wrong)


def test_a_shortened_commit_is_refused_as_github_does() -> None:
    with pytest.raises(ValueError, match="all 40 digits of a commit, got '1f2e3d4c'"):
        origin_of("team/warpwatch@1f2e3d4c")
    for taken in (COMMIT, "20261130", "v1.2.3", "main"):
        assert origin_of(f"team/warpwatch@{taken}").version == taken


def test_folders_that_git_would_add_are_named_until_it_ignores_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "tutorials" / "first-flagged-pull-request.md").read_text()
    page = page.replace("\\\n", "")
    (said,) = re.findall(r"printf '%s\\n' (.*) >> \.gitignore", page)
    for root in (tmp_path / "one", tmp_path / "two"):
        root.mkdir()
        git(root, "init", "--quiet")
    (tmp_path / "two" / ".gitignore").write_text("\n".join(shlex.split(said)) + "\n")
    starter.write(tmp_path / "one", origin_of("team/warpwatch"))
    (named,) = re.findall(r"printf '%s\\n' (.*) >> \.gitignore", capsys.readouterr().err)
    assert shlex.split(named) == list(starter.IGNORED)
    starter.write(tmp_path / "two", origin_of("team/warpwatch"))
    assert ".gitignore" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/team/warpwatch", "github.com team/warpwatch"),
        ("https://github.com/team/warpwatch.git", "github.com team/warpwatch"),
        ("ssh://git@ghe.example/team/warpwatch.git", "ghe.example team/warpwatch"),
        ("https://token@github.com/team/warp.watch/", "github.com team/warp.watch"),
        ("https://example.com/simple/deep/warpwatch", ""),
    ],
)
def test_or_where_pip_installed_it_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, expected: str
) -> None:
    known = {
        "url": url,
        "vcs_info": {"vcs": "git", "commit_id": COMMIT, "requested_revision": "v9"},
    }

    class Installed:
        def read_text(self, _: str) -> str:
            return json.dumps(known)

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    if expected:
        found = origin_of("", tmp_path)
        assert (f"{found.host} {found.repository}", found.version) == (expected, COMMIT)
        assert found.comment == "v9" and "token" not in found.address
    else:
        with pytest.raises(ValueError, match="so it is not known"):
            origin_of("", tmp_path)


def test_or_the_origin_of_the_clone_that_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Installed:
        def read_text(self, _: str) -> None:
            return None

    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    with pytest.raises(ValueError, match="was not installed from there"):
        origin_of("", tmp_path)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "one")
    git(tmp_path, "remote", "add", "origin", "git@github.com:team/warpwatch.git")
    head = git(tmp_path, "rev-parse", "HEAD").strip()
    assert origin_of("", tmp_path) == Origin("team/warpwatch", head)
    git(tmp_path, "tag", "v0.2.0")
    assert origin_of("", tmp_path) == Origin("team/warpwatch", head, "v0.2.0")


def test_the_workflow_of_one_line_is_the_action_of_its_own_commit() -> None:
    document = yaml.safe_load((WORKFLOWS / "warpwatch-compile.yml").read_text())
    (job,) = document["jobs"].values()
    mine, harness, lane = job["steps"]
    assert mine["with"] == {"persist-credentials": False, "fetch-depth": 0}
    place = {"repository": "workflow_repository", "ref": "workflow_sha"}
    found = {key: f"${{{{ fromJSON(toJSON(job)).{name} }}}}" for key, name in place.items()}
    assert harness["with"] == found | {"persist-credentials": False, "path": ".warpwatch-harness"}
    assert lane["uses"] == f"./{harness['with']['path']}"
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    assert lane["with"].pop("checkout") == "false"
    assert action["runs"]["steps"][0]["if"] == "inputs.checkout != 'false'"
    inputs = document[True]["workflow_call"]["inputs"]
    assert lane["with"] == {name: f"${{{{ inputs.{name} }}}}" for name in inputs}
    asked = {name: one["default"] for name, one in action["inputs"].items() if name != "checkout"}
    assert {name: one["default"] for name, one in inputs.items()} == asked


@pytest.mark.tools
def test_what_is_compared_for_each_event() -> None:
    inputs = yaml.safe_load((WORKFLOWS / "warpwatch-compile.yml").read_text())[True]
    asked = [inputs["workflow_call"]["inputs"][name]["default"][4:-3] for name in ("base", "head")]
    events: dict[str, tuple[dict[str, Any], list[str]]] = {
        "a pull request": (
            {"pull_request": {"base": {"sha": "1"}, "head": {"sha": "2"}}},
            ["1", "2"],
        ),
        "a merge group": ({"merge_group": {"base_sha": "3"}}, ["3", "a" * 40]),
        "a push": ({"before": "4"}, ["4", "a" * 40]),
    }
    plays = [play("warpwatch-compile.yml", event, ask=asked) for event, _ in events.values()]
    answers = [one["answers"] for one in ask(plays)["plays"]]
    assert answers == [expected for _, expected in events.values()]

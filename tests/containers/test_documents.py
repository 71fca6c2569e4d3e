"""Tutorials and guides do as they say: their files are written and their commands run."""

from __future__ import annotations

import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from tests.containers.conftest import newcomer
from tests.containers.documents import blocks, carry_out, make_targets
from tests.containers.foreign import (
    ITS_OWN,
    TWO_LAUNCHES,
    foreign_repository,
    git,
    virtual_environment,
    write,
)
from warpwatch.sandbox import images

DOCS = images.root() / "docs"
OWN_PACKAGE = DOCS / "tutorials" / "your-own-package.md"
SECURITY = DOCS / "explanation" / "security.md"
RUNNER = DOCS / "guides" / "gpu-runner.md"
PAGES = [
    *sorted((DOCS / "tutorials").glob("*.md")),
    *sorted((DOCS / "guides").glob("*.md")),
    SECURITY,
]


@pytest.mark.slow
def test_a_foreign_package_is_measured_after_its_section_alone(tmp_path: Path, wheel: Path) -> None:
    repository = foreign_repository(tmp_path, wheel)
    environment = newcomer(tmp_path / "home", repository / ".warpwatch-venv" / "bin")
    # Before the page, so that its own measurement holds it: no second one is needed.
    write(repository, "src/fastops/__init__.py", TWO_LAUNCHES)
    git(repository, "commit", "--quiet", "--all", "--message", "a second launch")
    carry_out(OWN_PACKAGE, repository, environment)
    assert (repository / ".github" / "workflows" / "warpwatch.yml").is_file()
    for name, text in ITS_OWN.items():
        assert (repository / name).read_text().startswith(text), name
    assert (repository / "reports" / "html" / "index.html").is_file()
    run = partial(subprocess.run, cwd=repository, env=environment, capture_output=True, text=True)
    assert git(repository, "log", "--format=%s").split("\n")[:3] == [
        "Warpwatch",
        "a second launch",
        "notes",
    ]
    compare = ["warpwatch", "compare", "--recorded", "HEAD~2", "HEAD~1", "--json"]
    done = run(compare, timeout=900)
    assert done.returncode == 1, done.stderr
    series = [s for s in json.loads(done.stdout)["series"] if s["target"]]  # what is exact
    found = [s for s in series if s["verdict"] == "regressed"]
    told = {(s["metric"], s["workload"], s["before"], s["after"]) for s in found}
    sizes = (4096, 1 << 20)
    assert {("launches", f"gelu-float16-{size}", 1.0, 2.0) for size in sizes} <= told
    assert {s["target"] for s in found} == {
        *("sm_80", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")
    }


def test_the_newcomer_s_commands_run(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(images.root()), str(clone))
    virtual_environment(clone)
    doctor, command, plan = carry_out(
        RUNNER, clone, newcomer(tmp_path / "home", clone / ".venv" / "bin")
    )
    assert "the main job can run" in doctor
    assert command.startswith("docker run --rm --hostname") and "--network none" in command
    assert json.loads(plan)["include"][0]["backend"] == "cuda"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_target_a_page_names_exists(page: Path) -> None:
    makefile = "".join(
        (images.root() / name).read_text()
        for name in ("Makefile", "docker/targets.mk", "docker/tools.mk")
    )
    known = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.MULTILINE))
    assert make_targets(page) <= known


def test_every_threat_names_tests_that_exist() -> None:
    text = SECURITY.read_text()
    threats = text.split("\n### ")[1:]
    assert len(threats) >= 8
    known = {
        name
        for path in (images.root() / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    for threat in threats:
        named = set(re.findall(r"`(test_\w+)`", threat))
        assert named and named <= known, threat.splitlines()[0]


def test_the_table_of_what_was_tried_has_every_file_and_names_tests_that_exist() -> None:
    text = RUNNER.read_text().split("## Tried, and not tried")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    assert all(len(row) == 4 and all(cell.strip(" |") for cell in row) for row in rows)
    named = {name for row in rows for name in re.findall(r"`([\w.-]+\.\w+)`", row[0])}
    root = images.root()
    files = [
        *(root / ".github" / "workflows").glob("*.yml"),
        *(root / "docker" / "runner").iterdir(),
        *(root / "docker").glob("*.Dockerfile"),
        *(root / "examples" / "ci").iterdir(),
        root / "docker" / "compose.yaml",
        root / "action.yml",
    ]
    assert named == {path.name for path in files} - {"tests.yml", "__pycache__"}
    tests = {name for row in rows for name in re.findall(r"`(\w+\.py)`", row[2])}
    assert tests <= {path.name for path in (root / "tests").rglob("test_*.py")}


def test_no_block_of_a_page_is_left_out_by_accident() -> None:
    languages = {block.language for page in PAGES for block in blocks(page)}
    assert languages <= {"bash", "console", "toml", "json", "python", "text"}

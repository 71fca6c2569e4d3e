"""The files that a visitor of a repository looks for: they are there, valid and true."""

from __future__ import annotations

import subprocess

import pytest
import yaml

import warpwatch
from tests.root import ROOT

FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
CHECKER = ROOT / ".tools" / "bin" / "check-jsonschema"


def test_the_citation_names_this_version_and_its_day() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(cited)
    assert cited["version"] == warpwatch.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{cited['version']}] - {cited['date-released']}" in changes


@pytest.mark.tools
@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("vendor.github-issue-config", ["config.yml"]),
        ("vendor.github-issue-forms", ["defect.yml", "idea.yml", "verdict.yml"]),
    ],
)
def test_issue_templates_are_valid(schema: str, names: list[str]) -> None:
    if not CHECKER.is_file():
        pytest.skip(f"{CHECKER} is not there: make setup-tools")
    files = [str(FORMS / name) for name in names]
    done = subprocess.run(
        [str(CHECKER), "--builtin-schema", schema, *files],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {one.name for one in FORMS.glob("*.yml")} == {
        "config.yml",
        "defect.yml",
        "idea.yml",
        "verdict.yml",
    }


def test_nobody_is_named_who_was_not_asked() -> None:
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff"):
        assert "@" not in (ROOT / name).read_text(encoding="utf-8"), "an address"

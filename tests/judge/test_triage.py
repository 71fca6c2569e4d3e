"""Accepted findings: written, read back, refused with every mistake, and expiring."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reports import trees
from warpwatch.__main__ import main
from warpwatch.commands.results import accept
from warpwatch.judge.findings import triage
from warpwatch.judge.findings.judgement import judge_folders
from warpwatch.judge.model.core import Finding
from warpwatch.judge.series.addresses import finding_path

TODAY = datetime.date.today()
ID = "0123456789ab"
FINDING = Finding(ID, "regressed", ("c",), (), 1.0)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "triage.toml"
    path.write_text("schema_version = 1\n")
    return path


def test_the_shipped_file_is_read() -> None:
    triage.load()


@pytest.fixture
def no_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command has no results that a name could be held against."""
    monkeypatch.setattr(accept, "default_results", lambda: (tmp_path / "nothing",))


@pytest.mark.usefixtures("no_results")
def test_an_accepted_finding_counts_again_when_it_expires(file: Path) -> None:
    command = ["accept", ID, "--owner", "ada", "--reason", "traded for memory", "--days", "30"]
    assert main([*command, "--file", str(file)]) == 0
    (accepted,) = triage.load(file)
    # Of the day of this very line, which need not be the day on which the tests began.
    assert TODAY <= accepted.accepted <= datetime.date.today()
    assert accepted.expires == accepted.accepted + datetime.timedelta(days=30)
    assert triage.remaining([FINDING], [accepted], accepted.expires) == []
    later = accepted.expires + datetime.timedelta(days=1)
    assert triage.remaining([FINDING], [accepted], later) == [FINDING]
    assert main([*command, "--file", str(file)]) == 2  # twice


@pytest.mark.usefixtures("no_results")
def test_the_first_acceptance_makes_the_file(tmp_path: Path) -> None:
    file = tmp_path / "reports" / "triage.toml"
    command = ["accept", "--owner", "ada", "--reason", "meant", "--file", str(file)]
    assert main([*command, ID]) == 0
    assert main([*command, ID[::-1]]) == 0
    assert [one.finding for one in triage.load(file)] == [ID, ID[::-1]]
    assert file.read_text().startswith("# Findings that were looked at")


@pytest.mark.usefixtures("no_results")
def test_a_reason_is_required(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = file.read_text()
    arguments = ["accept", ID, "--owner", "ada", "--reason", " ", "--file", str(file)]
    assert main(arguments) == 2
    assert "reason: expected some text" in capsys.readouterr().err
    assert file.read_text() == before


def test_every_mistake_is_named(file: Path) -> None:
    file.write_text(
        "schema_version = 3\nnonsense = 1\n[[accepted]]\nfinding = 'x'\nowner = 1\n"
        "accepted = 2026-01-01\nexpires = 2028-01-01\nwhy = 'no'\n"
    )
    with pytest.raises(ValueError) as caught:
        triage.load(file)
    for part in (
        "schema_version",
        "nonsense: unknown key",
        "finding: expected 12",
        "owner: expected some text",
        "reason: is missing",
        "why: unknown key",
        "expires: expected 1 to 366 days",
    ):
        assert part in str(caught.value)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_is_written_so_that_it_reads_back(
    tmp_path_factory: pytest.TempPathFactory, owner: str, reason: str
) -> None:
    file = tmp_path_factory.mktemp("triage") / "triage.toml"
    file.write_text("schema_version = 1\n")
    expires = TODAY + datetime.timedelta(days=1)
    acceptance = triage.Acceptance(ID, owner, reason, TODAY, expires)
    try:
        triage.accept(file, acceptance)
    except ValueError:
        assert triage.load(file) == ()
    else:
        assert triage.load(file) == (acceptance,)


def test_only_a_finding_of_the_results_is_accepted_by_its_identity_or_its_page(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tree = trees.compiled_tree(tmp_path / "t", {"launches": [1, 2]})
    (finding,) = judge_folders([tree.results], tree.repo).findings
    given = ["--results", str(tree.results), "--repo", str(tree.repo), "--file", str(file)]
    command = ["accept", "--owner", "ada", "--reason", "meant", *given]
    assert main([*command, ID]) == 2
    said = capsys.readouterr().err
    assert "judging 1 series over 2 commits" in said, "a long history takes half a minute"
    assert f"none that is called '{ID}', but 1 other, such as {finding.identity}" in said
    assert triage.load(file) == ()
    assert main([*command, f"reports/html/{finding_path(finding.identity)}"]) == 0
    assert [one.finding for one in triage.load(file)] == [finding.identity]
    assert f"{finding.identity} is accepted" in capsys.readouterr().out
    assert main([*command, finding.identity]) == 2  # twice


def test_what_is_open_before_a_day_is_accepted_in_one_command(
    tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = 86_400
    tree = trees.compiled_tree(
        tmp_path / "t", {"launches": [1, 2, 2, 2], "spilled_bytes": [0, 0, 0, 8]}
    )
    history = judge_folders([tree.results], tree.repo)
    moment = history.commit(tree.commits[1]).time_s
    given = ["--results", str(tree.results), "--repo", str(tree.repo), "--file", str(file)]
    command = ["accept", "--owner", "ada", "--reason", "the baseline", *given]

    def before(time_s: int) -> list[str]:
        date = datetime.datetime.fromtimestamp(time_s, datetime.UTC).date().isoformat()
        return [*command, "--before", date]

    assert main(before(moment - day)) == 0
    assert "0 findings are accepted" in capsys.readouterr().out
    assert triage.load(file) == ()
    assert main(before(moment + 2 * day)) == 0
    accepted = {one.finding for one in triage.load(file)}
    assert accepted == {one.identity for one in history.findings}
    verb = "finding is" if len(accepted) == 1 else "findings are"
    assert f"{len(accepted)} {verb} accepted" in capsys.readouterr().out
    # Again: what is accepted is no mistake.
    assert main(before(moment + 2 * day)) == 0
    for wrong in ([ID, "--before", "2026-01-01"], ["--before", "yesterday"], []):
        with pytest.raises(SystemExit, match="2"):
            main([*command, *wrong])

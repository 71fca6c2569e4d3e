"""Which commits `history` measures: those of tags, or those that touch a path."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import pytest

from warpwatch.commands.measure import history, queues
from warpwatch.commands.measure.choice import commits_of_tags, commits_that_touch

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@example.invalid")


def git(repository: Path, *arguments: str) -> str:
    command = ("git", "-C", str(repository), *AUTHOR, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five commits: v1 and v3 are plain tags, v2 is annotated, v9 lies on another branch."""
    top = tmp_path_factory.mktemp("tagged")
    git(top, "init", "-q", "-b", "main")
    for number, folder in enumerate(("ops", "docs", "ops", "models", "docs"), 1):
        (top / folder).mkdir(exist_ok=True)
        (top / folder / "file").write_text(str(number))
        git(top, "add", "-A")
        git(top, "commit", "-qm", f"commit {number}")
        if number in (1, 4):
            git(top, "tag", {1: "v1", 4: "v3"}[number])
        if number == 2:
            git(top, "tag", "-a", "v2", "-m", "second")
            git(top, "tag", "nightly")
    git(top, "checkout", "-qb", "side", "v1")
    git(top, "commit", "-qm", "aside", "--allow-empty")
    git(top, "tag", "v9")
    git(top, "checkout", "-q", "main")
    return top


def subjects(repository: Path, commits: list[str]) -> list[str]:
    return [git(repository, "log", "-1", "--format=%s", one).strip() for one in commits]


@pytest.mark.parametrize(
    ("pattern", "count", "expected"),
    [
        ("v*", 0, ["commit 4", "commit 2", "commit 1"]),
        ("v*", 2, ["commit 4", "commit 2"]),
        ("v[12]", 0, ["commit 2", "commit 1"]),
        ("*", 0, ["commit 4", "commit 2", "commit 1"]),
    ],
)
def test_commits_of_tags_are_in_the_order_of_history(
    repository: Path, pattern: str, count: int, expected: list[str]
) -> None:
    assert subjects(repository, commits_of_tags(pattern, count, repository)) == expected


def test_a_pattern_without_a_tag_names_tags_that_are_there(repository: Path) -> None:
    with pytest.raises(ValueError, match=r"no tag of .* matches; it has 5, such as v2, v3, v9"):
        commits_of_tags("release-*", 0, repository)


def test_tags_of_another_branch_only_are_said_to_be_so(repository: Path) -> None:
    with pytest.raises(ValueError, match="holds none of the 1 tagged commits"):
        commits_of_tags("v9", 0, repository)


def test_several_paths_may_be_touched(repository: Path) -> None:
    assert subjects(repository, commits_that_touch("ops", 0, repository)) == [
        "commit 3",
        "commit 1",
    ]
    both = commits_that_touch(("ops", "models"), 2, repository)
    assert subjects(repository, both) == ["commit 4", "commit 3"]


def test_tags_and_paths_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    history.add_arguments(parser)
    assert parser.parse_args(["--tags", "v*"]).tags == "v*"
    assert parser.parse_args(["--touching", "a", "--touching", "b"]).touching == ["a", "b"]
    with pytest.raises(SystemExit):
        parser.parse_args(["--tags", "v*", "--touching", "a"])
    assert "not allowed with" in capsys.readouterr().err


def test_history_measures_the_commits_that_were_chosen(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The real choice up to asv, which is not run."""
    configuration = tmp_path / "warpwatch.toml"
    configuration.write_text(
        f'[package]\nname = "ops"\npath = "ops"\nrepository = "{repository}"\n'
        '[[workload]]\nname = "w"\ncall = "ops:f"\n'
    )
    monkeypatch.setenv("WARPWATCH_CONFIG", str(configuration))
    monkeypatch.setattr(history, "is_registered", lambda machine: True)
    seen: list[str] = []

    def stages(commits: list[str], *_: object) -> list[list[queues.Queue]]:
        seen.extend(commits)
        return []

    monkeypatch.setattr(history, "stages", stages)
    monkeypatch.setattr(history.presence, "has_gpu", lambda: False)
    parser = argparse.ArgumentParser()
    history.add_arguments(parser)
    for words, expected, said in (
        (["--tags", "v*", "--commits", "1"], ["commit 4"], "1 commit with a tag v*"),
        (["--touching", "models"], ["commit 4"], "1 commit that touches models"),
        ([], ["commit 3", "commit 1"], "2 commits that touch "),
    ):
        seen.clear()
        history.main(parser.parse_args(words))
        assert subjects(repository, seen) == expected
        assert f"measuring {said}" in capsys.readouterr().err

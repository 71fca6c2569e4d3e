"""The data branch only grows: pushes that race lose nothing, old evidence goes, silence is seen."""

from __future__ import annotations

import json
import math
import os
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.containers.foreign import git
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    ENVIRONMENT,
    HEAD,
    MACHINE,
    SPILLS,
    result,
)
from warpwatch.__main__ import main
from warpwatch.ci import branch


def results(folder: Path, commit: str, machine: str = MACHINE, **more: object) -> Path:
    place = folder / machine
    place.mkdir(parents=True, exist_ok=True)
    (folder / "benchmarks.json").write_text(json.dumps(BENCHMARKS))
    (place / "machine.json").write_text(json.dumps({"machine": machine, "version": 1}))
    document = result(commit, [0, 0, 0], [3, 3, 3], **more)
    (place / f"{commit[:8]}-{ENVIRONMENT}.json").write_text(json.dumps(document))
    return folder


def files_on(remote: str) -> set[str]:
    listing = ["git", "-C", remote, "ls-tree", "-r", "--name-only", branch.BRANCH]
    done = subprocess.run(listing, check=True, capture_output=True, text=True, timeout=120)
    return set(done.stdout.split())


def count_of(remote: str) -> int:
    listing = ["git", "-C", remote, "rev-list", "--count", branch.BRANCH]
    return int(
        subprocess.run(listing, check=True, capture_output=True, text=True, timeout=120).stdout
    )


def test_results_are_appended_and_fetched_back(remote: str, tmp_path: Path) -> None:
    for number, commit in enumerate((BASE, HEAD)):
        folder = results(tmp_path / str(number), commit)
        assert main(["ci", "record", "push", str(folder), "--remote", remote]) == 0
    assert count_of(remote) == 2
    out = tmp_path / "out"
    assert main(["ci", "record", "fetch", "--out", str(out), "--remote", remote]) == 0
    names = {path.name for path in (out / "results" / MACHINE).iterdir()}
    expected = {f"{commit[:8]}-{ENVIRONMENT}.json" for commit in (BASE, HEAD)}
    assert names == expected | {"machine.json"}


@pytest.mark.parametrize("file", [f"{BASE[:8]}-{ENVIRONMENT}.json", "machine.json"])
def test_a_file_that_cannot_be_read_is_not_recorded_and_no_obstacle(
    remote: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    """The branch is never rewritten: there it would be a notice in each report, for good."""
    folder = results(tmp_path / "cut", BASE)
    name = f"{MACHINE}/{file}"
    whole = (folder / name).read_text()
    (folder / name).write_text(whole[:-9])
    assert main(["ci", "record", "push", str(folder), "--remote", remote]) == 0
    assert f"{name}: not recorded: is cut short or not JSON" in capsys.readouterr().err
    assert f"results/{name}" not in files_on(remote)
    # One that an earlier version has recorded makes room for the commit's values.
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--branch", branch.BRANCH, remote, str(clone))
    (clone / "results" / name).write_text(whole[:-9])
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "--message", "as an earlier version did")
    git(clone, "push", "--quiet", "origin", branch.BRANCH)
    assert main(["ci", "record", "push", str(results(folder, BASE)), "--remote", remote]) == 0
    assert main(["ci", "record", "fetch", "--out", str(tmp_path / "o"), "--remote", remote]) == 0
    assert json.loads((tmp_path / "o" / "results" / name).read_text()) == json.loads(whole)


def test_pushes_that_race_lose_nothing(remote: str, tmp_path: Path) -> None:
    commits = [f"{number:x}" * 40 for number in range(1, 6)]
    folders = [results(tmp_path / c[:4], c, machine=f"runner-{c[0]}") for c in commits]
    failures: list[Exception] = []

    def push(folder: Path) -> None:
        try:
            branch.record(remote, [folder], message="race", retries=20)
        except ValueError as error:
            failures.append(error)

    threads = [threading.Thread(target=push, args=(folder,)) for folder in folders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert count_of(remote) == len(commits), "every push is a commit of its own, none rewritten"
    recorded = {name.split("/")[1] for name in files_on(remote) if name.count("/") == 2}
    assert recorded == {f"runner-{c[0]}" for c in commits}


def test_a_repository_among_results_is_not_recorded_and_runs_nothing(
    remote: str, tmp_path: Path
) -> None:
    """git would run what the configuration of a nested repository names, beside the token."""
    folder, mark = results(tmp_path / "one", BASE), tmp_path / "mark"
    (folder / MACHINE / ".gitignore").write_text("*")
    nested = folder / "nested"
    nested.mkdir()
    author = ["-c", "user.name=x", "-c", "user.email=x@localhost"]
    for arguments in (
        ["init", "--quiet"],
        ["config", "core.fsmonitor", f"touch {mark}; false"],
        [*author, "-c", "core.fsmonitor=", "commit", "--quiet", "--allow-empty", "--message=x"],
    ):
        subprocess.run(["git", "-C", str(nested), *arguments], check=True, timeout=120)
    assert not mark.exists()
    said: list[str] = []
    branch.record(remote, [folder], message="one", tell=said.append)
    assert not mark.exists()
    names = {
        "benchmarks.json",
        f"{MACHINE}/machine.json",
        f"{MACHINE}/{BASE[:8]}-{ENVIRONMENT}.json",
    }
    assert files_on(remote) == {f"results/{name}" for name in names}
    (line,) = said
    assert line.startswith(f"'{MACHINE}/.gitignore', one of ") and line.endswith(": not recorded")


def test_the_same_results_again_are_no_new_commit(remote: str, tmp_path: Path) -> None:
    folder = results(tmp_path / "one", BASE)
    first = branch.record(remote, [folder], message="one")
    assert branch.record(remote, [folder], message="two") == first
    assert count_of(remote) == 1


def test_another_shard_of_the_same_commit_is_merged_by_point(remote: str, tmp_path: Path) -> None:
    parts = {"one": [1.0, math.nan, math.nan], "two": [math.nan, 2.0, 3.0]}
    for name, values in parts.items():
        folder = results(tmp_path / name, BASE)
        path = folder / MACHINE / f"{BASE[:8]}-{ENVIRONMENT}.json"
        path.write_text(json.dumps(result(BASE, values, values)))
        branch.record(remote, [folder], message=name)
    out = tmp_path / "out"
    branch.fetch(remote, out)
    path = out / "results" / MACHINE / f"{BASE[:8]}-{ENVIRONMENT}.json"
    assert json.loads(path.read_text())["results"][SPILLS][0] == [1.0, 2.0, 3.0]


def test_evidence_of_old_results_goes_and_results_stay(remote: str, tmp_path: Path) -> None:
    commits = [f"{number:x}" * 40 for number in range(1, 6)]
    folder = tmp_path / "all"
    for number, commit in enumerate(commits):
        results(folder, commit, date=1_700_000_000_000 + number)
        (folder / MACHINE / f"{commit[:8]}-{ENVIRONMENT}.evidence.gz").write_bytes(b"x")
    branch.record(remote, [folder], message="all", keep_results=2)
    names = {name.rpartition("/")[2] for name in files_on(remote)}
    kept = {name.partition("-")[0] for name in names if name.endswith(".gz")}
    assert kept == {commit[:8] for commit in commits[-2:]}
    assert {f"{c[:8]}-{ENVIRONMENT}.json" for c in commits} <= names


DAY = 86_400
ROLES = ("AUTHOR", "COMMITTER")
NOW = 1_800_000_000


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a package, in which commits can be made at any time."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "warpwatch.toml").write_text(
        '[package]\nname = "ops"\npath = "ops"\n'
        '[[workload]]\nname = "a"\ncall = "ops:a"\nargs = "bf16[1]"\n'
    )
    monkeypatch.setenv("WARPWATCH_CONFIG", str(folder / "warpwatch.toml"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(time, "time", lambda: float(NOW))
    return folder


def pushed(project: Path, file: str, days_ago: float) -> str:
    (project / file).parent.mkdir(exist_ok=True)
    (project / file).write_text(str(days_ago))
    git(project, "add", "--all")
    when = f"{NOW - int(days_ago * DAY)} +0000"
    who = {f"GIT_{role}_{what}": "t@localhost" for role in ROLES for what in ("NAME", "EMAIL")}
    dates = {f"GIT_{role}_DATE": when for role in ROLES}
    command = ["git", "-C", str(project), "commit", "--quiet", "--message", file]
    subprocess.run(command, check=True, env=os.environ | who | dates, timeout=120)
    return git(project, "rev-parse", "HEAD").strip()


def measured(tmp_path: Path, remote: str, commit: str, days_ago: float) -> None:
    """The machine's result of a commit, taken so many days ago."""
    started = int((NOW - days_ago * DAY) * 1000)
    folder = results(tmp_path / f"{commit[:6]}", commit, date=started)
    (path,) = (folder / MACHINE).glob(f"{commit[:8]}-*.json")
    document = json.loads(path.read_text())
    for row in document["results"].values():
        row[3] = started
    path.write_text(json.dumps(document))
    branch.record(remote, [folder], message=commit)


def test_nobody_is_silent_where_nothing_was_pushed(
    project: Path, remote: str, tmp_path: Path
) -> None:
    silent = ["ci", "record", "silent", "--remote", remote]
    pushed(project, "ops/a.py", 12)
    assert main(silent) == 0, "before the first result there is no machine"
    measured(tmp_path, remote, pushed(project, "ops/a.py", 10), 9.9)
    assert main(silent) == 0, "a quiet spell"
    pushed(project, "notes.md", 8)
    assert main(silent) == 0, "documents alone owe no result"
    pushed(project, "ops/a.py", 2)
    assert main(silent) == 0, "three days are allowed"


def test_a_machine_that_owes_a_result_raises_the_alarm(
    project: Path, remote: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    silent = ["ci", "record", "silent", "--remote", remote]
    first = pushed(project, "ops/a.py", 10)
    measured(tmp_path, remote, first, 9.9)
    second = pushed(project, "ops/a.py", 4)
    assert main(silent) == 3
    out = capsys.readouterr().out
    assert MACHINE in out and first[:10] in out
    assert main([*silent, "--days", "5"]) == 0
    measured(tmp_path, remote, second, 0.1)
    assert main(silent) == 0


def test_a_remote_that_refuses_is_one_clear_message(tmp_path: Path) -> None:
    folder = results(tmp_path / "one", BASE)
    with pytest.raises(ValueError, match="failed"):
        branch.record(str(tmp_path / "nowhere.git"), [folder], message="x")

"""The lanes of a pull request with real measurements: asv, containers, shards, judge, verdict."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.containers.conftest import Engine, newcomer
from tests.containers.documents import blocks
from tests.containers.foreign import (
    ITS_OWN,
    TWO_LAUNCHES,
    foreign_repository,
    git,
    write,
)
from tests.workflows import stand_in
from warpwatch.__main__ import main
from warpwatch.ci import branch
from warpwatch.judge.evidence.compiled import SUFFIX, read
from warpwatch.sandbox import images

pytestmark = [pytest.mark.slow]
MAKE = ("make", "--silent", "--file", "docker/targets.mk", "VENV=.warpwatch-venv")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """A team's repository with Warpwatch installed; its newest commit is a regression."""
    repository = foreign_repository(tmp_path_factory.mktemp("team"), wheel)
    for block in blocks(images.root() / "docs" / "tutorials" / "your-own-package.md"):
        if block.file:
            write(repository, block.file, block.text)
    init = [".warpwatch-venv/bin/warpwatch", "init", "--workflows", "--from", "team/warpwatch"]
    done = subprocess.run(init, cwd=repository, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    write(repository, ".gitignore", ITS_OWN[".gitignore"] + "/.asv/\n/.lane*/\n/reports/html/\n")
    write(repository, "src/fastops/notes.txt", "under Warpwatch\n")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "Warpwatch")
    git(repository, "branch", "base")
    write(repository, "src/fastops/__init__.py", TWO_LAUNCHES)
    git(repository, "commit", "--quiet", "--all", "--message", "a second launch")
    return repository


@pytest.fixture
def environment(repository: Path, tmp_path: Path) -> dict[str, str]:
    return newcomer(tmp_path / "home", repository / ".warpwatch-venv" / "bin")


def test_nothing_of_the_team_s_own_is_overwritten(repository: Path) -> None:
    for name, text in ITS_OWN.items():
        assert (repository / name).read_text().startswith(text), name
    changed = git(repository, "diff", "--name-status", "base~1", "base").splitlines()
    edited = {line.split("\t")[1] for line in changed if not line.startswith("A\t")}
    assert edited == {".gitignore", "src/fastops/notes.txt"}
    added = [line.split("\t")[1] for line in changed if line.startswith("A\t")]
    assert {"docker/targets.mk", ".github/workflows/warpwatch.yml", "warpwatch.toml"} <= set(added)
    assert not [name for name in added if name.startswith("warpwatch/")], "nothing of the harness"
    assert len(added) < 36
    done = subprocess.run(
        ["make", "--no-print-directory", "test"],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == "the tests of fastops\n"


def test_every_target_that_its_workflows_run_is_there(repository: Path) -> None:
    workflows = list((repository / ".github" / "workflows").glob("warpwatch*.yml"))
    assert len(workflows) == 6
    text = "".join(path.read_text() for path in workflows)
    called = set(re.findall(r"uses: team/warpwatch/(\S+)@v[\d.]+", text))
    assert len(called) == 3, "jobs on hosted runners are Warpwatch's own, by version"
    text += "".join((images.root() / name).read_text() for name in called)
    runs = re.findall(r"run: (make .*)", text)
    targets = {run.removeprefix("make --file docker/targets.mk ") for run in runs}
    help_of_make = subprocess.run(
        [*MAKE, "help"], cwd=repository, capture_output=True, text=True, timeout=60, check=True
    )
    assert targets <= {line.split()[0] for line in help_of_make.stdout.splitlines()}


def test_a_plan_needs_no_more_than_the_wheel(
    repository: Path, environment: dict[str, str], wheel: Path, tmp_path: Path
) -> None:
    """The hosted runner that plans has Python alone: torch would take it a minute."""
    output = tmp_path / "output"
    local = f"WARPWATCH=--no-index {wheel}"
    python = f"PYTHON={Path(sys.base_prefix) / 'bin' / 'python3'}"
    values = {"BACKENDS": "cuda", "GITHUB_OUTPUT": str(output)}
    make(repository, environment, "ci-plan", local, python, **values)
    matrix = json.loads(output.read_text().removeprefix("matrix="))
    assert matrix["include"][0]["machine"] == images.get("cuda").machine
    (site,) = (repository / ".warpwatch-bare").glob("lib/python*/site-packages")
    assert not list(site.glob("torch*")) and not list(site.glob("numpy*"))
    shutil.rmtree(repository / ".warpwatch-bare")


@pytest.fixture(scope="module")
def lane(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the compile lane hands over of base and head, by the newcomer's page."""
    folder = tmp_path_factory.mktemp("lane")
    git(repository, "update-ref", "refs/remotes/origin/main", "base")
    measure, compare = newcomer_s_check()
    environment = newcomer(folder / "home", repository / ".warpwatch-venv" / "bin")
    run = partial(subprocess.run, cwd=repository, env=environment, capture_output=True, text=True)
    done = run(shlex.split(measure))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    said = run(shlex.split(compare))
    assert said.returncode == 1, said.stderr
    assert "▼ regressed" in said.stdout and "launches" in said.stdout
    shutil.copytree(repository / ".lane", folder / "lane")
    return folder / "lane"


def newcomer_s_check() -> list[str]:
    """The two commands with which the newcomer's page sees a verdict before pushing."""
    page = blocks(images.root() / "docs" / "tutorials" / "first-flagged-pull-request.md")
    (block,) = (b for b in page if b.language == "bash" and " lane-cpu " in b.text)
    return block.text.splitlines()


def make(repository: Path, environment: dict[str, str], *target: str, **values: str) -> None:
    done = subprocess.run(
        [*MAKE, *target],
        cwd=repository,
        env=environment | values,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_a_pull_request_that_launches_twice_fails_its_check(
    repository: Path, lane: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `make lane-cpu` writes goes through the judge as GitHub would hand it over."""
    base, head = (git(repository, "rev-parse", name).strip() for name in ("base", "HEAD"))
    files = {str(p.relative_to(lane)): p.read_bytes() for p in lane.rglob("*") if p.is_file()}
    trusted = tmp_path / "trusted"
    trusted.mkdir()
    shutil.copy(lane / "results" / "benchmarks.json", trusted)
    monkeypatch.setattr(stand_in, "BASE", base)
    with stand_in.serve() as github:
        github.pull_request(head=head)
        github.artifacts["results-cpu-1-of-1"] = stand_in.zipped(files)
        monkeypatch.setenv("GITHUB_API_URL", github.url)
        monkeypatch.setenv("GITHUB_TOKEN", "secret")
        event = stand_in.write_event(tmp_path, head_sha=head)
        arguments = [
            "ci",
            "judge",
            "--event",
            str(event),
            "--lane",
            "cpu",
            "--trusted",
            str(trusted),
        ]
        arguments += [
            "--versions",
            str(images.versions_file()),
            "--out",
            str(tmp_path / "verdict.json"),
        ]
        assert main(arguments) == 0
    (check,) = github.checks
    assert check["conclusion"] == "failure", check["output"]
    (comment,) = github.comments
    assert "▼ regressed | 1 | 2 | `launches` | `gelu-float16-4096 @ gfx942` |" in comment["body"]
    # There the predicted time has the verdict.
    weighed = "· evidence: worse | 1 | 2 | `launches` | `gelu-float16-4096 @ sm_90` |"
    assert weighed in comment["body"]
    assert json.loads((tmp_path / "verdict.json").read_text())["missing_shards"] == []


def test_a_night_fills_gaps_measures_suspects_again_and_rewrites_nothing(
    repository: Path, lane: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    """Of the two newest commits one has a gap on record; an older one is suspected."""
    name, machine = "compiled.Gelu.track_launches", images.get("cpu").machine
    commits = git(repository, "log", "-3", "--format=%H", "--", "src/fastops").split()
    well, gap, suspect = commits
    known = tmp_path / "known"
    shutil.copytree(lane / "results", known)
    (path,) = (known / machine).glob(f"{gap[:8]}-*.json")
    document = json.loads(path.read_text())
    measured = list(document["results"][name][0])
    document["results"][name][0][:2] = [7.0, None]  # what is on record, and a dead shard's part
    path.write_text(json.dumps(document))
    one = {"machine": machine, "benchmark": name, "series": name, "commits": [suspect]}
    other = {**one, "machine": "another", "commits": [well]}
    suspects = tmp_path / "suspects.json"
    suspects.write_text(json.dumps({"schema_version": 1, "suspects": [one, other]}))
    remote = str(tmp_path / "remote.git")
    git(tmp_path, "init", "--quiet", "--bare", remote)
    branch.record(remote, [known], message="on record")

    shutil.rmtree(repository / ".asv")  # a container's is empty at first
    command = [".warpwatch-venv/bin/warpwatch", "ci", "lane", "--lane", "cpu", "--commits", "2"]
    command += ["--bench", "track_(launches|spilled_bytes)"]
    command += ["--known", str(known), "--again", str(suspects)]
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert (repository / ".asv" / "shard.json").is_file()
    results = repository / ".asv" / "results"
    found = {path.name[:8]: path for path in (results / machine).glob("*-*.json")}
    assert found.keys() == {gap[:8], suspect[:8]}, "what was known and is well is not handed over"
    again = json.loads(found[suspect[:8]].read_text())["results"]
    assert set(again) == {name}, "only what is suspected is measured again"
    branch.record(remote, [results], message="a night")
    branch.fetch(remote, tmp_path / "out")
    (path,) = (tmp_path / "out" / "results" / machine).glob(f"{gap[:8]}-*.json")
    assert json.loads(path.read_text())["results"][name][0] == [7.0, *measured[1:]]
    evidence = {p.name[:8] for p in (tmp_path / "out" / "results" / "evidence").glob("*.xz")}
    assert evidence == {commit[:8] for commit in commits}

    shutil.rmtree(repository / ".asv")
    command = [*command[:9], "--known", str(tmp_path / "out" / "results")]
    done = subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, "a night without anything to do is a good one"
    assert list((results / machine).glob("*-*.json")) == []


@pytest.mark.container
def test_shards_measured_in_containers_merge_whatever_their_order(
    repository: Path, environment: dict[str, str], engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    """The GPU lane's own target, with the one backend that needs no GPU."""
    engine.podman("tag", cpu_image, images.get("cpu").tag)
    values = {"BACKEND": "cpu", "MACHINE": "box", "BASE": "HEAD", "HEAD": "HEAD", "SHARDS": "2"}
    environment = environment | engine.environment | {"HOME": environment["HOME"]}
    folders = []
    for shard in (1, 2):
        make(repository, environment, "lane-gpu", **values, SHARD=str(shard))
        folder = tmp_path / f"results-cpu-{shard}-of-2"
        shutil.copytree(repository / ".lane", folder, ignore=shutil.ignore_patterns("env"))
        folders.append(folder)
    knows = [
        {workload for path in folder.rglob(f"*{SUFFIX}") for workload, _ in read(path).results}
        for folder in folders
    ]
    assert sorted(map(list, knows)) == [["gelu-float16-1048576"], ["gelu-float16-4096"]], (
        "each shard compiled its own half"
    )
    merged = []
    for name, parts in (("a", folders), ("b", folders[::-1])):
        assert main(["ci", "merge", *map(str, parts), "--out", str(tmp_path / name)]) == 0
        paths = sorted(path for path in (tmp_path / name).rglob("*") if path.is_file())
        merged.append({str(p.relative_to(tmp_path / name)): p.read_bytes() for p in paths})
    assert merged[0] == merged[1]
    (result,) = (tmp_path / "a" / "cpu" / "box").glob("*-kernels-overlay-*.json")
    rows = json.loads(result.read_text())["results"]
    launches = rows["compiled.Gelu.track_launches"]
    assert launches[0] == [2.0] * 12, "two workloads on six targets, half of them from each shard"

"""The publishing jobs, by their own make targets: the living are recorded, the dead are named."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.containers.foreign import git, virtual_environment
from tests.reports import trees
from tests.workflows.stand_in import BASE, ENVIRONMENT, HEAD, LEVEL, MACHINE, SPILLS, result
from tests.workflows.test_shards import shard_folders
from warpwatch.ci import branch
from warpwatch.sandbox import images

PUBLISH: dict[str, Any] = yaml.safe_load(
    (images.root() / ".github" / "workflows" / "warpwatch-publish.yml").read_text()
)
MAKE = "make --file docker/targets.mk"
VERSIONS = '[backends.cpu]\nshards = 2\nmachine = "a"\n[backends.cuda]\nshards = 1\nmachine = "b"\n'


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The default branch as a job sees it, with a remote that can be pushed to."""
    remote, folder = tmp_path / "remote.git", tmp_path / "checkout"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    git(tmp_path, "init", "--quiet", str(folder))
    git(folder, "remote", "add", "origin", str(remote))
    for name in ("Makefile", "warpwatch", "pyproject.toml"):
        (folder / name).symlink_to(images.root() / name)
    (folder / "docker").mkdir()
    for name in ("targets.mk", "tools.mk", "constraints.txt", "locks", "pip_arguments.py"):
        (folder / "docker" / name).symlink_to(images.root() / "docker" / name)
    (folder / "docker" / "versions.toml").write_text(VERSIONS)
    virtual_environment(folder)
    return folder


def make(checkout: Path, target: str, **values: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB", "MAKE"))}
    return subprocess.run(
        ["make", "--silent", "--file", "docker/targets.mk", target, "VENV=.venv"],
        cwd=checkout,
        env=kept | values,
        capture_output=True,
        text=True,
        timeout=600,
    )


def play(checkout: Path, lanes: str) -> tuple[list[int], str]:
    """The steps of the workflow in their order; each exit code, and what the last one said."""
    output = checkout / "github-output"
    codes = []
    for target in ("merge-shards", "record"):
        done = make(checkout, target, LANES=lanes, GITHUB_OUTPUT=str(output))
        codes.append(done.returncode)
    missing = output.read_text().strip().removeprefix("missing=")
    done = make(checkout, "shards-complete", MISSING=missing)
    return [*codes, done.returncode], done.stderr


def recorded(checkout: Path, out: Path) -> dict[str, Any]:
    branch.fetch(str(checkout.parent / "remote.git"), out)
    (path,) = (out / "results" / MACHINE).glob(f"{HEAD[:8]}-*.json")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def test_the_site_and_its_feed_are_named_after_the_repository(checkout: Path) -> None:
    """Else two projects have one feed in the eyes of a reader."""
    measured = trees.compiled_tree(checkout.parent / "measured", {"launches": [1, 1, 2]})
    (checkout / ".trusted").mkdir()
    measured.results.rename(checkout / ".trusted" / "results")
    git(checkout, "pull", "--quiet", str(measured.repo), "HEAD")
    done = make(checkout, "site", GITHUB_REPOSITORY="team/kernels")
    assert done.returncode == 0, done.stderr
    html = checkout / ".site" / "html"
    assert "<title>team/kernels: performance report" in (html / "index.html").read_text()
    assert "<id>tag:warpwatch,2025:team/kernels</id>" in (html / "feed.atom").read_text()


def test_the_guide_names_what_the_workflow_asks_for() -> None:
    """A typing mistake in a variable publishes nothing, and says nothing."""
    guide = (images.root() / "docs" / "guides" / "publish.md").read_text()
    job = PUBLISH["jobs"]["site"]
    wanted = re.findall(r"vars\.(\w+) == '([^']+)'", job["if"])
    assert {f"`{word}`" in guide for pair in wanted for word in pair} == {True}
    assert f"`{job['environment']['name']}`" in guide
    assert f"--machine {images.get('cpu').machine}" in guide, "the judge looks for that name"
    targets = re.findall(r"make --file docker/targets.mk ([\w-]+)", guide)
    text = (images.root() / "docker" / "targets.mk").read_text()
    assert targets and all(f"\n{one}:" in text for one in targets)


def test_a_place_that_holds_no_warpwatch_is_named_with_the_remedy(tmp_path: Path) -> None:
    """A team's repository, where nothing of Warpwatch lies; a second try says the same."""
    (tmp_path / "docker").symlink_to(images.root() / "docker")
    for _ in range(2):
        done = make(tmp_path, "ci-plan", BACKENDS="cuda", WARPWATCH="./nowhere")
        assert done.returncode == 2
        assert "error: Warpwatch was not installed from ./nowhere: push it there" in done.stderr
        assert "WARPWATCH=../warpwatch for a clone" in done.stderr


def test_the_play_has_the_workflow_s_own_steps() -> None:
    jobs = PUBLISH["jobs"]
    runs = {name: [s["run"] for s in job["steps"] if "run" in s] for name, job in jobs.items()}
    assert runs["record"] == [f"{MAKE} merge-shards", f"{MAKE} record"]
    assert runs["complete"] == [f"{MAKE} shards-complete"]
    assert set(jobs["complete"]["needs"]) == {"record", "site"}, "red only after publishing"
    assert jobs["complete"]["if"].startswith("always()")
    assert jobs["record"]["outputs"]["missing"] == "${{ steps.merge.outputs.missing }}"


@pytest.mark.parametrize("how", ["died", "delivered nothing", "of a lane that never came"])
def test_a_dead_shard_takes_nothing_from_the_living(
    checkout: Path, tmp_path: Path, how: str
) -> None:
    artifacts = checkout / ".artifacts"
    two = shard_folders(artifacts, 2)[1]
    lanes = "cpu"
    if how == "died":
        (two / "shard.json").unlink()
    elif how == "delivered nothing":
        two.rename(tmp_path / "gone")
    else:
        lanes = "cpu cuda"
    codes, said = play(checkout, lanes)
    assert codes == [0, 0, 2], "red, and only after the living were recorded"
    dead = "results-cuda-1-of-1" if lanes != "cpu" else "results-cpu-2-of-2"
    assert f"missing: {dead}" in said
    values = recorded(checkout, tmp_path / "out")["results"][SPILLS][0]
    assert values == ([1.0, 2.0, 3.0] if lanes != "cpu" else [1.0, None, 3.0]), "null is `missing`"


def test_a_run_of_living_shards_is_green(checkout: Path, tmp_path: Path) -> None:
    shard_folders(checkout / ".artifacts", 2)
    assert play(checkout, "cpu")[0] == [0, 0, 0]
    assert recorded(checkout, tmp_path / "out")["results"][LEVEL][0] == [1.0, 2.0, 3.0]


def test_a_lane_whose_shards_disagree_takes_nothing_from_another(
    checkout: Path, tmp_path: Path
) -> None:
    artifacts = checkout / ".artifacts"
    for folder in shard_folders(artifacts, 2):
        (path,) = (folder / "results" / MACHINE).glob("aaaaaaaa-*.json")
        document = json.loads(path.read_text())
        document["results"][SPILLS][0] = [float(folder.name[12])] * 3
        path.write_text(json.dumps(document))
    gpu = artifacts / "results-cuda-1-of-1"
    (gpu / "results" / "b").mkdir(parents=True)
    (gpu / "shard.json").write_text("{}")
    path = gpu / "results" / "b" / f"{BASE[:8]}-{ENVIRONMENT}.json"
    path.write_text(json.dumps(result(BASE, [1, 2, 3], [1, 2, 3], params={"machine": "b"})))
    codes, said = play(checkout, "cpu cuda")
    assert codes == [0, 0, 2]
    assert "results-cpu-1-of-2 results-cpu-2-of-2" in said
    branch.fetch(str(tmp_path / "remote.git"), tmp_path / "out")
    assert {p.name for p in (tmp_path / "out" / "results").iterdir()} == {"b"}


@pytest.mark.parametrize("content", ['{"results": 3}', "{}"])
def test_a_lane_that_wrote_no_results_takes_nothing_from_another(
    checkout: Path, tmp_path: Path, content: str
) -> None:
    shard_folders(checkout / ".artifacts", 2)
    odd = checkout / ".artifacts" / "results-cuda-1-of-1"
    (odd / "results" / "b").mkdir(parents=True)
    (odd / "results" / "b" / f"{HEAD[:8]}-env.json").write_text(content)
    (odd / "shard.json").write_text("{}")
    codes, said = play(checkout, "cpu cuda")
    assert (codes[:2], codes[2] != 0) == ([0, 0], True)
    assert "results-cuda-1-of-1" in said
    assert recorded(checkout, tmp_path / "data")["results"][SPILLS][0] == [1.0, 2.0, 3.0]


def test_nothing_at_all_is_red_at_once(checkout: Path) -> None:
    done = make(checkout, "merge-shards", LANES="cpu", GITHUB_OUTPUT=str(checkout / "output"))
    assert done.returncode == 2 and "no shard delivered anything" in done.stderr
    assert (checkout / "output").read_text() == "missing=results-cpu-1-of-2 results-cpu-2-of-2\n"


def test_by_hand_there_is_no_file_for_a_later_job(checkout: Path) -> None:
    shard_folders(checkout / ".artifacts", 2)
    done = make(checkout, "merge-shards", LANES="cpu")
    assert done.returncode == 0, done.stderr
    assert "cpu: 2 of 2 shards" in done.stdout


def test_a_lane_that_others_record_neither_waits_nor_is_waited_for(
    checkout: Path, tmp_path: Path
) -> None:
    """The GPU's job has delivered one shard of two: what is compiled is recorded all the same."""
    shard_folders(checkout / ".artifacts", 2)
    other = checkout / ".artifacts" / "results-cuda-1-of-2" / "results" / "b"
    other.mkdir(parents=True)
    (other / f"{BASE[:8]}-{ENVIRONMENT}.json").write_text(json.dumps(result(BASE, [1], [1])))
    assert play(checkout, "cpu")[0] == [0, 0, 0]
    branch.fetch(str(tmp_path / "remote.git"), tmp_path / "out")
    assert {p.name for p in (tmp_path / "out" / "results").iterdir() if p.is_dir()} == {MACHINE}


def test_what_is_compiled_does_not_wait_for_a_gpu_machine() -> None:
    text = (images.root() / ".github" / "workflows" / "warpwatch-main.yml").read_text()
    jobs = yaml.safe_load(text)["jobs"]
    waits = {name: (job["needs"], job["with"]["lanes"]) for name, job in jobs.items()
             if name.startswith("record")}  # fmt: skip
    assert waits == {
        "record": ("compile", "cpu"),
        "record-gpu": ("gpu", "${{ vars.WARPWATCH_GPU_BACKENDS }}"),
    }

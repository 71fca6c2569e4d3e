"""The workflows and container files hold the rules that keep a stranger's pull request harmless."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from warpwatch.__main__ import main
from warpwatch.commands.setup import starter
from warpwatch.sandbox import images

ROOT = images.root()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
OWN = ("release.yml", "tests.yml")
MAKE = "make --file docker/targets.mk"


def load(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true.
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in document.items()}


DOCUMENTS = {path.name: load(path) for path in WORKFLOWS}


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for workflow, document in DOCUMENTS.items():
        for name, job in document["jobs"].items():
            yield workflow, name, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for workflow, name, job in jobs():
        for step in job.get("steps", ()):
            yield f"{workflow} {name}", step


def is_own(place: str) -> bool:
    """Whether a workflow is only Warpwatch's, and no project gets it."""
    return place.split(" ")[0] in OWN


def targets_of_make(*arguments: str) -> set[str]:
    """The targets make knows, asked of make itself."""
    done = subprocess.run(
        ["make", *arguments, "--print-data-base", "--dry-run", "--question", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    return {
        match[1]
        for before, line in zip(["", *lines], lines, strict=False)
        if (match := re.match(r"([a-z][a-z0-9-]*):(?!=)", line)) and "Not a target" not in before
    }


def test_every_run_is_one_make_target_that_exists() -> None:
    """Those that `warpwatch init` writes need no Makefile of the project that they come to."""
    known = targets_of_make()
    assert {"test", "bench"} <= known
    own = {"setup-tools", "test", "test-every-pair", "test-tritons"}
    own |= {"release-files", "release-image", "release-publish"}
    assert {step["run"] for place, step in steps() if is_own(place) and "run" in step} == {
        f"make {target}" for target in own
    }
    assert own <= known
    runs = [(place, s["run"]) for place, s in steps() if "run" in s and not is_own(place)]
    assert len(runs) > 15
    known = targets_of_make("--file", "docker/targets.mk")
    pattern = r"make --file docker/targets\.mk ([a-z][a-z0-9-]*)"
    wrong = [
        (place, run)
        for place, run in runs
        if not (match := re.fullmatch(pattern, run)) or match[1] not in known
    ]
    assert not wrong


def test_the_wheel_carries_the_workflows_of_a_project_alone() -> None:
    """And their names are free in it: files, names and groups say whose they are."""
    (left_out,) = re.findall(r"^OWN = (\([^)]*\))$", (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert ast.literal_eval(left_out) == starter.OWN, "a checkout writes no more than the wheel"
    packed = [name for name in DOCUMENTS if name not in starter.OWN]
    called = {f"warpwatch-{name}.yml" for name in ("compile", "lane", "publish", "verdict")}
    assert set(DOCUMENTS) - set(packed) == {*OWN, *called}
    assert all("workflow_call" in DOCUMENTS[name]["on"] for name in called)
    for name in packed:
        assert name.startswith("warpwatch") and DOCUMENTS[name]["name"] == Path(name).stem
        group = DOCUMENTS[name].get("concurrency", {}).get("group", "warpwatch")
        assert group.startswith("warpwatch")
    follow = [DOCUMENTS[name]["on"].get("workflow_run", {}).get("workflows") for name in packed]
    assert [one for one in follow if one] == [["warpwatch"]] * 2


def test_every_action_is_pinned_to_one_commit() -> None:
    """And its pin stands in no other file: what a bot brings up to date it does in one go."""
    text = "".join(path.read_text() for path in WORKFLOWS)
    used = re.findall(r"uses: ([\w./-]+)@([0-9a-f]{40}) # (v[\d.]+)$", text, re.MULTILINE)
    all_uses = [u for u in re.findall(r"^ +(?:- )?uses: (\S+)", text, re.M) if u[:2] != "./"]
    assert len(all_uses) == len(used) > 10
    pins = {(commit, tag) for _, commit, tag in used}
    assert len(pins) == len({name for name, _, _ in used}), "one pin an action"
    files = ["docker", "warpwatch", "tests/workflows", "tests/containers"]
    command = ["git", "grep", "--name-only", "-F", *(f"-e{commit}" for commit, _ in pins)]
    done = subprocess.run([*command, "--", *files], cwd=ROOT, capture_output=True, timeout=120)
    assert done.returncode == 1, done.stdout


# The first version of each that runs on Node 24: runners have no older one any more.
NODE_24 = {
    "actions/cache": 5,
    "actions/checkout": 5,
    "actions/deploy-pages": 5,
    "actions/download-artifact": 7,
    "actions/setup-python": 6,
    "actions/upload-artifact": 6,
}


def test_every_action_runs_on_the_node_that_runners_have() -> None:
    text = "".join(path.read_text() for path in (*WORKFLOWS, ROOT / "action.yml"))
    used = set(re.findall(r"uses: ([\w-]+/[\w-]+)@[0-9a-f]{40} # v(\d+)\.", text))
    assert {name for name, _ in used} >= NODE_24.keys()
    assert not [(name, major) for name, major in used if int(major) < NODE_24.get(name, 0)]


def test_nothing_is_allowed_that_no_job_asks_for() -> None:
    assert all(document["permissions"] == {} for document in DOCUMENTS.values())
    assert all("permissions" in job for _, _, job in jobs())
    writers = {
        f"{workflow} {name}": sorted(k for k, v in job["permissions"].items() if v == "write")
        for workflow, name, job in jobs()
        if "write" in job["permissions"].values() and "steps" in job
    }
    assert writers == {
        "release.yml attest": ["attestations", "id-token"],
        "release.yml image": ["packages"],
        "release.yml index": ["id-token"],
        "release.yml publish": ["contents"],
        "warpwatch-verdict.yml judge": ["checks", "pull-requests"],
        "warpwatch-nightly.yml silent": ["issues"],
        "warpwatch-publish.yml record": ["contents"],
        "warpwatch-publish.yml site": ["id-token", "pages"],
    }


def test_a_pull_request_s_own_jobs_hold_no_token_and_no_secret() -> None:
    assert set(DOCUMENTS["warpwatch.yml"]["on"]) == {"pull_request", "merge_group"}
    calls = [job["uses"] for job in DOCUMENTS["warpwatch.yml"]["jobs"].values() if "uses" in job]
    assert calls == ["./.github/workflows/warpwatch-lane.yml"]
    for name in ("warpwatch.yml", "warpwatch-lane.yml", "warpwatch-compile.yml"):
        text = (ROOT / ".github" / "workflows" / name).read_text()
        assert "secrets." not in text and "github.token" not in text
        for job in DOCUMENTS[name]["jobs"].values():
            assert job.get("runs-on", "ubuntu-24.04") == "ubuntu-24.04"
            assert job["permissions"] == {"contents": "read"}
    assert "secrets." not in "".join(path.read_text() for path in WORKFLOWS)


def test_a_self_hosted_runner_serves_only_the_default_branch_s_workflows() -> None:
    """Whatever reaches a GPU machine is started by an event that takes the default branch."""
    guarded = {
        workflow
        for workflow, _, job in jobs()
        if "matrix.runner" in str(job.get("runs-on")) or "self-hosted" in str(job.get("runs-on"))
    }
    assert guarded == {"warpwatch-gpu.yml", "warpwatch-nightly.yml"}
    callers = {w for w, _, job in jobs() if str(job.get("uses", "")).endswith("/warpwatch-gpu.yml")}
    events = {w: set(DOCUMENTS[w]["on"]) for w in callers | guarded}
    assert events == {
        "warpwatch-gpu.yml": {"workflow_call"},
        "warpwatch-main.yml": {"push"},
        "warpwatch-nightly.yml": {"schedule", "workflow_dispatch"},
        "warpwatch-pull-request-gpu.yml": {"workflow_run"},
    }
    for workflow, _, job in jobs():
        if workflow in guarded and "matrix.runner" in str(job.get("runs-on")):
            assert job["environment"], "reviewers approve the commit before it is measured"


def test_waiting_gpu_jobs_do_not_cancel_one_another() -> None:
    """GitHub keeps one waiting job a concurrency group and cancels the others, whatever the
    setting: so no two runs and no two legs of a matrix share a group."""
    groups = []
    for workflow, _, job in jobs():
        if "matrix.runner" in str(job.get("runs-on")):
            groups.append(job["concurrency"]["group"])
            assert job["concurrency"]["cancel-in-progress"] is False, workflow
            legs = {"github.run_id", "matrix.backend", "matrix.shard"}
            assert legs <= set(re.findall(r"\$\{\{ ([\w.]+) \}\}", groups[-1])), workflow
    assert len(groups) == 2
    outer = {workflow: document.get("concurrency") for workflow, document in DOCUMENTS.items()}
    for event in ("github.event.workflow_run.head_sha", "github.event.workflow_run.id"):
        assert event in outer["warpwatch-pull-request-gpu.yml"]["group"], (
            "another commit, or another pull request with it, waits for nobody"
        )
    assert "github.sha" in outer["warpwatch-main.yml"]["group"]


def test_who_approves_sees_the_commit() -> None:
    head = "${{ github.event.workflow_run.head_sha }}"
    document = DOCUMENTS["warpwatch-pull-request-gpu.yml"]
    assert document["run-name"].startswith(f"GPU at {head} of ")
    assert "head_branch" not in document["run-name"], "its author chose that text"
    assert document["jobs"]["gpu"]["with"]["head"] == head, "and no other commit is measured"
    measure = DOCUMENTS["warpwatch-gpu.yml"]["jobs"]["measure"]
    assert measure["name"].endswith(" at ${{ inputs.head }}")
    assert measure["environment"]["url"].endswith("/commit/${{ inputs.head }}")


def test_an_upload_from_a_gpu_machine_takes_only_what_was_copied_for_it() -> None:
    """upload-artifact follows links; the container could have left some in its results."""
    uploads = 0
    for workflow, _, job in jobs():
        if "matrix.runner" not in str(job.get("runs-on")):
            continue
        steps = job["steps"]
        for place, step in enumerate(steps):
            if str(step.get("uses", "")).startswith("actions/upload-artifact"):
                uploads += 1
                assert step["with"]["path"] == ".delivery", workflow
                before = [(one.get("run"), one.get("if")) for one in steps[place - 2 : place]]
                assert before == [
                    (f"{MAKE} container-clean", "always()"),
                    (f"{MAKE} deliver", "always()"),
                ]
                assert step["if"] == "always()"
    assert uploads == 2


def test_uploads_from_hidden_folders_say_so() -> None:
    """upload-artifact leaves out what begins with a dot, a path given by name too, and with
    `if-no-files-found: ignore` it says nothing: no result would ever arrive."""
    hidden = 0
    for place, step in steps():
        if str(step.get("uses", "")).startswith("actions/upload-artifact"):
            parts = step["with"]["path"].replace("/", "\n").split()
            if any(part.startswith(".") for part in parts):
                hidden += 1
                assert step["with"].get("include-hidden-files") is True, place
    assert hidden == 4


def test_the_privileged_side_checks_out_nothing_of_the_pull_request() -> None:
    for workflow in (
        "warpwatch-verdict.yml",
        "warpwatch-gpu.yml",
        "warpwatch-publish.yml",
        "warpwatch-nightly.yml",
    ):
        for job in DOCUMENTS[workflow]["jobs"].values():
            for step in job.get("steps", ()):
                if str(step.get("uses", "")).startswith("actions/checkout"):
                    assert not {"ref", "repository"} & step["with"].keys()


def test_every_checkout_forgets_its_token_and_every_job_has_a_limit() -> None:
    checkouts = [s for _, s in steps() if str(s.get("uses", "")).startswith("actions/checkout")]
    assert checkouts
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)
    assert all("timeout-minutes" in job for _, _, job in jobs() if "steps" in job)


def test_nothing_is_restored_from_a_cache_that_a_pull_request_could_have_filled() -> None:
    text = "".join(path.read_text() for path in WORKFLOWS)
    assert "actions/cache" not in text
    assert all("cache" not in step.get("with", {}) for _, step in steps())


def test_the_required_check_waits_for_every_job() -> None:
    ci = DOCUMENTS["warpwatch.yml"]["jobs"]
    assert set(ci["done"]["needs"]) == ci.keys() - {"done"}
    assert ci["done"]["if"] == "always()"


@pytest.mark.parametrize(
    ("results", "code"),
    [
        ({"test": "success", "image": "success"}, 0),
        ({"test": "success", "image": "skipped"}, 1),
        ({"test": "success", "image": "cancelled"}, 1),
        ({}, 1),
    ],
)
def test_a_job_that_was_skipped_is_not_green(results: dict[str, str], code: int) -> None:
    needs = json.dumps({name: {"result": result} for name, result in results.items()})
    assert main(["ci", "needs", needs]) == code


def test_values_of_events_reach_the_shell_as_they_are(tmp_path: Path) -> None:
    """A branch or commit that looks like a command is text to make and to the shell."""
    mark = tmp_path / "mark"
    hostile = f"$(shell touch {mark})`touch {mark}`$(touch {mark});touch {mark}"
    stamp = tmp_path / ".stamp"
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    stamp.touch()
    os.utime(stamp, (2e9, 2e9))
    environment = {**os.environ, "BASE": hostile, "HEAD": hostile, "RUN": hostile, "LANE": "cpu"}
    for target in ("lane-cpu", "fetch-commit", "judge"):
        done = subprocess.run(
            ["make", "--silent", target, f"VENV={tmp_path}", f"LANE_DIR={tmp_path}/lane"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr
        assert hostile in done.stdout.splitlines()
    assert not mark.exists()


def python_that_says(folder: Path, suspects: int = 0) -> str:
    """A virtual environment, for make, whose Python prints what it is asked to run."""
    python = folder / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >&2\n[ "$3" != suspects ] || exit {suspects}\n')
    python.chmod(0o755)
    (folder / ".stamp").touch()
    os.utime(folder / ".stamp", (2e9, 2e9))
    return f"VENV={folder}"


def asked_by_make(*arguments: str, **values: str) -> tuple[int, list[str]]:
    """make's exit code, and the command lines it gave to Python."""
    done = subprocess.run(
        ["make", "--silent", *arguments],
        cwd=ROOT,
        env=os.environ | values,
        capture_output=True,
        text=True,
        timeout=600,
    )
    asked = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    return done.returncode, asked


@pytest.mark.parametrize(("suspects", "code"), [(0, 0), (3, 0), (2, 2)])
def test_the_night_measures_what_is_suspected_again(
    tmp_path: Path, suspects: int, code: int
) -> None:
    """And hands the container what is known to read, nothing of it to write."""
    trusted, lane = tmp_path / "trusted", tmp_path / "lane"
    (trusted / "results" / "box").mkdir(parents=True)
    (trusted / "results" / "box" / "old.json").write_text("{}")
    values = {"BACKEND": "cuda", "MACHINE": "box", "SHARD": "1", "SHARDS": "1"}
    folders = [python_that_says(tmp_path, suspects), f"LANE_DIR={lane}", f"TRUSTED={trusted}"]
    found, asked = asked_by_make("history-gpu", *folders, **values)
    assert found == code, asked
    assert asked[0] == f"-m warpwatch suspects --results {trusted}/results --json"
    if code == 0:
        assert asked[1].startswith("-m warpwatch container run ")
        assert asked[1].endswith(f"--known {trusted}/results --again {trusted}/suspects.json")
    assert list(lane.iterdir()) == []


@pytest.mark.parametrize("backend", images.load())
def test_an_image_and_a_measurement_are_one_make_target_each(tmp_path: Path, backend: str) -> None:
    python = python_that_says(tmp_path)
    build = f"-m warpwatch container build --builder docker --backend {backend}"
    assert asked_by_make(f"image-{backend}", python) == (0, [build])
    assert asked_by_make("image", python, BACKEND=backend) == (0, [build])
    if backend != "cpu":
        code, (run, report) = asked_by_make(f"bench-{backend}", python, "MACHINE=box", "COMMITS=3")
        assert code == 0 and report == "-m warpwatch report"
        assert run.startswith(f"-m warpwatch container run --backend {backend} --machine box ")
        assert run.endswith(" -- python -m warpwatch history --commits 3")


def test_every_ignored_finding_has_its_reason_beside_it() -> None:
    files = [*WORKFLOWS, *(ROOT / "docker").rglob("*.Dockerfile")]
    ignores = [
        line
        for path in files
        for line in path.read_text().splitlines()
        if "zizmor: ignore[" in line or "hadolint ignore=" in line
    ]
    assert ignores
    pattern = r"zizmor: ignore\[[\w,-]+\] \w.{10,}|hadolint ignore=[\w,]+ # \w.{10,}"
    assert all(re.search(pattern, line) for line in ignores)

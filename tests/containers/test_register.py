"""A runner is registered where no workflow of a pull request can reach it, for one job."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from warpwatch.sandbox import images

FOLDER = images.root() / "docker" / "runner"
LABELS = ["self-hosted", "linux", "x64", "warpwatch-cuda"]
OURS = "team/kernels/.github/workflows/warpwatch-{}.yml@refs/heads/main"
GROUP = {
    "id": 5,
    "name": "warpwatch-gpu",
    "restricted_to_workflows": True,
    "selected_workflows": [OURS.format("gpu"), OURS.format("nightly")],
}
RUN = {
    "path": ".github/workflows/warpwatch-pull-request-gpu.yml",
    "event": "workflow_run",
    "head_branch": "main",
    "head_repository": {"full_name": "team/kernels"},
}
JOB = {"status": "queued", "labels": LABELS}


class Hub:
    """What an administrator's token sees."""

    def __init__(self) -> None:
        self.groups: list[dict[str, Any]] = [GROUP]
        self.repository = {"private": False, "default_branch": "main", "full_name": "team/kernels"}
        self.runs: dict[int, dict[str, Any]] = {7: RUN}
        self.jobs: dict[int, list[dict[str, Any]]] = {7: [JOB]}
        self.registered: list[tuple[str, dict[str, Any]]] = []

    def answer(self, method: str, path: str, body: Any) -> Any:
        if method == "POST" and path.endswith("/actions/runners/generate-jitconfig"):
            self.registered.append((path, body))
            return {"encoded_jit_config": "c2VjcmV0"}
        if path.startswith("/orgs/team/actions/runner-groups"):
            return {"runner_groups": self.groups}
        if path == "/repos/team/kernels":
            return self.repository
        if match := re.fullmatch(
            r"/repos/team/kernels/actions/runs/(\d+)/jobs\?per_page=100", path
        ):
            jobs = self.jobs[int(match[1])]
            return {"jobs": jobs[:100], "total_count": len(jobs)}
        if match := re.fullmatch(r"/repos/team/kernels/actions/runs/(\d+)", path):
            return self.runs[int(match[1])]
        waiting = [{"id": number} for number in self.runs] if "status=queued" in path else []
        return {"workflow_runs": waiting}


@pytest.fixture
def hub() -> Iterator[tuple[Hub, str]]:
    held = Hub()

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            known = self.headers["Authorization"] == "Bearer secret" and "hidden" not in self.path
            data = json.dumps(held.answer(self.command, self.path, body) if known else {}).encode()
            self.send_response(200 if known else 401)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do  # noqa: N815  (names that http.server looks for)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield held, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


ORGANISATION = 'organisation = "team"\ngroup = "warpwatch-gpu"\n'
REPOSITORY = 'repository = "team/kernels"\n'


def register(
    hub: tuple[Hub, str], folder: Path, owner: str, *more: str, token: str = "secret"
) -> tuple[int, str]:
    """The exit code, and what was written or said."""
    (folder / "runner.toml").write_text(f"{owner}labels = {json.dumps(LABELS)}\n")
    (folder / "token").write_text(f"{token}\n")
    out = folder / "jit"
    command = [sys.executable, "-I", str(FOLDER / "register.py"), "--out", str(out)]
    command += ["--config", str(folder / "runner.toml"), "--token", str(folder / "token"), *more]
    environment = {"GITHUB_API_URL": hub[1]}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    if done.returncode == 0:
        assert out.stat().st_mode & 0o777 == 0o400
        return 0, out.read_text()
    assert hub[0].registered == [] and not out.exists()
    return done.returncode, done.stderr


def test_an_organisation_s_runner_joins_a_group_of_our_workflows(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    assert register(hub, tmp_path, ORGANISATION) == (0, "c2VjcmV0")
    ((path, body),) = hub[0].registered
    assert path == "/orgs/team/actions/runners/generate-jitconfig"
    assert (body["runner_group_id"], body["labels"]) == (5, LABELS)
    assert images.get("cuda").runner == tuple(LABELS), "those that the workflow asks for"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "other"}, "has no runner group"),
        ({"restricted_to_workflows": False}, "admits every workflow"),
        ({"restricted_to_workflows": "true"}, "admits every workflow"),
        ({"selected_workflows": []}, "admits every workflow"),
        ({"selected_workflows": [OURS.format("gpu"), "team/kernels/.github/workflows/ci.yml@main"]},
         "which is none of ours"),
        ({"selected_workflows": [OURS.format("gpu").replace("heads/main", "pull/7/merge")]},
         "which is none of ours"),
        ({"selected_workflows": [OURS.format("gpu").replace("team/", "stranger/")]},
         "which is none of ours"),
        ({"selected_workflows": [OURS.format("gpu").replace("main", "mine")]},
         "the default branch is main"),
        ({"selected_workflows": [OURS.format("gpu").replace("/kernels", "/hidden")]},
         "the right to read that repository's metadata"),
    ],
)  # fmt: skip
def test_a_group_that_admits_more_is_refused(
    hub: tuple[Hub, str], tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    hub[0].groups = [GROUP | change]
    code, said = register(hub, tmp_path, ORGANISATION)
    assert code == 1 and why in said


def test_a_token_that_is_refused_registers_nothing(hub: tuple[Hub, str], tmp_path: Path) -> None:
    code, said = register(hub, tmp_path, ORGANISATION, token="other")
    assert code == 1 and "401" in said and "other" not in said


def test_a_public_repository_has_no_standing_runner(hub: tuple[Hub, str], tmp_path: Path) -> None:
    code, said = register(hub, tmp_path, REPOSITORY)
    assert code == 1 and "team/kernels is public" in said
    hub[0].repository["private"] = True
    assert register(hub, tmp_path, REPOSITORY)[0] == 0


def test_a_public_repository_s_runner_serves_one_approved_run(
    hub: tuple[Hub, str], tmp_path: Path
) -> None:
    assert register(hub, tmp_path, REPOSITORY, "--run", "7")[0] == 0
    assert hub[0].registered[0][0] == "/repos/team/kernels/actions/runners/generate-jitconfig"


def test_an_unapproved_run_is_named(hub: tuple[Hub, str], tmp_path: Path) -> None:
    hub[0].jobs[7] = [JOB | {"status": "waiting"}]
    code, said = register(hub, tmp_path, REPOSITORY, "--run", "7")
    assert code == 1 and "approve the run first" in said


def _waits(hub: Hub) -> None:
    hub.runs[8] = {}
    hub.jobs[8] = [JOB | {"labels": ["Self-Hosted", "warpwatch-CUDA"]}]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda hub: hub.runs.update({7: RUN | {"event": "pull_request"}}),
        lambda hub: hub.runs.update({7: RUN | {"path": ".github/workflows/ci.yml"}}),
        lambda hub: hub.runs.update({7: RUN | {"head_branch": "mine"}}),
        lambda hub: hub.runs.update({7: RUN | {"head_repository": {"full_name": "me/kernels"}}}),
        lambda hub: hub.runs.update({7: RUN | {"head_repository": None}}),
        _waits,
        lambda hub: hub.jobs.update({7: [JOB | {"status": "completed"}]}),
        lambda hub: hub.jobs.update({7: [JOB | {"status": "waiting"}]}),
        lambda hub: hub.jobs.update({7: [JOB | {"labels": ["ubuntu-24.04"]}]}),
        lambda hub: hub.jobs.update({7: [JOB] * 101}),
    ],
    ids=[
        "event",
        "workflow",
        "branch",
        "fork",
        "no repository",
        "another waits",
        "done",
        "not approved",
        "hosted",
        "cut off",
    ],
)
def test_a_run_that_is_not_ours_or_not_the_only_one_gets_no_runner(
    hub: tuple[Hub, str], tmp_path: Path, spoil: Callable[[Hub], None]
) -> None:
    spoil(hub[0])
    assert register(hub, tmp_path, REPOSITORY, "--run", "7")[0] == 1


def test_the_unit_registers_anew_as_root_and_runs_as_somebody_else() -> None:
    text = (FOLDER / "warpwatch-runner.service").read_text()
    lines = [line.partition("=")[::2] for line in text.splitlines() if "=" in line]
    values: dict[str, list[str]] = {}
    for key, value in lines:
        values.setdefault(key, []).append(value)
    assert values["User"] == ["runner"] and values["Restart"] == ["always"]
    wipe, register_line = values["ExecStartPre"]
    assert wipe == f"+/bin/rm -rf {values['WorkingDirectory'][0]}/_work"
    assert register_line.startswith("+/usr/local/sbin/warpwatch-register ")
    known = (FOLDER / "register.py").read_text()
    assert all(f'"{option}"' in known for option in re.findall(r"--[a-z]+", register_line))
    out = re.findall(r"--out (\S+)", register_line)[0]
    assert f"$(cat {out})" in values["ExecStart"][0]

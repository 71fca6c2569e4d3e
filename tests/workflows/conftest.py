"""What the tests of workflows share: a remote that can be pushed to, and an API."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflows import stand_in
from tests.workflows.stand_in import StandIn
from warpwatch.ci import api


@pytest.fixture
def remote(tmp_path: Path) -> str:
    path = tmp_path / "remote.git"
    subprocess.run(["git", "init", "--quiet", "--bare", str(path)], check=True, timeout=120)
    return str(path)


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    with stand_in.serve() as served:
        served.pull_request()
        monkeypatch.setenv("GITHUB_API_URL", served.url)
        monkeypatch.setenv("GITHUB_TOKEN", "secret")
        monkeypatch.setattr(api, "WAITS_S", [0.0] * 3)
        monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
        yield served

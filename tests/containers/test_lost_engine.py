"""An engine that is not there, or ends before a run: each is one line.

No container is left here: test_engine.py, which may run meanwhile, counts those of dead owners.
"""

from __future__ import annotations

import os
import socketserver
import subprocess
import sys
import threading
from pathlib import Path

import docker
import pytest

from tests.containers.conftest import start
from warpwatch.sandbox import containers, images
from warpwatch.sandbox.settings import EngineError

pytestmark = [pytest.mark.container, pytest.mark.slow]


def test_an_engine_that_dies_before_the_run_is_one_line(
    container_environment: dict[str, str], repository: Path, tmp_path: Path
) -> None:
    mortal = start(container_environment, tmp_path)
    client = docker.DockerClient(base_url=mortal.environment["DOCKER_HOST"])
    assert client.ping()
    mortal.process.kill()
    mortal.process.wait(timeout=60)
    run = containers.make_run(images.get("cpu"), ["true"], repository, None, machine="box")
    with pytest.raises(EngineError, match="stopped answering before anything was measured"):
        containers.execute(client, run)


class Dying(socketserver.StreamRequestHandler):
    """Says its version, and after that nothing: an engine that ends between two questions."""

    def handle(self) -> None:
        asked = self.rfile.readline()
        if b"/version" in asked:
            body = b'{"ApiVersion": "1.41"}'
            head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            self.wfile.write(head.encode() + body)


def test_an_engine_that_dies_while_it_is_asked_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "engine.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socketserver.UnixStreamServer(str(path), Dying) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(EngineError, match="no container engine answers at unix://"):
                containers.connect()
        finally:
            server.shutdown()
            thread.join()


def test_no_engine_is_one_line(repository: Path, tmp_path: Path) -> None:
    command = [
        "container",
        "run",
        "--backend",
        "cpu",
        "--repository",
        str(repository),
        "--",
        "true",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "warpwatch", *command],
        cwd=images.root(),
        env={**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nobody.sock"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: no container engine answers at unix://")
    assert "podman system service" in done.stderr and done.stderr.count("\n") == 1

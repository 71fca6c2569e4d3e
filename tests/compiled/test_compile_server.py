"""The process that has imported the compilers serves whoever a process of its own would serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ends
from warpwatch.config import isolation
from warpwatch.config.package import CACHE_VARIABLE, COMPILE_SERVER_VARIABLE
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure import compile_server, jobs

PACKAGE = """
import os
import torch, triton, triton.language as tl

@triton.jit
def scale(x, FACTOR: tl.constexpr):
    offset = tl.arange(0, 64)
    tl.store(x + offset, tl.load(x + offset) * FACTOR)

def call(x):
    factor = os.environ.get("FACTOR", "1")
    for _ in range(int(factor)):
        scale[(1,)](x, float(len(os.getcwd())))
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Of a package ``scaled`` in a folder, where nothing compiled is kept; with a server, which may
    be that of all tests."""
    (tmp_path / "scaled.py").write_text(PACKAGE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    with compile_server.serving():
        found = isolation.subprocess_environment()
        yield found | {"PYTHONPATH": os.pathsep.join([str(tmp_path), found["PYTHONPATH"]])}


def measured(environment: dict[str, str]) -> Measurement:
    ((_, found),) = jobs.measure([jobs.Job("scaled:call", "sm_90", "fp32[64]")], environment)
    return found


def is_served(environment: dict[str, str]) -> bool:
    request = {"batches": [], "processes": 1, "job_seconds": 1}
    found = compile_server.connected(request, environment, sys.stderr.fileno())
    if found is not None:
        found.close()
    return found is not None


def test_a_fork_has_the_package_the_folder_and_the_settings_of_its_sender(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert is_served(environment)
    served = measured(environment | {"FACTOR": "3"})
    (tmp_path / "scaled.py").write_text(PACKAGE.replace("* FACTOR", "+ FACTOR"))
    edited = measured(environment)
    del environment[COMPILE_SERVER_VARIABLE]
    of_its_own = measured(environment)
    assert served.status == edited.status == "ok", served.detail + edited.detail
    assert served.values["launches"] == 3
    assert edited.values["launches"] == 1
    assert edited.code == of_its_own.code != served.code


@pytest.mark.parametrize("name", ["TRITON_DISABLE_LINE_INFO", "PYTHONHASHSEED"])
def test_settings_that_the_tools_read_are_a_process_of_its_own(
    environment: dict[str, str], name: str
) -> None:
    assert is_served(environment)
    assert is_served(environment | {"TORCHINDUCTOR_CACHE_DIR": "elsewhere"})
    assert not is_served(environment | {name: "7"})


def test_another_tool_on_the_path_is_a_process_of_its_own(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('another one')")
    found = measured(environment)
    assert found.status == "not measured"
    assert "another one" in found.detail


def test_a_server_that_is_gone_is_no_obstacle(environment: dict[str, str], tmp_path: Path) -> None:
    found = measured(environment | {COMPILE_SERVER_VARIABLE: str(tmp_path / "nobody")})
    assert (found.status, found.values["launches"]) == ("ok", 1)


OWNER = """
import os, sys, time
from warpwatch.instruments.compiled.measure import compile_server

with compile_server.serving():
    print(os.environ["WARPWATCH_COMPILE_SERVER"], flush=True)
    time.sleep(300)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_its_owner(how: int) -> None:
    environment = {k: v for k, v in os.environ.items() if k != COMPILE_SERVER_VARIABLE}
    # A background process of a shell may ignore an interrupt, and so would what it starts.
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert owner.stdout is not None
        place = owner.stdout.readline().strip()
        (server,) = _children(owner.pid)
        owner.send_signal(how)
        owner.wait(timeout=60)
        assert ends(server)
        if how == signal.SIGINT:
            assert not Path(place).exists()
    finally:
        owner.kill()
        owner.wait(timeout=60)


def _children(process: int) -> list[int]:
    deadline = time.monotonic() + 60
    file = Path(f"/proc/{process}/task/{process}/children")
    while not (found := file.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(map(int, found))


def test_a_process_that_imported_the_tools_ends_without_their_last_words() -> None:
    code = (
        "import atexit, sys\n"
        "from warpwatch.instruments.compiled.measure import job_process\n"
        "atexit.register(print, 'leaked 64 types!', file=sys.stderr)\n"
        "print('answered')\n"
        "job_process.leave(3)\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (3, "answered\n", "")

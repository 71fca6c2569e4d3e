"""The engine that these tests start leaves nothing behind, however they end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ends, runs
from warpwatch.sandbox import images

pytestmark = [pytest.mark.container, pytest.mark.slow]


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end the process")
def test_an_engine_ends_with_the_tests_that_were_killed(
    container_environment: dict[str, str], tmp_path: Path
) -> None:
    code = (
        "import os, sys, time; from pathlib import Path\n"
        "from tests.containers.conftest import start\n"
        "print(start(dict(os.environ), Path(sys.argv[1])).process.pid, flush=True)\n"
        "time.sleep(120)"
    )
    tests = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=images.root(),
        env=container_environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tests.stdout is not None
    engine = tests.stdout.readline().strip()
    assert runs(engine)
    tests.kill()
    tests.communicate(timeout=60)
    assert ends(engine)

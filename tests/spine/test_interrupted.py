"""A `history` that is interrupted while asv starts its server of benchmarks: nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import ends
from tests.spine import strangers
from warpwatch.commands.measure import interrupted

# The server takes its time, as on a busy machine: asv waits for it.
SLOW = """import os, sys, time
if "run_server" in sys.orig_argv:
    with open({mark!r}, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks its processes up in /proc")
@pytest.mark.parametrize(
    ("interrupt", "bench"),
    [(os.killpg, ()), (os.kill, ("--bench", "^compiled"))],
    ids=["a terminal, two queues", "history only, one queue"],
)
def test_nothing_is_left_of_an_interrupted_history(
    tmp_path: Path, interrupt: Callable[[int, int], None], bench: tuple[str, ...]
) -> None:
    strangers.configured(tmp_path, (strangers.OPS, "Add gelu"))
    mark, slow = tmp_path / "mark", tmp_path / "slow"
    slow.mkdir()
    (slow / "sitecustomize.py").write_text(SLOW.format(mark=str(mark)), "utf-8")
    environment = {**strangers.environment_of(tmp_path), "PYTHONPATH": str(slow)}
    with subprocess.Popen(
        [sys.executable, "-m", "warpwatch", "history", "--commits", "1", *bench],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal has it
    ) as run:
        late = threading.Timer(100, os.killpg, (run.pid, signal.SIGKILL))
        late.start()
        until = time.monotonic() + 60
        while not (mark.exists() and mark.read_text()) and time.monotonic() < until:
            time.sleep(0.05)
        server = mark.read_text()
        interrupt(run.pid, signal.SIGINT)
        _, said = run.communicate(timeout=110)
        late.cancel()
    assert run.returncode == 130, said
    assert said.splitlines()[-2:] == [interrupted.GOES_ON, "interrupted"], said
    assert "Traceback" not in said, said
    assert ends(server)


@pytest.mark.parametrize(
    ("again", "line"), [(False, interrupted.GOES_ON), (True, interrupted.KEPT)]
)
def test_an_interrupted_history_says_what_is_kept(
    again: bool, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(KeyboardInterrupt), interrupted.says_what_is_kept(again):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == f"{line}\n"


# As asv while it waits: it does not hear an interrupt.
DEAF = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(600)"


def test_who_interrupts_twice_does_not_wait_for_asv() -> None:
    command = [sys.executable, "-c", DEAF]
    with subprocess.Popen(command, text=True, start_new_session=True) as run:
        again = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        try:
            with pytest.raises(KeyboardInterrupt), interrupted.ends_with(run):
                again.start()
                raise KeyboardInterrupt
            again.join()
            assert run.returncode == -signal.SIGKILL
        finally:
            run.kill()

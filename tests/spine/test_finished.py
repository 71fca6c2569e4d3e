"""The line at the end of each commit of a `history`, of real runs of asv."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests import forked
from tests.spine import strangers
from warpwatch.commands.measure.finished import duration

# A terminal would turn red, and a reader's text around; it is longer than a line has room for.
HOSTILE = "Break \x1b[31mit \u202eall, and say so in more words than anyone would like to read"
TAKES = r"took \d+ s"
LEFT = r"; about \d+ s left"


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, list[str]]:
    """A package whose third commit copies, and whose fourth cannot be imported; its commits, newest
    first."""
    strangers.configured(
        tmp_path,
        (strangers.OPS, "Add gelu"),
        (strangers.OPS + "# the same\n", "Say more"),
        (strangers.COPIES, "Copy first"),
        ("import no_such_module\n", HOSTILE),
        configuration=strangers.CONFIGURATION.replace("4096]", "4096,4096]"),
    )
    return tmp_path, strangers.git(tmp_path, "log", "--format=%H").split()


def lines(folder: Path, *arguments: str) -> list[str]:
    """What a history says at the end of commits; its standard error is no terminal."""
    environment = strangers.environment_of(folder)
    done = forked.warpwatch("history", *arguments, folder=folder, environment=environment)
    assert isinstance(done, subprocess.CompletedProcess)
    return [line for line in done.stderr.splitlines() if " done: " in line]


@pytest.mark.slow
def test_each_commit_has_a_line_with_its_result_and_what_changed(
    project: tuple[Path, list[str]],
) -> None:
    folder, commits = project
    broken, copies, same, first = (one[:8] for one in commits)
    # One pattern has one queue: the order of the lines is that of the commits.
    said = lines(folder, "--commits", "3", "--bench", "^compiled")
    assert len(said) == 3, said
    subject = "Break  [31mit  all, and say so in more words than…"
    assert re.fullmatch(
        rf"commit 1 of 3 done: {broken} “{re.escape(subject)}”; 0 of 1 pairs measured, 1 failed; "
        rf"{TAKES}{LEFT}",
        said[0],
    ), said[0]
    assert re.fullmatch(
        rf"commit 2 of 3 done: {copies} “Copy first”; 1 of 1 pairs measured; "
        rf"{broken} after it: missing, gelu on sm_90; {TAKES}{LEFT}",
        said[1],
    ), said[1]
    assert re.fullmatch(
        rf"commit 3 of 3 done: {same} “Say more”; 1 of 1 pairs measured; "
        rf"{copies} after it: regressed, predicted_us [\d.]+ -> [\d.]+ of gelu on sm_90; "
        rf"{TAKES}",
        said[2],
    ), said[2]
    # What is recorded has no line, and counts as done.
    (one,) = lines(folder, "--commits", "4", "--bench", "^compiled")
    assert re.fullmatch(
        rf"commit 4 of 4 done: {first} “Add gelu”; 1 of 1 pairs measured; "
        rf"{same} after it: unchanged; {TAKES}",
        one,
    ), one


@pytest.mark.slow
def test_an_interrupt_keeps_the_finished_and_calls_no_other_so(
    project: tuple[Path, list[str]],
) -> None:
    folder, commits = project
    command = [sys.executable, "-m", "warpwatch", "history", "--commits", "4", "--bench", "^comp"]
    said = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=strangers.environment_of(folder),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as a terminal, which interrupts all processes in it
    ) as run:
        assert run.stderr is not None
        late = threading.Timer(300, os.killpg, (run.pid, signal.SIGKILL))
        late.start()
        has_two = False
        for line in run.stderr:
            said.append(line)
            has_two = has_two or line.startswith("commit 2 of 4 done: ")
            # Before that asv starts its server: tests/spine/test_interrupted.py.
            if has_two and "Setting up" in line:
                os.killpg(run.pid, signal.SIGINT)
        late.cancel()
    assert run.returncode == 130, "".join(said)
    assert sum(" done: " in line for line in said) == 2, "".join(said)
    again = lines(folder, "--commits", "4", "--bench", "^comp")
    assert [line.split(" done: ")[0] for line in again] == ["commit 3 of 4", "commit 4 of 4"]
    assert again[0].split()[5] == commits[2][:8]


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5900.0, "98 min"), (9000.0, "2.5 h")],
)
def test_a_time_is_said_in_the_unit_one_would_use(seconds: float, said: str) -> None:
    assert duration(seconds) == said

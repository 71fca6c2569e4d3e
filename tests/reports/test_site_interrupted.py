"""What a build that is interrupted or fails leaves: the old site, whole, and nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reports import trees
from tests.reports.test_site import build, contents, noisy_tree, write
from warpwatch.report import builder
from warpwatch.report.atomic_site import FreshSite

ROOT = Path(__file__).resolve().parents[2]

ENDING = """
import os, pathlib, subprocess, sys, time
from warpwatch.judge.results.processes import Workers

folder = pathlib.Path(sys.argv[1])

def busy(word):
    (folder / str(os.getpid())).touch()
    while not (folder / word).exists():
        time.sleep(0.01)

with Workers(2) as workers:
    workers.map(busy, ["interrupted", "interrupted"], worth=True)
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    # However late that is: they are busy until then.
    subprocess.Popen(["sh", "-c", "sleep 0.3; kill -INT $PPID; touch $0/interrupted", folder])
"""


def test_an_interrupt_while_processes_are_stopped_leaves_none_behind(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDING, str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        # What is left behind would hold the pipe open.
        assert process.communicate(timeout=60)[1].endswith("KeyboardInterrupt\n")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


# ``warpwatch`` that is stopped by its first page, whichever of its processes draws it.
STOPPED = """
import os, pathlib, runpy, signal, sys

process, begun = os.getpid(), pathlib.Path(sys.argv.pop(1))

def heard(event, arguments):
    if event == "open" and ".html.new-" in str(arguments[0]) and not begun.exists():
        try:
            begun.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(process, signal.SIGSTOP)

# Whoever runs the tests behind a shell's & has SIGINT ignored, and hands that on.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.addaudithook(heard)
runpy.run_module("warpwatch", run_name="__main__", alter_sys=True)
"""


def interrupted_build(
    tree: trees.Tree, folder: Path, begun: Path, how: signal.Signals
) -> tuple[int, str]:
    """A build into ``folder`` that gets a signal as soon as it has begun to write: its exit code
    and what it said."""
    build = ["report", "--results", tree.results, "--repo", tree.repo, "--out", folder / "html"]
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, begun, *build],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    os.killpg(process.pid, how)
    os.killpg(process.pid, signal.SIGCONT)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_build_leaves_the_old_site_whole(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, how: signal.Signals
) -> None:
    tree = noisy_tree(tmp_path, series=310)
    build(tree, tmp_path / "html")
    before = contents(tmp_path / "html")
    names = sorted(tmp_path.iterdir())
    for commit in range(23):
        write(tree, commit, 310)
    tree.write_result(23, {"bench.time_it": [9.0] * 310})
    begun = tmp_path_factory.mktemp("begun") / "begun"
    code, said = interrupted_build(tree, tmp_path, begun, how)
    assert begun.exists()
    assert contents(tmp_path / "html") == before
    if how is signal.SIGINT:
        assert (code, said) == (130, "interrupted\n")
        assert sorted(tmp_path.iterdir()) == names
    else:
        assert code == -signal.SIGKILL
    assert build(tree, tmp_path / "html") == 0
    assert contents(tmp_path / "html") != before


def test_a_failure_while_drawing_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = noisy_tree(tmp_path)
    build(tree, tmp_path / "html")
    before = contents(tmp_path / "html")
    write(tree, 23)

    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(builder, "write_site", fail)
    with pytest.raises(OSError, match="no space left"):
        build(tree, tmp_path / "html")
    assert contents(tmp_path / "html") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".html.cache",
        "html",
        "repo",
        "results",
    ]


def test_a_new_site_takes_the_old_ones_place_at_once(tmp_path: Path) -> None:
    for content in ("one", "two"):
        with FreshSite(tmp_path / "html") as fresh:
            fresh.write("index.html", content)
            fresh.publish("stamp")
        assert (tmp_path / "html/index.html").read_text() == content
        assert [path.name for path in tmp_path.iterdir()] == ["html"]

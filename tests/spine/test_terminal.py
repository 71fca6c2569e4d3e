"""What a terminal shows of asv's output: failures with the same words once a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests import forked
from tests.spine import strangers
from warpwatch.commands.measure.terminal import ALIKE, Shown

CAUSE = "import ops: ModuleNotFoundError: No module named 'no_such_module'"


def test_a_package_that_cannot_be_imported_says_so_once_a_commit(tmp_path: Path) -> None:
    text = "import no_such_module\n# {}\n"
    strangers.configured(tmp_path, *((text.format(i), f"Commit {i}") for i in range(2)))
    environment = strangers.environment_of(tmp_path)
    options = ("--commits", "2", "--bench", "track_(launches|bound_us)")
    done = forked.warpwatch("history", *options, folder=tmp_path, environment=environment)
    assert isinstance(done, subprocess.CompletedProcess)
    assert done.returncode == 3
    lines = done.stderr.splitlines()
    assert sum("Traceback" in line for line in lines) == 2, done.stderr
    print(done.stderr)
    ends = [i for i, line in enumerate(lines) if line.startswith("commit ")]
    assert [lines[i - 1] + "\n" for i in ends] == [ALIKE] * 2, done.stderr
    log = (tmp_path / ".asv" / "run.log").read_text("utf-8")
    assert log.count(f"RuntimeError: {CAUSE}") >= 8


def shown(*lines: str) -> list[str]:
    found, taker = [], Shown()
    for line in lines:
        found += [*taker.before(line), *taker.take(line)]
    return [*found, *taker.end()]


def test_other_words_of_the_same_benchmark_are_shown() -> None:
    head = "[10.00%] · For ops commit 754235f8 <main>:\n"
    table = ("[20.00%] ··· ======= ======\n", "                x  failed\n", "\n")
    first = "[20.00%] ··· compiled.Gelu.track_launches   2/3 failed\n"
    well = ("[30.00%] ··· compiled.Gelu.track_atomics    1\n",)
    second = "[40.00%] ··· compiled.Gelu.track_bound_us   2/3 failed\n"
    words = [f"             For parameters: '{one}'\n             no {one}\n" for one in "abc"]
    parts = [line + "\n" for one in words for line in one.splitlines()]
    said = shown(head, first, *table, *parts[:4], *well, second, *table, *parts[2:6])
    assert said == [
        head,
        first,
        *parts[:4],
        second,
        *parts[4:6],
        ALIKE,
    ]


def test_a_benchmark_that_fails_without_a_word_has_its_heading() -> None:
    failed = ["[20.00%] ··· host.Gelu.track_host_us   failed\n"] * 2
    assert shown(*failed) == failed
    ended = "             asv: benchmark failed (exit status 1)\n"
    assert shown(failed[0], ended) == [failed[0]]


TRACEBACK = ("Traceback (most recent call last):\n", '  File "main.py", line 29, in main\n')


def test_the_traceback_of_an_interrupt_is_not_shown_and_that_of_an_error_is() -> None:
    head = "[ 0.00%] · For ops commit 754235f8 <main>:\n"
    error = (*TRACEBACK, "OSError: no space left\n")
    assert shown(head, *TRACEBACK, "KeyboardInterrupt\n") == [head]
    assert shown(head, *error) == [head, *error]
    assert shown(head, *TRACEBACK) == [head, *TRACEBACK], "cut short"
    assert shown(head, *TRACEBACK, head) == [head, *TRACEBACK, head]

"""``warpwatch simulate`` says what is wrong with a kernel, in which lines, and in which order."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from warpwatch.commands.compiled import simulate

FILE = Path(__file__).with_name("small_kernels.py")
LINES = FILE.read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> int:
    """Which line of the small kernels has this text."""
    (found,) = (number for number, line in enumerate(LINES, start=1) if text in line)
    return found


def command(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    simulate.add_arguments(parser)
    return simulate.main(parser.parse_args(arguments))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = command(f"{FILE}:run", *arguments, "--json")
    return code, json.loads(capsys.readouterr().out)


LOADS = "tma.async_copy_global_to_shared(a,"
MULTIPLIES = "acc = warpgroup_mma("
# What is wrong: the kind of fault, and lines that a report of it names.
FAULTS = {
    "no wait for empty": ("race in shared memory", (LOADS,)),
    "no wait for full": ("value nobody wrote", (MULTIPLIES,)),
    "no wait for the product": ("product used before it was waited for", ("acc = acc + 1.0",)),
    "no hand-back": (
        "deadlock",
        ("mbarrier.wait(empty.index(stage)", "mbarrier.wait(full.index(stage)"),
    ),
    "no fence": ("missing fence", ("tma.async_copy_shared_to_global(c", "out.store(acc")),
    "no wait for the store": ("copy in flight at the end", ("tma.async_copy_shared_to_global(c",)),
    "an error": ("error in the kernel", ("acc = acc + None",)),
    "before the end": ("value nobody wrote", ("gl.load(c_pointer",)),
    "behind the end": ("address out of bounds", ("gl.store(c_pointer + at, 0.0)",)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_with_lines_and_seed(capsys: pytest.CaptureFixture[str], fault: str) -> None:
    kind, lines = FAULTS[fault]
    code, found = told(capsys, fault)
    assert code == 1
    wanted = [one for one in found["faults"] if one["kind"] == kind]
    assert wanted, found["faults"]
    named = {(site["file"], site["line"]) for one in wanted for site in one["sites"]}
    assert {(str(FILE), line_of(line)) for line in lines} <= named
    again, same = told(capsys, fault, "--seeds", "1", "--first", str(wanted[0]["seed"]))
    assert again == 1 and wanted[0]["kind"] in [one["kind"] for one in same["faults"]]


def test_a_clean_kernel_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(f"{FILE}:run", "", "n=3", "--seeds", "4") == 0
    assert "no fault in 4 orders, 8 launches" in capsys.readouterr().out


def test_a_word_that_is_not_known_is_one_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(f"{FILE}:run", "a word") == 3
    out = capsys.readouterr().out
    assert "unknown word: gl.no_such_word is not known" in out
    assert f"small_kernels.py:{line_of('gl.no_such_word(')}" in out


def test_host_code_may_fail_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(f"{FILE}:wrong_answer", "--seeds", "2") == 1
    out = capsys.readouterr().out
    assert "error in the host code: AssertionError: Tensor-likes are not close!" in out
    assert f"small_kernels.py:{line_of('torch.testing.assert_close(torch.zeros')}" in out
    assert "Traceback" not in out


def test_nothing_launched_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(f"{FILE}:nothing") == 0
    assert "nothing was launched" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("small_kernels",), "expected MODULE:CALLABLE"),
        (("no.such.module:run",), "cannot be imported"),
        ((f"{FILE}:no_such",), "has no function"),
        ((f"{FILE}:run", "--seeds", "0"), "--seeds: expected 1 or more"),
    ],
)
def test_usage(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command(*arguments)


def test_the_process_prints_no_trace_back() -> None:
    """Anew, as a user runs it: host code that sees a GPU, and no trace of the simulator's own."""
    lines = [
        "import argparse, sys",
        "from warpwatch.commands.compiled import simulate",
        "parser = argparse.ArgumentParser()",
        "simulate.add_arguments(parser)",
        "sys.exit(simulate.main(parser.parse_args()))",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines), f"{FILE}:run", "no fence", "--seeds", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=FILE.parents[2],
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"missing fence: .* fence_async_shared", done.stdout)
    assert "Traceback" not in done.stdout + done.stderr

"""Host code runs on a GPU that is not there, or ends in one clear line and no trace-back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import forked

FILE = Path(__file__).with_name("host_cases.py")
LINES = FILE.read_text(encoding="utf-8").splitlines()


def simulate(*arguments: str) -> tuple[int, str]:
    """Run the real command; its exit code and all that it prints."""
    done = forked.warpwatch("simulate", *arguments, folder=FILE.parents[2], seconds=300)
    assert "Traceback" not in done.stdout + done.stderr
    return done.returncode, done.stdout + done.stderr


def call(name: str, *arguments: str) -> tuple[int, str]:
    return simulate(f"{FILE}:{name}", *arguments, "--seeds", "2")


def line_of(text: str) -> str:
    (found,) = (number for number, line in enumerate(LINES, start=1) if text in line)
    return f"host_cases.py:{found}"


WRONG_LAUNCHES = {
    "an_argument_too_few": ("fill: missing a required argument: 'n'", "fill[(1,)](_made(), BLOCK"),
    "an_argument_too_many": ("fill: too many positional arguments", "fill[(1,)](_made(), 8, 8, 9)"),
    "a_wrong_keyword": ("fill has no argument BLOCKS", "BLOCKS=8)"),
    "a_grid_of_none": ("expected a grid of up to three numbers", "fill[(None,)]"),
    "three_warps": ("expected a power of two as num_warps, got 3", "num_warps=3"),
    "a_complex_tensor": ("no kernel takes a tensor of torch.complex64", "complex64), 8"),
}


@pytest.mark.parametrize("name", WRONG_LAUNCHES)
def test_a_wrong_launch_names_the_users_line(name: str) -> None:
    message, line = WRONG_LAUNCHES[name]
    code, out = call(name)
    assert code == 1
    assert f"wrong launch: {message}" in out and f"here: tests/gluon/{line_of(line)}" in out


def test_a_loop_without_an_end_is_a_report() -> None:
    code, out = call("endless", "--steps", "1000")
    assert code == 1
    assert "endless loop: " in out and "--steps" in out and "in 1 order, 1 launch" in out
    assert line_of("while i >= 0:") in out or line_of("i = (i + 1) % 7") in out
    assert call("ends", "--steps", "1000")[0] == 0


def test_the_budget_of_steps_can_be_raised() -> None:
    code, out = call("long", "3000", "--steps", "1000")
    assert code == 1 and line_of("for i in range(n):") in out
    assert call("long", "3000", "--steps", "3000")[0] == 0
    assert simulate("--help")[0] == 0 and "--steps N" in simulate("--help")[1]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("skips", "error: the host code ends itself: Skipped: no such card\n"),
        ("exits", "error: the host code ends itself: SystemExit: 3\n"),
        ("wants", "error: wants: missing a required argument: 'one'\n"),
    ],
)
def test_host_code_that_cannot_run_is_one_line(name: str, message: str) -> None:
    assert call(name) == (2, message)


@pytest.mark.parametrize("text", ["import pytest\npytest.skip('none', allow_module_level=True)",
                                  "import sys\nsys.exit(3)", "1 / 0"])  # fmt: skip
def test_a_module_that_ends_itself_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a_module.py"
    file.write_text(text)
    code, out = simulate(f"{file}:run")
    assert code == 2 and out.count("\n") == 1 and f"error: {file} cannot be imported: " in out


def test_a_trace_wants_a_folder(tmp_path: Path) -> None:
    missing = tmp_path / "none"
    code, out = call("ends", "--trace", str(missing / "a.svg"))
    assert (code, out) == (2, f"error: --trace: there is no folder {missing}\n")
    (tmp_path / "a.svg").mkdir()
    code, out = call("ends", "--trace", str(tmp_path / "a.svg"))
    assert code == 2 and out.startswith("error: --trace: ") and out.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["events", "streams", "generators", "statistics", "default_device", "layers"]
)
def test_host_code_finds_what_it_asks_of_a_gpu(name: str) -> None:
    code, out = call(name)
    assert code == 0 and "no fault in 2 orders, 2 launches" in out, out


def test_graphs_are_refused() -> None:
    code, out = call("graphs")
    assert code == 3 and out.startswith("unknown word: torch.cuda.CUDAGraph is not known")
    assert line_of("torch.cuda.CUDAGraph()") in out


def test_a_range_is_a_power_of_two() -> None:
    code, out = call("a_range_of_seven")
    assert code == 1 and "misuse: arange's range must be a power of 2, got 7" in out
    assert line_of("at = tl.arange(0, 7)") in out


KERNELS = FILE.with_name("reported_kernels.py")


@pytest.mark.parametrize(
    ("run", "word", "own", "other"),
    [
        ("run_staged", "warpgroup_mma", "sm_90", "sm_100"),
        ("run_on_blackwell", "allocate_tensor_memory", "sm_100", "sm_90"),
    ],
)
def test_words_of_another_target_are_refused(run: str, word: str, own: str, other: str) -> None:
    text = (f"{KERNELS}:{run}", "", "1", "--seeds", "1")
    assert simulate(*text, "--target", own)[0] == 0
    assert simulate(*text)[0] == 0  # none was named
    code, out = simulate(*text, "--target", other)
    assert code == 1
    assert f"{word} is a word of {own}, and the target is {other}" in out
    (line,) = re.findall(r"here: tests/gluon/reported_kernels.py:(\d+)", out)
    assert word in KERNELS.read_text().splitlines()[int(line) - 1]

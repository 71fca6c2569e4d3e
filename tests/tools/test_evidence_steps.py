"""Each step is a command that is there and takes its arguments, and is judged by what it prints."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

from tests.root import ROOT
from tools.evidence import __main__ as command
from tools.evidence import peers_of_all, steps
from tools.evidence.runner import judged, telling
from tools.evidence.steps import STEPS
from tools.kernels import sanitized_paths
from warpwatch.commands.gpu import peers
from warpwatch.instruments.outcome import Outcome
from warpwatch.instruments.peers.registry import get

NAMED = {one.name: one for one in STEPS}


class Parsed(Exception):  # noqa: N818  it is no error
    pass


def parsed(module: str, given: list[str], monkeypatch: pytest.MonkeyPatch) -> argparse.Namespace:
    """What the parser of ``python -m module given`` makes of it; nothing is run."""
    plain = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, *args, **more):
        raise Parsed(plain(self, *args, **more))

    name = f"{module}.__main__" if (ROOT / module.replace(".", "/")).is_dir() else module
    monkeypatch.setattr(sys, "argv", [module, *given])
    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    with pytest.raises(Parsed) as found:
        importlib.import_module(name).main()
    return found.value.args[0]


@pytest.mark.parametrize("name", NAMED)
def test_each_step_is_a_command_that_takes_its_arguments(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = NAMED[name]
    given = [part.format(seconds="99", folder="some/place") for part in step.command]
    dash, module, *rest = given
    assert dash == "-m" and "{" not in "".join(given)
    if module == "pytest":
        files = [ROOT / part for part in rest if part.startswith("tests/")]
        assert files and all(path.is_file() for path in files)
        assert all("pytest.mark.gpu" in path.read_text() for path in files)
        return
    args = parsed(module, rest, monkeypatch)
    if module == "warpwatch":
        assert args.main is peers.main and peers.chosen(args)
    if "--part" in rest:
        assert re.fullmatch(r"[1-4]/4", args.part)


def test_a_parser_that_does_not_know_an_argument_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        parsed("tools.kernels.repeats", ["--sconds", "1"], monkeypatch)


def test_names_can_be_files_and_figures_can_be_found() -> None:
    assert len(NAMED) == len(STEPS)
    for one in STEPS:
        assert re.fullmatch(r"[a-z0-9-]+", one.name) and one.shows and one.seconds > 0
        assert not (one.timed and one.share < 1.0), "who is timed is alone"
        for pattern in (one.must, one.tells, one.spoils):
            re.compile(pattern)
        assert one.must, "nothing is right that showed nothing"


def test_every_test_on_a_gpu_and_all_parts_are_in_a_step() -> None:
    marked = {
        path.relative_to(ROOT).as_posix()
        for folder in ("gpu", "hopper")
        for path in (ROOT / "tests" / folder).glob("test_*.py")
        if re.search(r"^pytestmark = pytest\.mark\.gpu", path.read_text(), re.MULTILINE)
    }
    run = {part for one in STEPS for part in one.command if part.startswith("tests/")}
    # Ten thousand launches are a command, which the test would start.
    assert marked - run == {"tests/hopper/test_hopper_launches_on_gpu.py"}
    assert NAMED["launches"].command == ("-m", "tools.kernels.many_launches")
    for kind in ("paths", "repeats"):
        parts = [one.command[-1] for one in STEPS if one.name.startswith(kind)]
        assert parts == [f"{n}/4" for n in range(1, 5)]


def test_every_group_of_peers_is_measured_three_times_and_once_before_again() -> None:
    names = [one.name for one in STEPS if one.name.startswith("peers-")]
    assert names == [f"peers-{group}-{n}" for n in (1, 2, 3) for group in steps.GROUPS]
    few = steps.GROUPS["decode-few"][0]
    assert sorted(get(name).S for name in few[1::2]) == [2, 4, 8, 8, 16]


def test_what_ran_side_by_side_on_one_card_may_do_so() -> None:
    """At b8f8934, on an H200 with 16 cores."""
    beside = ("graphs-infinities", "reach", "launches", *(f"repeats-{n}" for n in range(1, 5)))
    assert sum(NAMED[name].share for name in beside) <= 1.0 + 1e-9
    # Tests in twelve processes each: two of them, of three that ran so beside fourteen more.
    assert NAMED["hopper-forward-matmul"].share + NAMED["hopper-gradients"].share <= 1.0
    assert NAMED["random"].share == 1.0


def test_a_path_that_racecheck_slows_down_has_its_time() -> None:
    """One took more than two minutes in its second way, where the first had failed after 37 s and
    begun after 52."""
    step = NAMED["racecheck-hopper"]
    given = step.limit_s - step.ends_s
    assert given > 52 + 37 + sanitized_paths.PATH_SECONDS["racecheck"]
    assert sanitized_paths.PATH_SECONDS["racecheck"] > 2 * 120


CASES = (
    ("paths-1", "  1.0 s  matmul portable=True Case(): ok\n34 paths, 0 failed\n", 0, "ok"),
    ("paths-1", "  1.0 s  matmul: FAILED out: 3.1\n34 paths, 1 failed\n", 1, "failed"),
    ("paths-1", "  1.0 s  matmul portable=True Case(): ok\n", -9, "incomplete"),
    ("random", "all 3000 0\nseeds from 101000000: 3000 of 3000 in 220 s\n", 0, "ok"),
    ("random", "all 2900 0\nseeds from 101000000: 2900 of 3000 in 330 s\n", 0, "incomplete"),
    ("reach", "===== 24 passed in 40.00s =====\n", 0, "ok"),
    ("reach", "[gw0] [  4%] PASSED tests/gpu/test_reach_on_gpu.py::test[1]\n", -15, "incomplete"),
    ("reach", "SKIPPED [2] tests/gpu/test_reach_on_gpu.py:12: x\n22 passed in 5s", 0, "failed"),
    ("reach", "FAILED tests/gpu/t.py::test - x\n== 1 failed, 23 passed in 4s ==\n", 1, "failed"),
    ("memcheck-hopper", "1 clean named 3 s\n72 paths: 72 clean\n", 0, "ok"),
    ("memcheck-hopper", "72 paths: 22 clean, 50 not run\n", 3, "incomplete"),
    ("racecheck-hopper", "5 FOUND named 3 s\n72 paths: 71 clean, 1 FOUND\n", 1, "failed"),
    ("repeats-1", "forward any 0 of 1000 unlike the first, 0 NaN 3.1 s\n0 failed\n", 0, "ok"),
    ("repeats-1", "forward any 3 of 1000 unlike the first, 0 NaN 3 s\n1 failed\n", 1, "failed"),
    ("launches", "matmul-fp8-split beside: same bits, 10000 calls, 1.00 s\n", 0, "ok"),
    ("launches", "forward-D96 alone: hung, 10000 calls, 20.00 s\n", 1, "failed"),
    ("speed-portable", "== decoding\nx: FAILED OutOfMemoryError: y\n", 0, "failed"),
    ("planted", "16 of 16 defects found, 16 with the cause expected\n", 0, "ok"),
    ("planted", "15 of 16 defects found, 15 with\nnot as expected: x\n", 1, "failed"),
)


@pytest.mark.parametrize(("name", "text", "code", "state"), CASES)
def test_what_a_step_prints_is_judged(name: str, text: str, code: int, state: str) -> None:
    assert judged(NAMED[name], text, code) == state


def test_the_last_of_ten_thousand_launches_is_the_last_case() -> None:
    from tools.kernels.many_launches import CASES as LAUNCHED
    from tools.kernels.many_launches import LOADS

    said = f"{list(LAUNCHED)[-1]} {LOADS[-1]}: same bits, 10000 calls"
    assert judged(NAMED["launches"], said, 0) == "ok"


BASE = "matmul-fp16-1024x1024x1024"


def printed(ours: Outcome) -> str:
    outcomes = {
        one.workload: one
        for one in (ours, Outcome(f"{BASE} @ cublas", "ok", "", {"latency_cold": (8.0, 8.0)}))
    }
    return "\n".join(peers.lines(peers.table([get(BASE)], outcomes, {}, None)))


def test_a_table_of_peers_without_our_time_is_not_good() -> None:
    step = NAMED["peers-guide-matmul-1"]
    good = printed(Outcome(BASE, "ok", "", {"latency_cold": (4.0, 4.0)}))
    assert judged(step, good, 0) == "ok"
    assert telling(step, good) == ("best peer's time over ours, geometric mean: 2.000",)
    for status in ("wrong answer", "not tried", "failed"):
        bad = printed(Outcome(BASE, status, "why"))
        assert judged(step, f"{good}\n{bad}", 0) == "failed"
        assert telling(step, bad)[0] == f"ours              {status}: why"


def test_repetitions_are_told_by_their_medians(tmp_path: Path) -> None:
    for number, ratios in enumerate(((1.0, 1.2), (0.9, 1.3), (1.1,)), 1):
        folder = tmp_path / f"peers-sdpa-{number}"
        folder.mkdir()
        rows = [
            {"workload": f"w{n}", "by": "ours", "versus_best": one} for n, one in enumerate(ratios)
        ]
        rows.append({"workload": "w0", "by": "cublas", "versus_best": 9.0})
        (folder / "peers.json").write_text(json.dumps({"rows": rows}))
    (line,) = peers_of_all.lines(tmp_path)
    assert "medians of 3: geometric mean 1.118 of 2, least 1.000 (w0); goal 1.10" in line
    assert line.endswith("; 1 in fewer repetitions")


def test_the_list_has_every_step_with_its_command_and_figure(capsys) -> None:
    assert command.main(["--list", "--only", "random"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.split()[:4] == ["random", "280", "s", "alone"]
    assert "3000 of 3000, none failed" in first
    assert second.strip().startswith("python -m tools.kernels.random_configurations --count 3000")
    assert last == "1 steps, 5 minutes of one card"


def test_sources_are_the_same_wherever_they_lie_and_others_after_an_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "ROOT", tmp_path)
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "one.py").write_text("a = 1\n")
    before = command.sources()
    (tmp_path / "kernels" / "made.json").write_text("{}")
    assert command.sources() == before
    (tmp_path / "kernels" / "one.py").write_text("a = 2\n")
    assert command.sources() != before

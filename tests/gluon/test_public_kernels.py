"""The tool for public kernels runs them, plants faults in them and says which were found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.gluon.public_kernels import __main__ as tool
from tools.gluon.public_kernels.cases import BLACKWELL, CASES, HOPPER, Case
from tools.gluon.public_kernels.planting import FENCE, PHASE, SIGNAL, WAIT

HERE = Path(__file__).parent


def of_small_kernels(fault: str, known: str = "") -> Case:
    return Case("small_kernels.py", "run", lambda m: (fault, 5), (HOPPER,), known, "it is said")


def test_planted_faults_are_found_or_said() -> None:
    row = tool.judge(HERE / "small_kernels.py", of_small_kernels(""), HOPPER, 2)
    assert row.answer == "right"
    # Waits for both barriers, the product and the store.
    assert row.planted == {WAIT: 4, SIGNAL: 2, PHASE: 2, FENCE: 2}
    assert row.found == {**row.planted, FENCE: 1}
    # The one behind the barriers' init is asked for in strict runs only.
    (missed,) = row.missed
    assert row.wrong and missed.endswith("product: no fence_async_shared()")
    said = tool.table([row])
    assert "1 kernels of 1 files, 0 false reports" in said
    assert "10 faults planted: 9 found, 0 explained, 1 not found" in said


def test_a_report_of_a_kernel_as_it_is_counts_as_false_unless_it_is_known() -> None:
    path = HERE / "small_kernels.py"
    false = tool.judge(path, of_small_kernels("no fence"), HOPPER, 1)
    assert false.wrong and false.answer.startswith("missing fence: ")
    known = tool.judge(path, of_small_kernels("no fence", "missing fence"), HOPPER, 1)
    assert not known.wrong and known.answer == "missing fence, as expected"
    gone = tool.judge(path, of_small_kernels("", "missing fence"), HOPPER, 1)
    assert gone.wrong


def test_cases_are_of_both_targets() -> None:
    for target in (HOPPER, BLACKWELL):
        assert len({one.name for one in CASES if target in one.targets and not one.known}) >= 6


def test_a_folder_without_such_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main([str(tmp_path)]) == 2
    assert "04-tma.py" in capsys.readouterr().out

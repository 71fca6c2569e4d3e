"""Counter tables of rocprofv3, in the format of AMD's guide: not run on a card."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.instruments.test_counters import marked
from warpwatch import devices
from warpwatch.instruments.counters import rocprof
from warpwatch.session import utilization
from warpwatch.session.session import Session


def dispatch(
    counter: str,
    value: int,
    number: int = 1,
    kernel: str = "flash_forward",
    agent: str = '"Agent 4"',
) -> str:
    """A row in the format of AMD's guide "Using rocprofv3": an older one has the agent as a number.
    Values are made up."""
    return (
        f'{number},{number},{agent},1,99,99,131072,12,"{kernel}",256,32768,0,128,64,48,'
        f'"{counter}",{value}.000000,10,20'
    )


ROCPROF = "\n".join(
    [
        '"Correlation_Id","Dispatch_Id","Agent_Id","Queue_Id","Process_Id","Thread_Id",'
        '"Grid_Size","Kernel_Id","Kernel_Name","Workgroup_Size","LDS_Block_Size","Scratch_Size",'
        '"VGPR_Count","Accum_VGPR_Count","SGPR_Count","Counter_Name","Counter_Value",'
        '"Start_Timestamp","End_Timestamp"',
        dispatch("SQ_VALU_MFMA_BUSY_CYCLES", 60_800_000),
        dispatch("SQ_VALU_MFMA_BUSY_CYCLES", 60_800_000),
        dispatch("GRBM_GUI_ACTIVE", 200_000),
        dispatch("GRBM_GUI_ACTIVE", 190_000),
        dispatch("SQ_INSTS", 5000),
    ]
)


def test_mfma_utilization_of_an_amd_dispatch():
    (found,) = rocprof.parse(ROCPROF, devices.load("mi300x"))
    assert found.kernel == "flash_forward"
    assert found.mfma_percent == pytest.approx(100 * 121.6e6 / (200_000 * 304 * 4))
    assert found.instructions == 5000


HEAD = ROCPROF.splitlines()[0]


def marked_table(kernels: Sequence[str], agent: str) -> str:
    rows = [HEAD]
    for number, kernel in enumerate(kernels, 1):
        rows.append(dispatch("SQ_VALU_MFMA_BUSY_CYCLES", 121_600, number, kernel, agent))
        rows.append(dispatch("GRBM_GUI_ACTIVE", 200, number, kernel, agent))
        rows.append(dispatch("SQ_INSTS", 5000, number, kernel, agent))
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize("agent", ['"Agent 1"', "4"])
def test_what_rocprof_counted_between_the_marks_of_a_call_is_the_calls(agent: str):
    spin = "at::cuda::(anonymous namespace)::spin_kernel(long)"
    a, b, between = "a(float*, int)", "b", "inputs of the next"
    text = marked_table([a, spin, a, a, spin, between, spin, b, spin], agent)
    outcomes = {name: marked(name, 2) for name in ("one", "two")}
    found = rocprof.combine(outcomes, text, devices.load("mi300x"))
    assert found["one"].samples["instructions"] == (10_000,)
    assert found["two"].samples["instructions"] == (5_000,)
    assert found["two"].samples["tensor_pipe"] == pytest.approx((50.0,))
    assert "not been run on a card" in found["one"].detail
    with pytest.raises(rocprof.RocprofError, match="has 4 marks, the worker made 3"):
        outcomes["two"] = marked("two", 1)
        rocprof.combine(outcomes, text, devices.load("mi300x"))


def test_a_counter_rocprof_did_not_read_is_not_zero():
    lines = marked_table(["spin_kernel", "a", "spin_kernel"] * 2, "4").splitlines()
    (unread,) = (at for at, line in enumerate(lines) if line.startswith("5,5,") and "INSTS" in line)
    text = "\n".join(lines[:unread] + lines[unread + 1 :])
    outcomes = {name: marked(name, 2) for name in ("good", "bad")}
    found = rocprof.combine(outcomes, text, devices.load("mi300x"))
    assert found["good"].samples["instructions"] == (5_000,)
    bad = found["bad"]
    assert (bad.status, bad.detail) == ("failed", "rocprofv3 did not read every counter of a")


# Runs the worker and leaves what ends as rocprofv3 does: nothing if it was ended.
FAKE_ROCPROF = """#!{python}
import pathlib, subprocess, sys

folder = pathlib.Path(sys.argv[sys.argv.index("--output-directory") + 1], "host")
worker = subprocess.run(sys.argv[sys.argv.index("--") + 1 :], stdout=subprocess.PIPE, text=True)
print(worker.stdout, end="", flush=True)
if not worker.returncode:
    folder.mkdir()
    (folder / "99_counter_collection.csv").write_text({text!r})
"""


def test_on_amd_rocprof_is_asked_and_a_crash_costs_its_own_counters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    fake = tmp_path / "rocprofv3"
    # A scripted outcome tells of three marks.
    text = marked_table(["spin_kernel", "k"] * 3, '"Agent 1"')
    fake.write_text(FAKE_ROCPROF.format(python=sys.executable, text=text))
    fake.chmod(0o755)
    scripts = {"bad": {"crashes": True}, "good": {}}

    class Scripted(Session):
        def __init__(self, request: dict[str, Any], **options: Any) -> None:
            assert request["mode"] == "dispatches"
            super().__init__({"mode": "counters", "scripts": scripts}, **options)
            self.card = {"name": "AMD Instinct MI300X"}

    monkeypatch.setattr(utilization, "on_hip", lambda: True)
    monkeypatch.setattr(utilization, "Session", Scripted)
    monkeypatch.setattr(rocprof.shutil, "which", lambda _: str(fake))
    said: list[str] = []
    readings = utilization.read(["bad", "good"], said.append)
    assert readings.tier == "rocprofv3"
    assert {name: one.status for name, one in readings.outcomes.items()} == {
        "bad": "failed",
        "good": "ok",
    }
    assert readings.outcomes["good"].samples["tensor_pipe"] == pytest.approx((50.0, 50.0))
    assert len(said) == 1 and "not been run on a card" in said[0]


def test_on_amd_nobody_is_told_to_install_nsight(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(utilization, "on_hip", lambda: True)
    monkeypatch.setattr(rocprof.shutil, "which", lambda _: None)
    said: list[str] = []
    readings = utilization.read(["matmul-fp16-1024x1024x1024"], said.append)
    assert readings.tier == "latency" and "Nsight" not in readings.why
    assert len(said) == 1 and "install ROCm's rocprofiler-sdk" in said[0]


def test_a_counter_rocprof_did_not_collect_is_named():
    text = "\n".join(line for line in ROCPROF.splitlines() if "SQ_INSTS" not in line)
    with pytest.raises(rocprof.RocprofError, match="did not collect SQ_INSTS"):
        rocprof.parse(text, devices.load("mi300x"))


def test_a_table_of_something_else_is_refused():
    with pytest.raises(rocprof.RocprofError, match="no column Dispatch_Id"):
        rocprof.parse("a,b\n1,2\n", devices.load("mi300x"))

"""On a Hopper GPU: ten thousand launches of each kernel end, alone and beside other work, and give
the same bits. They run in a process of their own, which can be ended where a kernel hangs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernels.runtime.targets import current
from tests.root import ROOT
from tools.kernels.many_launches import CALLS, CASES, LOADS

pytestmark = pytest.mark.gpu

# What hangs is told by the process itself; this is for a driver that answers no more.
SECONDS = 400.0


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What the process said, by case and load."""
    if not current().has_wgmma:
        pytest.skip(f"the kernels are for Hopper, this GPU is {current().name}")
    command = [sys.executable, "-m", "tools.kernels.many_launches"]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
        said, last = ran.stdout, f"exit {ran.returncode}: {ran.stderr.strip()[-300:]}"
    except subprocess.TimeoutExpired as late:
        said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
        last = f"nothing more within {SECONDS:.0f} s"
    lines = dict(line.split(": ", 1) for line in said.splitlines() if ": " in line)
    return {
        at: lines.get(at, f"not reached: {last}")
        for at in (f"{name} {load}" for name in CASES for load in LOADS)
    }


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("name", CASES)
def test_ten_thousand_launches_end_with_the_same_bits(
    told: dict[str, str], name: str, load: str
) -> None:
    assert told[f"{name} {load}"].startswith(f"same bits, {CALLS} calls")

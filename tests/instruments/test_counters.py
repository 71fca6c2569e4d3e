"""Counter tables of ncu and GPM: whose launch is whose, and what a refusal says."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warpwatch.instruments.counters import gpm, ncu
from warpwatch.instruments.outcome import Outcome
from warpwatch.session import utilization
from warpwatch.session.session import Session

FIXED = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream"'
HEADER = (
    FIXED + ',"Block Size","Grid Size","Device","CC",' + ",".join(f'"{c}"' for c in ncu.COLUMNS)
)
UNITS = '"","","","","","","","","","","","ns","cycle","inst","%","byte","hz"'


def row(
    number: int, kernel: str, cycles: float = 1000, tensor: float = 50, ns: float = 2000
) -> str:
    fixed = f'"{number}","77","python3.12","127.0.0.1","{kernel}","1","7",'
    fixed += '"(128, 1, 1)","(132, 1, 1)","0","9.0",'
    return fixed + f'"{ns:,.0f}","{cycles:,.2f}","123,456","{tensor}","1,048,576","1,980,000,000"'


def table(*kernels: str) -> str:
    lines = ["==PROF== Connected to process 77", HEADER, UNITS]
    return "\n".join([*lines, *(row(at, kernel) for at, kernel in enumerate(kernels))])


def marked(name: str, marks: int, status: Any = "ok") -> Outcome:
    return Outcome(name, status, evidence={"marks": marks})


def test_launches_belong_to_the_call_they_were_marked_for():
    text = table("spin_kernel(long)", "preprocess", "backward", "spin_kernel(long)", "forward")
    found = ncu.combine({"backward": marked("backward", 1), "forward": marked("forward", 1)}, text)
    assert found["backward"].samples["sm_cycles"] == (2000,)
    assert found["backward"].samples["instructions"] == (2 * 123_456,)
    assert found["forward"].samples["dram_bytes"] == (1_048_576,)
    assert ncu.duration_us(found["backward"]) == 4.0
    assert ncu.mhz(found["backward"]) == 1980


def test_utilization_of_a_call_is_weighted_by_cycles():
    text = "\n".join(
        [HEADER, UNITS, row(0, "spin_kernel"), row(1, "a", 3000, 80), row(2, "b", 1000, 0)]
    )
    found = ncu.combine({"w": marked("w", 1)}, text)
    assert found["w"].samples["tensor_pipe"] == (60.0,)


def test_a_workload_that_failed_half_way_shifts_nobody():
    text = table("spin_kernel", "bad", "spin_kernel", "good", "spin_kernel", "good")
    found = ncu.combine({"bad": marked("bad", 1, "failed"), "good": marked("good", 2)}, text)
    assert found["bad"].status == "failed"
    assert found["good"].samples["sm_cycles"] == (1000, 1000)


def test_a_call_without_a_launch_is_no_measurement():
    found = ncu.combine({"w": marked("w", 1)}, table("spin_kernel"))
    assert (found["w"].status, found["w"].detail) == ("failed", "the call launched no kernel")


@pytest.mark.parametrize("cell", ["", "n/a", "nan", "inf"])
def test_a_counter_that_was_not_read_is_not_zero(cell: str, monkeypatch: pytest.MonkeyPatch):
    lines = [HEADER, UNITS, row(0, "spin_kernel"), row(1, "good"), row(2, "spin_kernel")]
    unread = row(3, "bad").replace('"50"', f'"{cell}"').replace('"1,048,576"', f'"{cell}"')
    outcomes = {"good": marked("good", 1), "bad": marked("bad", 1)}
    found = ncu.combine(outcomes, "\n".join([*lines, unread]))
    assert found["good"].samples["tensor_pipe"] == (50.0,)
    assert (found["bad"].status, dict(found["bad"].samples)) == ("failed", {})
    pipe = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
    assert found["bad"].detail == f"ncu gave no number for {pipe} dram__bytes.sum of bad"
    # That nobody's counter is read is the card's: the next tier is asked.
    sampled = Outcome("bad", "ok", samples={"tensor_pipe_sampled": (50.0,)})
    session = SimpleNamespace(run=lambda *_: {"bad": sampled})
    monkeypatch.setattr(utilization, "Session", lambda *_, **__: session)
    monkeypatch.setattr(utilization, "by_ncu", lambda *_: {"bad": found["bad"]})
    readings = utilization.read(["bad"], lambda line: None)
    assert (readings.tier, readings.why) == ("gpm", found["bad"].detail)
    monkeypatch.setattr(utilization, "by_ncu", lambda *_: found)
    assert utilization.read(["good", "bad"], lambda line: None).tier == "ncu"


def test_a_log_that_does_not_match_the_worker_is_refused():
    with pytest.raises(ValueError, match="has 1 marked calls, the worker made 2"):
        ncu.combine({"w": marked("w", 2)}, table("spin_kernel", "k"))


def test_a_missing_right_is_named_with_its_remedy():
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters"
    with pytest.raises(ncu.CountersRefusedError, match="NVreg_RestrictProfilingToAdminUsers=0"):
        ncu.parse(text)


def test_an_empty_log_says_what_ncu_said():
    with pytest.raises(ncu.CountersRefusedError, match="No kernels were profiled"):
        ncu.parse("==PROF== Connected\n==WARNING== No kernels were profiled.\n")


def test_what_is_said_after_the_table_is_no_launch():
    # The worker's stderr follows ncu's log.
    text = table("spin_kernel", "k") + "\nwarning: a kernel spills\n==PROF== Disconnected\n"
    found = ncu.combine({"w": marked("w", 1)}, text)
    assert found["w"].samples["sm_cycles"] == (1000,)


def test_a_table_that_ends_within_a_row_is_refused():
    text = table("spin_kernel", "k")
    with pytest.raises(ValueError, match="ends within a row"):
        ncu.parse(text[: text.rindex('","')])


def test_a_counter_the_card_does_not_have_is_named():
    text = table("k").replace("dram__bytes.sum", "dram__bytes.max")
    with pytest.raises(ValueError, match=r"no column dram__bytes\.sum"):
        ncu.parse(text)


def test_without_the_right_the_next_tier_is_used_and_said_once(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object) -> dict[str, Outcome]:
        raise ncu.CountersRefusedError(f"ERR_NVGPUCTRPERM: {ncu.REMEDY}")

    said: list[str] = []
    monkeypatch.setattr(utilization, "by_ncu", refused)
    # The real next tier: on a machine without a GPU its worker says so for each workload.
    readings = utilization.read(["matmul-fp16-1024x1024x1024"], said.append)
    assert readings.tier == "latency"
    assert "ERR_NVGPUCTRPERM" in said[0] and "CAP_SYS_ADMIN" in said[0]
    assert len(said) == 2 and "no sampling either" in said[1]


# Runs the worker and, when that has ended, writes a table: three calls of a kernel an outcome,
# and one of the workload that ended the process. "kills-ncu" ends both with half a table.
FAKE_NCU = """#!{python}
import subprocess, sys

at = next(i for i, one in enumerate(sys.argv) if i and not one.startswith("--"))
log = next(one for one in sys.argv if one.startswith("--log-file=")).partition("=")[2]
worker = subprocess.Popen(sys.argv[at:], stdout=subprocess.PIPE, text=True)
kernels = []
for line in worker.stdout:
    print(line, end="", flush=True)
    if '"begin": ["kills-ncu"]' in line:
        worker.kill()
        with open(log, "w") as file:
            print({head!r}, {row!r}[:60], sep="\\n", file=file)
        sys.exit("Killed")
    if '"outcome"' in line:
        kernels += 3 * ["spin_kernel", "k"]
if worker.wait():
    kernels += ["spin_kernel", "bad"]
with open(log, "w") as file:
    print({head!r}, *({row!r}.replace("KERNEL", one) for one in kernels), sep="\\n", file=file)
"""


def test_one_that_hangs_or_ends_the_process_costs_no_others_counters(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    scripts: dict[str, dict[str, object]] = {
        "before": {},
        "hangs": {"hangs": True},
        "between": {},
        "kills-ncu": {},
        "crashes": {"crashes": True},
        "after": {},
    }
    fake = tmp_path / "ncu"
    fake.write_text(FAKE_NCU.format(python=sys.executable, head=table(), row=row(0, "KERNEL")))
    fake.chmod(0o755)
    profiled: list[list[str]] = []

    class Scripted(Session):
        def __init__(self, request: dict[str, Any], **options: Any) -> None:
            super().__init__({**request, "scripts": scripts}, **{**options, "seconds_each": 2.0})

        def run_once(self, workloads: Sequence[str], report: Any = None) -> dict[str, Outcome]:
            profiled.append(list(workloads))
            return super().run_once(workloads, report)

    monkeypatch.setattr(ncu, "find", lambda: str(fake))
    monkeypatch.setattr(utilization, "Session", Scripted)
    found = utilization.by_ncu(list(scripts))
    assert {name: outcome.status for name, outcome in found.items()} == {
        "hangs": "hung",
        "before": "ok",
        "between": "ok",
        "kills-ncu": "failed",
        "crashes": "failed",
        "after": "ok",
    }
    assert found["before"].samples["sm_cycles"] == (1000, 1000, 1000)
    assert found["kills-ncu"].detail == "the measuring process ended: Killed"
    left = ["before", "between", "kills-ncu", "crashes", "after"]
    without = [name for name in left if name != "kills-ncu"]
    assert profiled == [list(scripts), left, without, ["after"]]


@pytest.mark.parametrize(
    ("does", "why"),
    [
        ('sys.exit("no")', "3 processes of ncu in a row gave no counters: .* ended: no"),
        ("subprocess.run(sys.argv[at:]); time.sleep(60)", "ncu did not end after the last call"),
    ],
    ids=["ends-at-once", "never-ends"],
)
def test_an_ncu_that_counts_nothing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, does: str, why: str
):
    fake = tmp_path / "ncu"
    at = "next(i for i, one in enumerate(sys.argv) if i and not one.startswith('--'))"
    fake.write_text(f"#!{sys.executable}\nimport subprocess, sys, time\nat = {at}\n{does}\n")
    fake.chmod(0o755)
    tried: list[int] = []

    class Scripted(Session):
        def __init__(self, request: dict[str, Any], **options: Any) -> None:
            tried.append(1)
            scripts: dict[str, Any] = {name: {} for name in "abcdef"}
            super().__init__({**request, "scripts": scripts}, start_seconds=0.5, **options)

    monkeypatch.setattr(ncu, "find", lambda: str(fake))
    monkeypatch.setattr(utilization, "Session", Scripted)
    with pytest.raises(ncu.CountersRefusedError, match=why):
        utilization.by_ncu(list("abcdef"))
    assert len(tried) <= 3


class FakeNvml:
    """Answers NVML's GPM calls for one card, as its bindings do."""

    NVML_GPM_METRICS_GET_VERSION = 1

    class NVMLError(Exception):
        pass

    def __init__(self, supported: bool, percent: float, error: int = 0) -> None:
        self.supported, self.percent, self.error, self.freed = supported, percent, error, 0

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        return uuid

    def nvmlGpmQueryDeviceSupport(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(self.supported))

    def nvmlGpmSampleAlloc(self) -> object:  # noqa: N802
        return object()

    def nvmlGpmSampleGet(self, handle: str, sample: object) -> None:  # noqa: N802
        pass

    def nvmlGpmSampleFree(self, sample: object) -> None:  # noqa: N802
        self.freed += 1

    def c_nvmlGpmMetricsGet_t(self) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0)])

    def nvmlGpmMetricsGet(self, wanted: SimpleNamespace) -> None:  # noqa: N802
        assert wanted.metrics[0].metricId == 5
        wanted.metrics[0].value = self.percent
        wanted.metrics[0].nvmlReturn = self.error


def test_the_drivers_sampling_is_read_and_its_samples_freed():
    nvml = FakeNvml(supported=True, percent=72.5)
    assert gpm.Sampler("GPU-1", nvml).over(lambda: None) == 72.5
    assert nvml.freed == 2


@pytest.mark.parametrize(("percent", "error"), [(0.0, 3), (float("nan"), 0)])
def test_what_the_driver_did_not_sample_is_not_zero(percent: float, error: int):
    nvml = FakeNvml(supported=True, percent=percent, error=error)
    with pytest.raises(gpm.GpmRefusedError, match=rf"no tensor-core .* \(NVML error {error}\)"):
        gpm.Sampler("GPU-1", nvml).over(lambda: None)
    assert nvml.freed == 2


def test_a_card_before_hopper_is_refused_with_the_reason():
    with pytest.raises(gpm.GpmRefusedError, match="came with Hopper"):
        gpm.Sampler("GPU-1", FakeNvml(supported=False, percent=0))


RECORDED = Path(__file__).parent / "data" / "ncu_2025_3_h200.csv"


def test_a_log_recorded_on_an_h200_is_read():
    """Nsight Compute 2025.3.1; the columns that nobody reads were taken out."""
    names = ("matmul", "attention", "matmul @ cublas", "attention @ torch-cudnn")
    found = ncu.combine(
        {name: marked(name, 3) for name in names}, RECORDED.read_text(encoding="utf-8")
    )
    assert found["matmul"].samples["tensor_pipe"] == pytest.approx((90.52, 90.42, 90.43))
    assert found["attention @ torch-cudnn"].samples["tensor_pipe"] == pytest.approx((75.97,) * 3)
    assert found["attention"].samples["instructions"] == (270_417_920,) * 3
    assert ncu.duration_us(found["matmul @ cublas"]) == 182.368
    assert ncu.mhz(found["matmul @ cublas"]) == pytest.approx(1548.4, abs=0.1)

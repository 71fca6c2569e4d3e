"""What a process pays before its first result, in processes of their own and without a GPU."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys

import pytest

from benchmarks.suite.host import ColdStart
from warpwatch.instruments.gpu import cold_start
from warpwatch.session import commit

BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def test_our_first_calls_are_measured_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_start, "WARM", 2)
    name, absent = "matmul-fp16-1024x1024x1024", "matmul-bf16-16x4096x4096-nt"
    missing = cold_start.measuring.missing

    def one_missing(workload):
        return (
            missing(workload)
            if workload.name == name
            else cold_start.Outcome(workload.name, "not applicable", "no such kernel")
        )

    monkeypatch.setattr(cold_start.measuring, "missing", one_missing)
    rows = cold_start.measure([name, absent])
    assert (rows[absent]["status"], rows[absent]["samples"]) == ("not applicable", {})
    row = rows[name]
    assert (row["status"], row["detail"]) == ("ok", "")
    counts = {metric: len(samples) for metric, samples in row["samples"].items()}
    assert counts == {"import_s": 3, "first_call_s": 2, "first_compile_s": 1}
    # What was compiled is found again, by processes that compiled nothing themselves.
    (compiled,) = row["samples"]["first_compile_s"]
    assert compiled > 1.5 * statistics.median(row["samples"]["first_call_s"]) > 0
    assert all(0 < one < 30 for one in row["samples"]["import_s"])
    for metric in commit.COLD_START:
        track = getattr(ColdStart(), f"track_{metric}")
        assert track({name: row}, name) == {"samples": row["samples"][metric], "number": 1}
        assert (track.role, track.better, track.unit) == ("verdict", "lower", "s")


def test_compilers_that_a_call_starts_count_and_waiting_does_not() -> None:
    def call() -> None:
        subprocess.run([sys.executable, "-c", BUSY], check=True, timeout=60)

    assert 0.3 <= cold_start._seconds(call) < 3
    assert cold_start._seconds(lambda: cold_start.time.sleep(0.3)) < 0.1


def test_a_process_leaves_nothing_to_the_next_and_its_death_is_told() -> None:
    def mark() -> list[str]:
        found = os.environ.get("COLD_START_MARK", "nothing")
        os.environ["COLD_START_MARK"] = "left"
        return [found]

    assert [cold_start._in_a_process(mark) for _ in range(2)] == [["nothing"]] * 2
    with pytest.raises(RuntimeError, match="makes a first call ended with status 1792"):
        cold_start._in_a_process(lambda: os._exit(7))

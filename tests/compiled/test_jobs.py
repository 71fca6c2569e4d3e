"""Jobs share nothing, and what goes wrong in one is one clear row: it costs that job, no other."""

from __future__ import annotations

import lzma
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from triton import knobs

from tests.root import ROOT
from warpwatch.config import isolation
from warpwatch.config.package import CACHE_VARIABLE, SLOTS_VARIABLE
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure import jobs, slots
from warpwatch.session import compile_pairs

CASES = """
from warpwatch.workload.base import Workload


class Case(Workload):
    name = property(lambda self: self.group)
    flops = bytes_moved = property(lambda self: 1)

    def inputs(self, device, seed=0, values="random"):
        if self.group == "no_inputs":
            raise KeyError("shape")
        return {}

    def call(self, inputs):
        import measured

        measured.run(self.group)

    def reference(self, inputs, dtype=None):
        return None


def get(name):
    return Case(kernel="run", group=name, dtype="fp32")


def all_workloads():
    return []


def fixed_set():
    return []
"""

# Seconds a job hangs; somebody else on this machine may sleep as long, but not to this fraction.
HANGS = f"300.{os.getpid()}"
# What it copies says which GPU it saw at its import, and which one it remembers.
MEASURED = """
import functools, os, subprocess, sys, time, torch

AT_IMPORT = torch.cuda.get_device_capability()


@functools.lru_cache
def capability():
    return torch.cuda.get_device_capability()


def run(what):
    if what == "aborts":
        os.abort()
    if what == "exits":
        sys.exit("no such GPU")
    if what == "computes":
        end = time.process_time() + 5
        while time.process_time() < end:
            pass
    if what == "hangs":
        subprocess.run(["sleep", "HANGS"])
    if what == "no_memory":
        raise MemoryError("out of it")
    for major, minor in (AT_IMPORT, capability()):
        torch.empty(10 * major + minor, dtype=torch.int8).clone()
""".replace("HANGS", HANGS)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cases.py").write_text(CASES)
    (tmp_path / "measured.py").write_text(MEASURED)
    config = tmp_path / "warpwatch.toml"
    config.write_text('[package]\nname = "measured"\npath = "measured"\nworkloads = "cases"\n')
    monkeypatch.setenv("WARPWATCH_CONFIG", str(config))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_what_a_package_knows_of_one_target_never_reaches_another(package: Path) -> None:
    targets = {"sm_80": 80, "sm_90": 90, "sm_100": 100, "gfx90a": 90, "gfx950": 95}
    pairs = [(name, target) for name in ("once", "again") for target in targets]
    found = dict(compile_pairs.compiled_pairs(pairs))
    assert {one.detail for one in found.values()} == {""}
    copied = {pair: one.values["copied_bytes"] for pair, one in found.items()}
    assert copied == {(name, target): 2 * targets[target] for name, target in pairs}


def test_what_goes_wrong_is_one_row_and_names_who_is_to_blame(package: Path) -> None:
    wrong = ("aborts", "exits", "no_inputs", "no_memory")
    pairs = [(name, "sm_90") for name in ("fine", *wrong, "also_fine")]
    found = {name: one for (name, _), one in compile_pairs.compiled_pairs(pairs)}
    assert len(found) == len(pairs)
    assert found["fine"].status == found["also_fine"].status == "ok"

    def row(name: str) -> tuple[str, str, bool]:
        one: Measurement = found[name]
        return one.status, one.detail.split(":")[0], one.values["compile_failures"] == 1

    # The kernel's fault: an alarm. Not the kernel's: no value at all.
    assert row("aborts") == ("compile failed", "the compiler ended its process (SIGABRT)", True)
    assert row("exits") == ("call failed", "SystemExit", True)
    assert row("no_inputs") == ("not measured", "mistake in the workload (inputs)", False)
    assert row("no_memory") == ("not measured", "harness error", False)


def test_a_compiler_that_hangs_is_ended_with_what_it_started(package: Path) -> None:
    asked = [jobs.Job(name, "sm_90", is_workload=True) for name in ("fine", "hangs", "also_fine")]
    started = time.monotonic()
    found = {
        job.name: one
        for job, one in jobs.measure(asked, isolation.subprocess_environment(), job_seconds=15)
    }
    assert time.monotonic() - started < 200  # what hangs would take 300
    assert found["fine"].status == found["also_fine"].status == "ok"
    assert found["hangs"].status == "not measured"
    assert found["hangs"].detail == (
        "timeout: no result after 15 s, the compiler or host code hangs"
    )
    assert not _sleepers()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs one core for several")
def test_a_job_that_lacks_a_processor_does_not_hang(package: Path) -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})  # whoever is started from here inherits it
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        ((_, found),) = jobs.measure(
            [jobs.Job("computes", "sm_90", is_workload=True)],
            isolation.subprocess_environment(),
            job_seconds=8,
        )
    finally:
        os.sched_setaffinity(0, cores)
        for one in others:
            one.kill()
            one.wait(timeout=60)
    assert (found.status, found.detail) == ("ok", "")


def _sleepers() -> list[str]:
    """Processes of this user that still sleep for the hanging job."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if command == f"sleep\0{HANGS}\0".encode() and folder.stat().st_uid == os.getuid():
            found.append(folder.name)
    return found


STARTS = """
import sys
from warpwatch.config import isolation
from warpwatch.instruments.compiled.measure import jobs

asked = [jobs.Job("hangs", "sm_90", is_workload=True)]
for _ in jobs.measure(asked, isolation.subprocess_environment()):
    pass
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_process_that_wanted_the_results(package: Path, how: int) -> None:
    """A compiler that runs for ever ran on, half an hour after its parent."""
    environment = isolation.subprocess_environment()
    parent = subprocess.Popen([sys.executable, "-c", STARTS], env=environment)
    try:
        assert _soon(lambda: len(_sleepers()) == 1)
        parent.send_signal(how)
        parent.wait(timeout=60)
        assert _soon(lambda: not _sleepers())
    finally:
        parent.kill()
        parent.wait(timeout=60)


def _soon(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
    return holds()


def test_a_compiler_that_ends_its_process_names_the_kernel() -> None:
    """LLVM exits where inline assembly is another vendor's: neither an abort nor the harness's."""
    job = jobs.Job("tests.compiled.foreign_kernels:by_inline_ptx", "gfx942", "fp32[4096]")
    ((_, found),) = jobs.measure([job], isolation.subprocess_environment())
    assert found.status == "compile failed"
    assert found.detail.startswith("the compiler ended its process at inline_ptx: error:")
    assert found.values["compile_failures"] == 1


COUNTS = """#!/bin/sh
echo "$@" >> "{folder}/starts"
exec "{program}" "$@"
"""


def test_the_disassembler_is_started_once_for_several_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = tmp_path / "nvdisasm"
    program = knobs.nvidia.nvdisasm.path
    counting.write_text(COUNTS.format(folder=tmp_path, program=program))
    counting.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(counting))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})  # one process for all
    # The last two are one function's.
    calls = (("by_inline_ptx", 4096), ("by_atomics", 4096), ("by_atomics", 4099))
    asked = [
        jobs.Job(f"tests.compiled.foreign_kernels:{name}", "sm_90", f"fp32[{size}]")
        for name, size in calls
    ]
    found = dict(jobs.measure(asked, isolation.subprocess_environment()))
    assert [found[job].status for job in asked] == ["ok"] * len(asked), found
    starts = (tmp_path / "starts").read_text().splitlines()
    assert len([one for one in starts if one != "--version"]) == 1, starts
    listings = [lzma.decompress(code) for one in found.values() for code in one.code.values()]
    assert len(set(listings)) == len(asked) and all(b"EXIT" in one for one in listings)


def test_a_process_that_cannot_start_is_named_for_every_job(package: Path) -> None:
    (package / "torch.py").write_text("raise ImportError('half an installation')\n")
    found = dict(compile_pairs.compiled_pairs([("fine", "sm_90"), ("fine", "gfx942")]))
    assert [one.status for one in found.values()] == ["not measured"] * 2
    assert all("half an installation" in one.detail for one in found.values())


def test_runs_at_one_time_have_a_compiler_for_each_core_between_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many queues of a history there are."""
    monkeypatch.setenv(SLOTS_VARIABLE, str(tmp_path))
    held = [slots.take() for _ in os.sched_getaffinity(0)]
    assert all(held) and slots.take() is None
    asked = "from warpwatch.instruments.compiled.measure import slots; print(slots.take())"
    other = [sys.executable, "-c", asked]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(other, env=environment, capture_output=True, text=True, timeout=300)
    assert said.stdout == "None\n", said.stderr
    for one in held:
        assert one is not None
        one.give_back()
    again = slots.take()
    assert again is not None and again.file is not None
    again.give_back()

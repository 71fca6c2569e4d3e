"""What asv is told without a process of its own is what its process would have said."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asv import runner

from benchmarks.suite import compiled
from tests.root import ROOT
from warpwatch.asv import value_server

CLASS: Any = compiled.Matmul
PAIRS = [(workload, target) for workload in CLASS.params[0] for target in CLASS.params[1]]
NAME = "compiled.Matmul.track_registers"
INDEX = len(CLASS.params[1]) + 2  # the second workload on the third target
VALUES = {pair: ("ok", "", {"registers": float(at)}) for at, pair in enumerate(PAIRS)}
RAN_BY_ASV = ("asv ran it", 1)

Run = Callable[..., tuple[tuple[str, int], str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Asks the server for a value; what asv's own answers, and what stands in the result file."""
    own = value_server.HandingServer.__mro__[1]
    monkeypatch.setattr(own, "run", lambda *_: RAN_BY_ASV)
    server = object.__new__(value_server.HandingServer)

    def asked(
        name: str,
        cache: object = VALUES,
        *,
        profile: str = "None",
        suite: Path = ROOT / "benchmarks" / "suite",
    ) -> tuple[tuple[str, int], str]:
        (tmp_path / "cache.pickle").write_bytes(pickle.dumps(cache))
        (tmp_path / "result").write_text("")
        server.benchmark_dir = str(suite)
        arguments = (name, "{}", profile, str(tmp_path / "result"), 60.0, str(tmp_path))
        return server.run(*arguments), (tmp_path / "result").read_text()

    return asked


@pytest.mark.parametrize("index", [0, INDEX, len(PAIRS) - 1])
def test_a_value_is_handed_out_as_the_suite_says_it(run: Run, index: int) -> None:
    answer, written = run(f"{NAME}-{index}")
    assert answer == ("", 0)
    assert json.loads(written) == CLASS().track_registers(VALUES, *PAIRS[index]) == index


def test_a_value_that_does_not_apply_is_nan_as_asv_writes_it(run: Run) -> None:
    answer, written = run(f"compiled.Matmul.track_launches-{INDEX}")
    assert answer == ("", 0) and math.isnan(json.loads(written))
    assert written == json.dumps(math.nan)


@pytest.mark.parametrize("status", ["import failed", "not measured"])
def test_a_value_that_should_be_there_fails_in_asvs_process(
    run: Run, status: str, capfd: pytest.CaptureFixture[str]
) -> None:
    failed = {pair: (status, "why", {}) for pair in PAIRS}
    assert run(f"{NAME}-0", failed) == (RAN_BY_ASV, "")
    assert capfd.readouterr() == ("", ""), "asv's process says it"


@pytest.mark.parametrize(
    "name",
    [
        "host.Host.track_host_us-0",
        NAME,
        f"{NAME}-{len(PAIRS)}",
        "compiled.Matmul.track_nothing-0",
        "compiled.Nothing.track_registers-0",
    ],
)
def test_what_is_measured_or_unknown_is_run(run: Run, name: str) -> None:
    assert run(name) == (RAN_BY_ASV, "")


def test_a_profile_and_another_suite_are_run(run: Run, tmp_path: Path) -> None:
    assert run(f"{NAME}-0", profile=str(tmp_path / "profile")) == (RAN_BY_ASV, "")
    assert run(f"{NAME}-0", suite=tmp_path) == (RAN_BY_ASV, "")


def test_what_cannot_be_read_is_run(run: Run, tmp_path: Path) -> None:
    assert run(f"{NAME}-0", cache=None) == (RAN_BY_ASV, "")
    (tmp_path / "cache.pickle").unlink()
    assert value_server.value(f"{NAME}-0", tmp_path) is None


def test_the_next_commit_is_read_anew(run: Run, tmp_path: Path) -> None:
    run(f"{NAME}-0")
    others = {pair: ("ok", "", {"registers": 99.0}) for pair in PAIRS}
    os.utime(tmp_path / "cache.pickle", ns=(0, 0))  # clocks of file systems may be coarse
    assert json.loads(run(f"{NAME}-0", others)[1]) == 99.0


def test_asv_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "ForkServer", value_server.HandingServer.__mro__[1])
    value_server.use()
    server: Any = runner.ForkServer
    assert server is value_server.HandingServer and issubclass(server, runner.Spawner)

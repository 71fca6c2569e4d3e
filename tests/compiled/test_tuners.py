"""Autotuners time nothing here: the first configuration that compiles and fits is recorded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner

from warpwatch.config import targets
from warpwatch.instruments.compiled.record.call import record

H200 = targets.get("sm_90")


@triton.jit
def increment(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.load(x + tl.arange(0, N)) + 1)


def test_an_autotuner_records_its_first_configuration_that_fits() -> None:
    @triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.jit
    def tuned(x, n, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), n)

    recording = record(lambda: tuned[(1,)](torch.empty(128), 5), H200)
    (launch,) = recording.launches
    assert launch.arguments["BLOCK"] == 64
    assert "2 configurations" in recording.notes[0]


def test_an_autotuner_passes_over_configurations_that_do_not_fit() -> None:
    warps = [triton.Config({}, num_warps=one) for one in (64, 4)]
    tuned = triton.autotune(warps, key=[])(increment)

    def twice() -> None:
        for _ in range(2):
            tuned[(1,)](torch.empty(8192), N=8192)

    recording = record(twice, H200)
    assert recording.failures == ()
    assert [launch.kernel.num_warps for launch in recording.launches] == [4, 4]


def test_a_tuner_of_a_library_s_own_class_times_nothing_either() -> None:
    made: list[Autotuner] = []

    def call() -> None:
        class Timing(Autotuner):
            def run(self, *args: Any, **options: Any) -> None:
                raise TimeoutError("it would time")

        warps = [triton.Config({}, num_warps=one) for one in (64, 4)]
        made.append(Timing(increment, increment.arg_names, warps, [], None, None))
        made[0][(1,)](torch.empty(8192), N=8192)

    recording = record(call, H200)
    assert [launch.kernel.num_warps for launch in recording.launches] == [4]
    assert "2 configurations" in recording.notes[0]
    with pytest.raises(TimeoutError):  # it is its own again
        made[0].run()

"""The interpreter of Gluon finds what is wrong with a kernel, in whichever order it runs."""

from __future__ import annotations

import re

import pytest
import torch

from tests.gluon.faults import FAULTS, run
from tests.gluon.interpreter import hopper_on_the_cpu
from tests.kernels.interpreted import Worker


@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name or "none")
def test_a_fault_is_told_in_every_order(worker: Worker, fault: str) -> None:
    for seed in range(8):
        told = worker.run(run, fault, seed)
        assert re.search(FAULTS[fault], told) if fault else not told, (seed, told)


def run_first_call() -> list[str]:
    import kernels

    a, b = torch.randn(512, 32), torch.randn(32, 64)
    with hopper_on_the_cpu() as launches:
        found = kernels.matmul(a, b, allow_tf32=True)
    torch.testing.assert_close(found, a @ b, rtol=0.0, atol=0.1)
    return launches.kernels


def test_a_kernel_may_be_imported_while_it_is_interpreted(worker: Worker) -> None:
    assert worker.run(run_first_call) == ["matmul_hopper_tf32"]

"""The interpreter of Gluon finds what is wrong with a kernel, in whichever order it runs."""

from __future__ import annotations

import re

import pytest

from tests.gluon.faults import FAULTS, run
from tests.kernels.interpreted import Worker


@pytest.mark.parametrize("fault", FAULTS, ids=lambda name: name or "none")
def test_a_fault_is_told_in_every_order(worker: Worker, fault: str) -> None:
    for seed in range(8):
        told = worker.run(run, fault, seed)
        assert re.search(FAULTS[fault], told) if fault else not told, (seed, told)

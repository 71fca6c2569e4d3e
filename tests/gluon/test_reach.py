"""Hopper's kernels on views of which a tile of rows spans more elements than 32 bits count."""

from __future__ import annotations

import mmap

import pytest
import torch

from tests.gluon.interpreter import hopper_on_the_cpu
from tests.gpu import far_rows
from tests.kernels.interpreted import Worker
from tests.kernels.test_reach import NO_RESERVE

SPECIAL = [name for name, case in far_rows.CASES.items() if case.special]


def sparse(tensor: torch.Tensor, axis: int, apart: int) -> torch.Tensor:
    """The same values, those along ``axis`` ``apart`` elements apart; memory that nobody touches is
    not there, and of what lies beside it all is 0."""
    entries = tensor.movedim(axis, 0).contiguous()
    size = ((entries.shape[0] - 1) * apart + entries[0].numel()) * tensor.element_size()
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    flat = torch.frombuffer(room, dtype=torch.uint8).view(tensor.dtype)
    view = flat.as_strided(entries.shape, (apart, *entries.stride()[1:]))
    return view.copy_(entries).movedim(0, axis)


def run(name: str) -> tuple[list[str], list[str]]:
    """Outputs that are not as those of near copies, and the kernels that ran."""
    case = far_rows.CASES[name]
    given = case.draw()
    near = {key: one.clone() for key, one in given.items()}
    far = near | {key: sparse(given[key], axis, case.apart) for key, axis in case.axes.items()}
    with hopper_on_the_cpu() as launches:
        beside = case.call(near)
        n_near = len(launches.kernels)
        found = case.call(far)
    for key in case.written:
        found[key], beside[key] = far[key].contiguous(), near[key]
    most = max(float(one.double().abs().max()) for one in beside.values())
    close = {"rtol": 0.0, "atol": 0.02 * most}  # another kernel may have served the near copies
    wrong = [
        key
        for key, one in found.items()
        if one.isnan().any() or not torch.allclose(one.double(), beside[key].double(), **close)
    ]
    return wrong, launches.kernels[n_near:]


@pytest.mark.parametrize("name", SPECIAL)
def test_far_rows_are_as_near_ones(worker: Worker, name: str) -> None:
    wrong, kernels = worker.run(run, name)
    assert kernels and not wrong

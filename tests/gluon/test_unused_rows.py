"""Packed sequences of which the first rows alone are used, by Hopper's kernels on the CPU: what a
call gives of them is what it gives of these rows one behind the other, to the last bit."""

from __future__ import annotations

from itertools import accumulate
from typing import Any
from unittest.mock import patch

import pytest
import torch

from tests.kernels.interpreted import Worker

USED = {"q": (130, 5, 0, 70), "k": (141, 7, 120, 0)}
ALL = {"q": (200, 5, 133, 71), "k": (210, 40, 233, 30)}  # blocks of 64 and 128 lie in what is not
KERNELS = {
    "attention_forward_hopper",
    "attention_backward_hopper_marked",
    "attention_backward_hopper",
}


def ends(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor([*accumulate(lengths, initial=0)], dtype=torch.int32)


def run_fp8(D: int, causal: bool, names: str) -> tuple[list[torch.Tensor], set[str]]:
    """As ``run`` of the forward pass in fp8: output and log-sum-exp of the used rows alone, and of
    these among others."""
    import kernels
    from tests.gluon.interpreter import hopper_on_the_cpu

    made = torch.Generator().manual_seed(6)
    keep, given = {}, {}
    for name, heads in (("q", 2), ("k", 1), ("v", 1)):
        lengths = ALL["kq"[name == "q"]]
        used = USED["kq"[name == "q"]]
        keep[name] = torch.cat(
            [torch.arange(n) < own for n, own in zip(lengths, used, strict=True)]
        )
        one = torch.randn(len(keep[name]), heads, D, generator=made)
        one[~keep[name]] = float("nan")
        given[name] = one.to(torch.float8_e4m3fn)
    scale = torch.rand(4, 1, generator=made) + 0.5
    options: dict[str, Any] = {"causal": causal, "return_lse": True, "v_scale": scale}
    found = []
    with hopper_on_the_cpu(2) as told:
        for among in (False, True):
            whole = {name: among and name in names for name in "qk"} | {"v": among and "k" in names}
            tensors = [one if whole[name] else one.view(torch.uint8)[keep[name]].view(one.dtype)
                       for name, one in given.items()]  # fmt: skip
            sizes = [(ALL if whole[name] else USED)[name] for name in "qk"]
            used = {
                f"seqused_{name}": torch.tensor(USED[name], dtype=torch.int32)
                for name in "qk"
                if whole[name]
            }
            out, lse = kernels.flash_attention_varlen(
                *tensors, *map(ends, sizes), *map(max, sizes), **used, **options
            )
            own = keep["q"] if whole["q"] else slice(None)
            found += [out[own], lse[:, own]]
    return found, {*told.kernels}


def run(D: int, causal: bool, names: str) -> tuple[list[list[torch.Tensor]], set[str]]:
    """Output, log-sum-exp and gradients of the used rows alone; of these among rows of NaN, which
    the sequences of ``names`` have; what is left there; and which of Gluon's kernels ran."""
    import kernels
    from kernels.attention.hopper.backward import launch as launches
    from tests.gluon.interpreter import hopper_on_the_cpu

    made = torch.Generator().manual_seed(6)
    lengths = {name: ALL[name] if name in names else USED[name] for name in "qk"}
    keep, given = {}, []
    for name in "qk":
        pairs = zip(lengths[name], USED[name], strict=True)
        keep[name] = torch.cat([torch.arange(n) < used for n, used in pairs])
    of = [keep[name] for name in ("q", "k", "k", "q")]
    for own, heads in zip(of, (2, 1, 1, 2), strict=True):
        one = torch.randn(len(own), heads, D, generator=made).bfloat16()
        given.append(one.masked_fill(~own[:, None, None], float("nan")))
    longest = [max(USED[name]) for name in "qk"]
    found = []
    with hopper_on_the_cpu(2) as told, patch.object(launches, "FEW_PACKED", 0):
        for whole in (False, True):
            *leaves, dout = (one if whole else one[own] for one, own in zip(given, of, strict=True))
            leaves = [one.detach().requires_grad_() for one in leaves]
            options: dict[str, Any] = {
                f"seqused_{name}": torch.tensor(USED[name], dtype=torch.int32)
                for name in names
                if whole
            }
            out, lse = kernels.flash_attention_varlen(
                *leaves, *(ends((lengths if whole else USED)[name]) for name in "qk"), *longest,
                causal=causal, return_lse=True, **options,
            )  # fmt: skip
            dlse = torch.ones_like(lse)
            if whole:
                dlse.masked_fill_(~keep["q"], float("nan"))
            rows = [out, lse.t(), *torch.autograd.grad((out, lse), leaves, (dout, dlse))]
            found.append([one.detach() for one in rows])
    alone, among = found
    kept = (keep["q"], *of[:1], *of[:3])
    pairs = list(zip(among, kept, strict=True))
    return [alone, [one[own] for one, own in pairs], [one[~own] for one, own in pairs]], {
        *told.kernels
    }


@pytest.mark.parametrize(
    ("D", "causal", "names"),
    [(64, False, "qk"), (64, True, "q"), (128, True, "qk"), (128, False, "k")],
)
def test_rows_that_are_not_used_change_no_bit(
    worker: Worker, D: int, causal: bool, names: str
) -> None:
    (alone, among, behind), told = worker.run(run, D, causal, names)
    assert told == KERNELS
    assert all(torch.equal(*pair) for pair in zip(alone, among, strict=True))
    out, lse, *gradients = behind
    assert not any(one.any() for one in (out, *gradients))
    assert (lse == float("-inf")).all()
    assert sum(map(len, behind)) > 0


@pytest.mark.parametrize(
    ("D", "causal", "names"), [(64, False, "qk"), (64, True, "k"), (128, True, "qk")]
)
def test_nor_do_they_in_fp8(worker: Worker, D: int, causal: bool, names: str) -> None:
    (out, lse, *among), told = worker.run(run_fp8, D, causal, names)
    assert told == {"attention_forward_fp8_hopper"}
    assert torch.equal(out, among[0]) and torch.equal(lse, among[1])
    assert out.isfinite().all()

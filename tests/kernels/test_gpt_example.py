"""The example trains: losses fall alike in bf16 and with an fp8 forward pass, and are drawn."""

from __future__ import annotations

import hashlib
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

from benchmarks.workloads.formula import plain_attention
from tests.kernels.interpreted import Worker, program
from tests.root import ROOT


def gradients() -> list[tuple[float, float]]:
    """Of q, k and v: the error and the size of the fp8 example's gradient, against fp64 of the
    rounded tensors."""
    from examples import gpt

    drawn = [
        torch.randn(1, 40, 2, 16, generator=torch.Generator().manual_seed(i)) for i in range(4)
    ]
    q, k, v, dout = (one.bfloat16() for one in drawn)
    for one in (q, k, v):
        one.requires_grad_()
    found = torch.autograd.grad(gpt.in_fp8(q, k, v), (q, k, v), dout)
    rounded = []
    for one in (q, k, v):
        small, scale = gpt._quantised(one.detach())
        rounded.append((small.double() * scale.double()[:, None]).requires_grad_())
    out, _ = plain_attention(*rounded, causal_offset=0)
    truth = torch.autograd.grad(out, rounded, dout.double())
    return [
        (float((one.double() - true).norm()), float(true.norm()))
        for one, true in zip(found, truth, strict=True)
    ]


def test_gradients_are_those_of_the_rounded_tensors(interpreter: Worker) -> None:
    # The output that the softmax gradient subtracts is off by e4m3's 2^-4; the rest is bf16.
    for error, size in interpreter.run(gradients):
        assert error <= 2.0**-4 * size


def text() -> bytes:
    from examples import gpt  # which makes Triton interpret all that this process launches

    return bytes(gpt.text().tolist())


def test_the_text_is_the_same_everywhere(interpreter: Worker) -> None:
    written = interpreter.run(text)
    found = hashlib.sha256(written).hexdigest()
    assert found == "c18862a18f79564f2755214e7df3a9d5c2ee5eb92cac3b8c61f278a4746df7b7"
    assert b"Where is the broken drum? In the garage. " in written


@pytest.mark.slow
def test_losses_fall_alike_and_are_drawn(interpreter: Worker, tmp_path: Path) -> None:
    file = tmp_path / "curves.svg"
    example = str(ROOT / "examples" / "gpt.py")
    code, said = interpreter.run(program, example, "--steps", "8", "--plot", str(file))
    assert code == 0
    lines = [line.split(" loss ") for line in said.splitlines()]
    ends = {name.strip(): [float(one) for one in rest.split(" -> ")] for name, rest in lines}
    assert list(ends) == [
        "fp32, PyTorch's attention",
        "bf16 flash_attention",
        "fp8 forward, bf16 backward",
    ]
    for first, last in ends.values():
        assert last < first - 0.5
    lasts = [last for _, last in ends.values()]
    assert max(lasts) - min(lasts) < 0.1
    curves = [node for node in ET.parse(file).getroot() if node.tag.endswith("polyline")]
    drawn = [node.attrib["points"].split() for node in curves[::2]]
    assert [len(points) for points in drawn] == [8, 8, 8]
    # Downwards on paper is a larger y.
    assert all(float(p[0].split(",")[1]) < float(p[-1].split(",")[1]) for p in drawn)

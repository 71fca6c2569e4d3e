"""What a user has without a GPU: Triton's interpreter as `import kernels` leaves it, no more."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.root import ROOT

# Numbers of which every product and sum is exact: what rounds is one cast of ours.
PROGRAM = """
import torch
from torch.nn.functional import scaled_dot_product_attention
from kernels import flash_attention, matmul

torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e4m3fnuz):
    a, b = (torch.randint(-8, 9, (16, 16)).div(8).to(dtype) for _ in range(2))
    for out in (torch.bfloat16, torch.float16, torch.float32):
        if a.element_size() == 1:
            found = matmul(a, b, out_dtype=out)
        elif out == a.dtype:
            found = matmul(a, b)
        else:
            continue
        assert torch.equal(found, (a.float() @ b.float()).to(out)), (dtype, out)
q, k, v, dout = (torch.randn(1, 5, 1, 16).bfloat16().requires_grad_() for _ in range(4))
gradients = []
for attend in (flash_attention, scaled_dot_product_attention):
    moved = [one.transpose(1, 2) if attend is not flash_attention else one for one in (q, k, v)]
    out = attend(*moved)
    out = out if attend is flash_attention else out.transpose(1, 2)
    gradients.append((out, *torch.autograd.grad(out, (q, k, v), dout)))
for ours, theirs in zip(*gradients):
    assert torch.allclose(ours.float(), theirs.float(), atol=0.03), (ours - theirs).abs().max()
assert not torch.equal(torch.zeros_like(q), gradients[0][1])
"""


def test_bf16_and_e4m3_are_computed_where_triton_interprets() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr

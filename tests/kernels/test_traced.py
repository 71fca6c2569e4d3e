"""What torch traces: calls in one graph, fake tensors, tangents, and opcheck of each operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from tests.kernels.interpreted import Worker

E4M3 = torch.float8_e4m3fn


def run_compiled() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    def backward(q: Any) -> Any:
        out, lse = kernels.flash_attention(q, q, q, causal=True, return_lse=True)
        return kernels.flash_attention_backward(out, q, q, q, out, lse, causal=True)

    def into(a: Any, out: Any) -> Any:
        return (kernels.matmul(a, a, residual=out, out=out) * 2.0, out)

    def into_fp8(a: Any, out: Any) -> Any:
        return (kernels.matmul(a, a, out=out),)

    found = []
    low = torch.randn(16, 16).to(E4M3)
    for call, *given in (
        (backward, torch.randn(1, 20, 2, 16)),
        (into, torch.randn(16, 16), torch.randn(16, 16)),
        (into_fp8, low, torch.empty(16, 16, dtype=torch.bfloat16)),
    ):
        copies = [one.clone() for one in given]
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")(*given)
        found += list(zip(compiled, call(*copies), strict=True))
    return found


def test_gradients_and_given_outputs_compile_in_one_graph(interpreter: Worker) -> None:
    for compiled, eager in interpreter.run(run_compiled):
        assert torch.equal(compiled, eager)


def run_fake() -> list[tuple[int, ...]]:
    import kernels

    with FakeTensorMode():
        a, out = torch.empty(16, 24), torch.empty(16, 16)
        q = torch.empty(1, 20, 2, 16)
        lse = torch.empty(1, 2, 20)
        found = [kernels.matmul(a, a.t()), kernels.matmul(a, a.t(), out=out)]
        found += kernels.flash_attention_backward(q, q, q, q, q, lse)
        return [tuple(one.shape) for one in found]


def test_fake_tensors_have_the_shapes_of_the_results(interpreter: Worker) -> None:
    assert interpreter.run(run_fake) == [(16, 16)] * 2 + [(1, 20, 2, 16)] * 3


def run_opcheck() -> list[dict[str, str]]:
    import kernels

    q, dout = torch.randn(1, 20, 2, 16), torch.randn(1, 20, 2, 16)
    out, lse = kernels.flash_attention(q, q, q, return_lse=True)
    ends = torch.tensor([0, 7, 20], dtype=torch.int32)
    a, low = torch.randn(16, 16), torch.randn(16, 16).to(E4M3)
    packed = [one[0] for one in (q, q, q)]
    flat = (dout[0], None, *packed, out[0], lse[0], ends, ends, 13, 13)
    opcheck = torch.library.opcheck
    masks = (False, 0, None, 0.25)
    return [
        opcheck(
            torch.ops.warpwatch.flash_attention_backward,
            (dout, None, out, lse, False, q, q, q, *masks),
        ),
        opcheck(torch.ops.warpwatch.flash_attention_varlen_backward, (*flat, *masks)),
        opcheck(
            torch.ops.warpwatch.matmul_into, (a, a, None, None, False, None, torch.empty(16, 16))
        ),
        opcheck(
            torch.ops.warpwatch.matmul_fp8_into,
            (low, low, None, None, None, None, None, torch.empty(16, 16).bfloat16()),
            # test_schema compares its inputs by an operation torch lacks for float8 on CPUs.
            test_utils=(
                "test_autograd_registration",
                "test_faketensor",
                "test_aot_dispatch_dynamic",
            ),
        ),
    ]


def test_operators_pass_opcheck(interpreter: Worker) -> None:
    for outcome in interpreter.run(run_opcheck):
        assert set(outcome.values()) == {"SUCCESS"}


def test_each_operator_is_given_to_opcheck() -> None:
    names = re.compile(r"""custom_op\(\s*"warpwatch::(\w+)""")
    ours = {
        one for file in Path("kernels").rglob("*.py") for one in names.findall(file.read_text())
    }
    assert len(ours) >= 13
    files = [file.read_text() for file in Path("tests/kernels").glob("test_*.py")]
    checked = "".join(one for one in files if "opcheck(" in one)
    assert [
        one
        for one in sorted(ours)
        if not re.search(rf"\boperators\.{one}\b|warpwatch\.{one}\b", checked)
    ] == []


@pytest.mark.parametrize("name", ["q", "bias", "a"])
def test_a_tangent_is_refused_by_name(name: str) -> None:
    import kernels

    q, bias, a = torch.randn(1, 4, 2, 16), torch.randn(4, 4), torch.randn(4, 4)
    with forward_ad.dual_level():
        given = {"q": q, "bias": bias, "a": a}
        given[name] = forward_ad.make_dual(given[name], torch.ones_like(given[name]))
        with pytest.raises(NotImplementedError, match=rf"^{name}: expected no tangent.*autograd"):
            if name == "a":
                kernels.matmul(given["a"], a)
            else:
                kernels.flash_attention(given["q"], q, q, bias=given["bias"])

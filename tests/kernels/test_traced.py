"""What torch traces: calls in one graph, fake tensors, and opcheck of each operator."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

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


def run_compiled_for_all_sizes() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    def attend(x: Any, scale: float | None) -> Any:
        out = kernels.flash_attention(x, x, x, softmax_scale=scale)
        return kernels.scaled_dot_product_attention(out, x, x, scale=scale)

    found, compiled = [], torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=True)
    for head_dim, scale in ((16, None), (24, None), (16, 0.3), (16, 0.4), (16, 0.5)):
        x = torch.randn(1, 5, 2, head_dim)
        found.append((compiled(x, scale), attend(x, scale)))

    def scored(x: Any, slopes: Any, sinks: Any) -> Any:
        return kernels.flash_attention(x, x, x, alibi_slopes=slopes, sinks=sinks)

    compiled = torch.compile(scored, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, heads in ((2, 4), (3, 5)):
        given = torch.randn(batch, 5, heads, 16), torch.rand(batch, heads), torch.randn(heads)
        found.append((compiled(*given), scored(*given)))
    return found


def test_sizes_and_scales_may_be_symbols_of_one_graph(interpreter: Worker) -> None:
    for compiled, eager in interpreter.run(run_compiled_for_all_sizes):
        assert torch.allclose(compiled, eager, rtol=1e-5, atol=1e-6)


def run_lengths_that_tensors_hold() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of a longest sequence and a cache's length that the graph reads from tensors."""
    import torch._dynamo

    import kernels

    def attend(q: Any, ends: Any) -> Any:
        longest = (ends[1:] - ends[:-1]).max().item()
        out = kernels.flash_attention_varlen(q, q, q, ends, ends, longest, longest, causal=True)
        return kernels.flash_attention_kvcache(out[None], q[None], q[None], cache_seqlens=longest)

    found, x = [], torch.randn(20, 2, 16)
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
        for ends in ([0, 7, 20], [0, 10, 11]):
            given = x, torch.tensor(ends, dtype=torch.int32)
            found.append((compiled(*given), attend(*given)))
    return found


def test_lengths_may_be_read_from_tensors_within_a_graph(interpreter: Worker) -> None:
    for compiled, eager in interpreter.run(run_lengths_that_tensors_hold):
        assert torch.equal(compiled, eager)


class Exported(torch.nn.Module):
    """Lengths of tensors as arguments."""

    def forward(self, q: Any, ends: Any) -> Any:
        import kernels

        longest = q.shape[0]
        out = kernels.flash_attention_varlen(q, q, q, ends, ends, longest, longest)
        cache = q[None].clone()
        out = kernels.flash_attention_kvcache(out[None], cache, cache, cache_seqlens=longest - 1)
        return kernels.flash_attention(out, q[None], q[None], window_size=(longest // 2, 0))


def run_exported() -> list[tuple[torch.Tensor, torch.Tensor]]:
    model, found = Exported(), []
    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    shapes = {"q": rows, "ends": None}
    given = (torch.randn(20, 2, 16), torch.tensor([0, 7, 20], dtype=torch.int32))
    program = torch.export.export(model, given, dynamic_shapes=shapes, strict=False).module()
    for q in (given[0], torch.randn(33, 2, 16)):
        found.append((program(q, given[1]), model(q, given[1])))
    return found


def test_lengths_may_be_symbols_of_an_export(interpreter: Worker) -> None:
    for exported, eager in interpreter.run(run_exported):
        assert torch.equal(exported, eager)


def run_mapped() -> list[tuple[torch.Tensor, torch.Tensor]]:
    import kernels

    q, cache = torch.randn(2, 1, 4, 2, 16), torch.randn(1, 20, 2, 16)
    b = torch.randn(2, 16, 8)
    calls = (
        (lambda one: kernels.flash_attention(one, one, one), q),
        (lambda one: kernels.flash_attention_kvcache(cache[:, :4], one, one), q),
        (lambda one: kernels.matmul(cache[0, :, 0], one), b),
    )
    return [(torch.vmap(call)(x), torch.stack([call(one) for one in x])) for call, x in calls]


def test_calls_are_mapped_over_an_axis(interpreter: Worker) -> None:
    for mapped, each in interpreter.run(run_mapped):
        assert torch.equal(mapped, each)


def run_transformed() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Gradients by torch.func and by autograd."""
    import kernels

    q, k, x = torch.randn(2, 1, 4, 2, 16), torch.randn(1, 5, 2, 16), torch.randn(2, 4, 16)
    b, weights, sinks = torch.randn(16, 8), torch.randn(2, 16, 8), torch.randn(2)
    ends = torch.tensor([0, 1, 4], dtype=torch.int32)

    def attend(q: Any, sinks: Any) -> Any:
        out, lse = kernels.flash_attention(q, k, k, sinks=sinks, return_lse=True)
        return out.square().sum() + lse.square().sum()

    def pack(q: Any) -> Any:
        return kernels.flash_attention_varlen(q, q, q, ends, ends, 3, 3).square().sum()

    calls = (
        (attend, q[0], sinks),
        (pack, q[0, 0]),
        (lambda a, b: kernels.matmul(a, b, activation="gelu").square().sum(), x[0], b),
        (lambda a, b: kernels.grouped_matmul(a, b, ends).square().sum(), x[0], weights),
    )

    def plain(call: Any, given: Any) -> Any:
        given = [one.detach().requires_grad_() for one in given]
        return torch.autograd.grad(call(*given), given)

    func, found = torch.func, []
    for call, *given in calls:
        each = tuple(range(len(given)))
        found += zip(func.grad(call, argnums=each)(*given), plain(call, given), strict=True)
    # A gradient for each entry of a batch; and of a gradient.
    many = func.vmap(func.grad(attend), in_dims=(3, None))(q.movedim(0, 3), sinks)
    found += zip(many, [plain(attend, (one, sinks))[0] for one in q], strict=True)

    def slope(a: Any, b: Any) -> Any:
        return func.grad(lambda a: kernels.matmul(a, b).pow(3).sum())(a).sum()

    twice = 6.0 * kernels.matmul(x[0], b) * b.sum(0)  # of a @ b; what is multiplied by it is b.t()
    found.append((func.grad(slope)(x[0], b), kernels.matmul(twice, b.t())))
    return found


def test_torch_func_differentiates(interpreter: Worker) -> None:
    for transformed, plain in interpreter.run(run_transformed):
        torch.testing.assert_close(transformed, plain, rtol=1e-5, atol=1e-4)


def run_compiled_transforms() -> tuple[list[tuple[torch.Tensor, torch.Tensor]], str, int]:
    """Transforms compiled and not, what a whole graph of one says, and breaks without one."""
    import torch._dynamo

    import kernels

    x, b = torch.randn(1, 4, 2, 16), torch.randn(16, 8)
    calls = (
        (lambda one: kernels.flash_attention(one, one, one).square().sum(), x),
        (lambda one: kernels.matmul(one, b, activation="gelu").square().sum(), x[0, :, 0]),
    )
    found = []
    for call, given in calls:
        slope = torch.func.grad(call)
        many = torch.stack([given, 2 * given])
        each = torch.func.vmap(call)
        pairs = torch.stack([many, 3 * many])
        transforms = (
            (slope, given),
            (torch.func.vmap(slope), many),
            # Gradients of what is mapped, once and twice.
            (torch.func.jacrev(each), many),
            (torch.func.grad(lambda x, each=each: torch.func.vmap(each)(x).sum()), pairs),
        )
        for transform, one in transforms:
            torch._dynamo.reset()
            found.append((torch.compile(transform, backend="aot_eager")(one), transform(one)))
        # Mapped alone it is one graph.
        for mapped, one in ((each, many), (torch.func.vmap(each), pairs)):
            torch._dynamo.reset()
            whole = torch.compile(mapped, backend="aot_eager", fullgraph=True)
            found.append((whole(one), mapped(one)))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported) as told:
        torch.compile(slope, backend="aot_eager", fullgraph=True)(given)
    torch._dynamo.reset()
    plain = torch._dynamo.explain(call)(given)
    return found, str(told.value), plain.graph_break_count


def test_torch_func_runs_within_torch_compile(interpreter: Worker) -> None:
    found, told, breaks = interpreter.run(run_compiled_transforms)
    for compiled, transformed in found:
        torch.testing.assert_close(compiled, transformed)
    assert "torch.func within torch.compile runs uncompiled" in told
    assert breaks == 0


def run_second_of_activations() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Second gradients of products beside those of torch's own."""
    import kernels

    found: list[tuple[torch.Tensor, torch.Tensor]] = []
    for activation in ("relu", "gelu", "silu"):
        a, b = torch.randn(5, 8, requires_grad=True), torch.randn(8, 6, requires_grad=True)
        of_torch = getattr(torch.nn.functional, activation)(a @ b)
        each = []
        for out in (kernels.matmul(a, b, activation=activation), of_torch):
            da, db = torch.autograd.grad(out.pow(2).sum(), (a, b), create_graph=True)
            each.append(torch.autograd.grad(da.pow(2).sum() + db.sum(), (a, b)))
        found += zip(*each, strict=True)
    return found


def test_products_with_an_activation_have_second_gradients(interpreter: Worker) -> None:
    for found, of_torch in interpreter.run(run_second_of_activations):
        torch.testing.assert_close(found, of_torch, rtol=1e-4, atol=1e-4)


def run_second() -> list[str]:
    import kernels

    q, found = torch.randn(1, 4, 2, 16, requires_grad=True), []
    out, lse = kernels.flash_attention(q, q, q, return_lse=True)
    (dq,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    for one in (dq, *kernels.flash_attention_backward(q, q, q, q, out.detach(), lse.detach())):
        with pytest.raises(NotImplementedError) as told:
            one.sum().backward(retain_graph=True)
        found.append(str(told.value))
    return found


def test_second_gradients_of_attention_are_refused_by_name(interpreter: Worker) -> None:
    told = interpreter.run(run_second)
    assert len(told) == 4
    assert all(re.match("flash_attention: expected to be differentiated once", one) for one in told)


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
    import kernels.public

    q, dout = torch.randn(1, 20, 2, 16), torch.randn(1, 20, 2, 16)
    out, lse = kernels.flash_attention(q, q, q, return_lse=True)
    ends = torch.tensor([0, 7, 20], dtype=torch.int32)
    used = torch.tensor([3, 20], dtype=torch.int32)
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
            torch.ops.warpwatch.flash_attention_varlen_backward,
            (*flat, *masks),
            {"used_q": used, "used_k": used},
        ),
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
    names = re.compile(r"""(?:custom_op|operator)\(\s*"warpwatch::(\w+)""")
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

"""What ``torch.compile`` generates is recorded on machines without a card."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compiled import generated_kernels
from warpwatch.config import targets
from warpwatch.instruments.compiled import Recording, record
from warpwatch.instruments.compiled.machine_code import identity
from warpwatch.instruments.compiled.measure.workload import Measurement, measure_call
from warpwatch.instruments.compiled.record import callables
from warpwatch.instruments.compiled.record.inductor import gradients

HERE = "tests.compiled.generated_kernels"
BOTH = ("sm_90", "gfx942")


def recorded(
    name: str, arguments: str, target: str = "sm_90", *, backward: bool = False
) -> Recording:
    return record(
        lambda call: call(),
        targets.get(target),
        inputs=lambda: callables.prepare(f"{HERE}:{name}", arguments, backward=backward),
        refuse_host=True,
    )


def measured(name: str, arguments: str, target: str = "sm_90", **how: bool) -> Measurement:
    return measure_call(f"{HERE}:{name}", targets.get(target), arguments=arguments, **how)


def names(found: Recording) -> list[str]:
    return [one.kernel.name for one in found.launches]


def operations(found: Recording) -> list[str]:
    return [one.name for one in found.torch_ops]


@pytest.mark.parametrize("target", BOTH)
def test_operations_that_follow_each_other_are_one_kernel(target: str) -> None:
    found = recorded("gated", "bf16[512,64]", target)
    assert names(found) == ["triton_poi_fused_add_mul_sigmoid_0"]
    assert not found.torch_ops and not found.failures
    (launch,) = found.launches
    assert launch.programs * int(str(launch.arguments["XBLOCK"])) == 512 * 64
    first: Any = launch.arguments["in_ptr0"]
    assert first.shape == (512, 64)
    assert launch.kernel.target.name == target


@pytest.mark.parametrize("target", BOTH)
def test_a_reduction_is_measured_as_a_kernel_of_ones_own(target: str) -> None:
    found = measured("normed", "bf16[256,1024] bf16[1024]", target)
    assert (found.status, found.detail) == ("ok", "")
    assert found.values["launches"] == 1
    assert found.values["registers"] > 0 and found.values["code_bytes"] > 0
    assert found.values["bound_us"] > 0
    launches: Any = found.evidence["launches"]
    (launch,) = launches
    assert launch["kernel"].startswith("triton_per_fused_")
    assert found.evidence["sources"] == {
        "own": ["tests/compiled/generated_kernels.py"],
        "imported": [],
    }


@pytest.mark.parametrize("target", BOTH)
def test_a_product_is_torchs_own_and_what_follows_it_a_kernel(target: str) -> None:
    found = recorded("linear", "bf16[128,64] bf16[64,256] bf16[256]", target)
    assert names(found) == ["triton_poi_fused_add_relu_0"]
    (product,) = found.torch_ops
    assert (product.name, product.flops, product.dtype) == ("aten.mm", 2 * 128 * 64 * 256, "bf16")


@pytest.mark.parametrize("target", BOTH)
def test_the_backward_pass_is_generated_too(target: str) -> None:
    shapes = "bf16[128,64] bf16[64,256] bf16[256]"
    forward = recorded("linear", shapes, target)
    both = recorded("linear", shapes, target, backward=True)
    assert names(both)[0] == "triton_poi_fused_add_relu_threshold_backward_0"
    assert any("sum" in one for one in names(both)[1:])  # the gradient of the bias
    assert operations(forward) == ["aten.mm"] and operations(both) == ["aten.mm"] * 3
    assert not both.failures


def test_gradients_of_functions_written_in_python_are_followed() -> None:
    found = recorded("scaled", "fp32[64,64] fp32[64,64]", backward=True)
    assert names(found)[:2] == ["triton_poi_fused_add_mul_sin_0", "triton_poi_fused_cos_mul_0"]


def test_a_module_is_compiled_with_its_parameters() -> None:
    found = recorded("layer", "fp32[128,64]", backward=True)
    assert names(found)[0].startswith("triton_per_fused_native_layer_norm_silu")
    assert operations(found).count("aten.mm") == 2 and "aten.addmm" in operations(found)
    assert not found.failures


def test_code_between_two_graphs_runs_on_the_device_too() -> None:
    generated_kernels.heard.clear()
    found = recorded("broken", "fp32[128,64]")
    assert generated_kernels.heard == ["cuda:0 True"]
    assert names(found) == [
        "triton_poi_fused_mul_sin_0",
        "triton_poi_fused_add_0",
        "triton_poi_fused_exp_mul_0",
    ]


def test_dynamic_shapes_are_arguments_of_one_kernel() -> None:
    found = recorded("two_lengths", "fp32[128,96]")
    first, second = found.launches
    assert first.kernel is second.kernel
    assert (first.arguments["xnumel"], second.arguments["xnumel"]) == (128, 64)


def test_a_kernel_of_ones_own_is_launched_with_its_own_grid() -> None:
    found = recorded("around_a_kernel", "fp32[10000]")
    assert names(found) == ["add_one", "triton_poi_fused_mul_0"]
    assert found.launches[0].grid == (20, 1, 1)


@pytest.mark.parametrize("target", BOTH)
def test_torchs_attention_is_that_of_a_card(target: str) -> None:
    shapes = " ".join(["bf16[1,2,128,64]"] * 3)
    found = recorded("attention", shapes, target, backward=True)
    flash = "aten._scaled_dot_product_flash_attention"
    assert operations(found) == [flash, f"{flash}_backward"]
    assert not found.launches


def test_constants_are_part_of_the_kernel_wherever_they_were_made() -> None:
    found = recorded("of_constants", "fp32[32,64]")
    (launch,) = found.launches
    assert {name for name in launch.arguments if "ptr" in name} == {"in_ptr0", "out_ptr0"}
    assert not found.torch_ops


def test_what_would_be_timed_is_noted_with_its_search_space() -> None:
    found = recorded("tuned", "bf16[512,256] bf16[256,512]")
    assert operations(found) == ["aten.mm"]
    (space,) = found.tuned
    assert space.kernel == "triton_per_fused_gelu_sum_0" and len(space.configurations) > 1
    assert space.recorded == space.configurations[0]
    assert any("max_autotune times products on a card" in one for one in found.notes)


def test_each_target_gets_its_own_code_in_one_process() -> None:
    answers = [recorded("by_target", "fp32[4096]", target) for target in (*BOTH, *BOTH)]
    assert [names(one) for one in answers] == [
        ["triton_poi_fused_sub_0"],
        ["triton_poi_fused_add_0"],
    ] * 2
    first, _, again, _ = (one.launches[0].kernel for one in answers)
    assert first.binary == again.binary


def test_what_inductor_gives_up_is_refused_in_one_sentence() -> None:
    found = measured("failing", "fp32[4096]")
    assert found.status == "not measured"
    assert found.detail == (
        "torch.compile: Inductor generates no code for this without a card (RuntimeError: a pass "
        "of the user's fails): name the function as it was before torch.compile, or measure it on "
        "a card"
    )


def test_another_kernel_is_seen_in_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def code(found: Recording) -> list[str]:
        return [identity.code_hash(one.kernel) for one in found.launches]

    before = code(recorded("gated", "bf16[512,64]"))
    assert before == code(recorded("gated", "bf16[512,64]"))

    @torch.compile
    def other(x: torch.Tensor) -> torch.Tensor:
        return x * torch.tanh(x) + 1

    monkeypatch.setattr(generated_kernels, "gated", other)
    assert before != code(recorded("gated", "bf16[512,64]"))


def test_torch_is_left_as_it_was() -> None:
    recorded("linear", "bf16[128,64] bf16[64,256] bf16[256]", backward=True)
    with pytest.raises(RuntimeError, match="a pass of the user's fails"):
        recorded("failing", "fp32[4096]")
    before, settings = _state(), dict(os.environ)
    recorded("linear", "bf16[128,64] bf16[64,256] bf16[256]", "gfx942", backward=True)
    with pytest.raises(RuntimeError, match="a pass of the user's fails"):
        recorded("failing", "fp32[4096]")
    assert _state() == before
    assert dict(os.environ) == settings
    traced: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        traced.extend(inputs)
        return graph.forward

    # Compiled here before, for a card: for the CPU again.
    x = torch.arange(6.0)
    assert torch.equal(torch.compile(lambda one: one * 2, backend=backend)(x), x * 2)
    assert [one.device.type for one in traced] == ["cpu"]


def _state() -> dict[str, Any]:
    """All that is replaced in torch, and what torch was answered about the device."""
    import torch._inductor.utils as inductor_utils
    from torch._dynamo.device_interface import device_interfaces
    from torch.utils._triton import has_triton

    state: dict[str, Any] = {
        f"{module}.{name}": value
        for module, one in list(sys.modules.items())
        if module.partition(".")[0] == "torch" and hasattr(one, "__dict__")
        for name, value in list(vars(one).items())
        if callable(value) and not name.startswith("__")
    }
    classes = [one for one in state.values() if isinstance(one, type)]
    state |= {
        f"{one.__module__}.{one.__qualname__}.{name}": value
        for one in classes
        if one.__module__.startswith("torch")
        for name, value in vars(one).items()
        if callable(value) or isinstance(value, property | staticmethod | classmethod)
    }
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    state["guards"] = list(guards)
    state["interfaces"] = dict(device_interfaces)
    state["answers"] = has_triton(), inductor_utils.get_gpu_type(), torch.version.hip
    return state


def test_gradients_are_those_of_torchs_engine() -> None:
    torch.manual_seed(0)
    x, y, unused = (torch.randn(5, 4, requires_grad=True) for _ in range(3))
    row = torch.randn(4, requires_grad=True)
    half = torch.randn(5, 4, dtype=torch.bfloat16, requires_grad=True)
    first, second = generated_kernels.Scaled.apply(x, 0.5, y)
    z = first * row + second.exp() * first
    outputs = (z @ z.T + (half.float() * x).sum(), second.cumsum(0)[1:], z.unbind(1)[2])
    given = tuple(torch.randn_like(one) for one in outputs)
    inputs = (x, y, row, half, z, unused)
    found = gradients.traced(outputs, inputs, given)
    wanted = torch.autograd.grad(outputs, inputs, given, allow_unused=True, retain_graph=True)
    assert found[-1] is None and wanted[-1] is None
    for one, other in zip(found[:-1], wanted[:-1], strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)


def test_tensors_without_memory_lie_on_the_device_and_do_nothing() -> None:
    found = recorded("shapes_alone", "fp32[48,8]")
    (zeroed,) = found.torch_ops
    assert (zeroed.name, zeroed.bytes_moved) == ("aten.zero_", 48 * 48 * 4)


def test_modules_of_torch_that_a_call_imports_keep_no_answer() -> None:
    code = """
import sys, torch
from warpwatch.config import targets
from warpwatch.instruments.compiled import record

def imports():
    import torch._dynamo.device_interface

own = torch.cuda.current_device, torch.cuda.Stream
assert "torch._dynamo" not in sys.modules
record(imports, targets.get("sm_90"))
kept = sys.modules["torch._dynamo.device_interface"].CudaInterface
assert (kept.current_device, kept.Stream) == own
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)

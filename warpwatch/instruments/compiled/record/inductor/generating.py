"""Inductor's part: it generates Triton code for the target, and the host code around it.

It is imported where Inductor gets its first graph. An ``ImportError`` says that torch's inside is
another than that of 2.11 to 2.13.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch._functorch.config as functorch_config
import torch._inductor.utils as inductor_utils
import torch.utils._triton as triton_questions
from torch._dynamo.device_interface import device_interfaces, init_device_reg
from torch._inductor.codecache import CacheBase
from torch._inductor.constant_folding import ConstantFolder
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.runtime.triton_heuristics import CachingAutotuner

from . import kernels, stand_ins

if TYPE_CHECKING:
    from warpwatch.instruments.compiled.record.driver import RecordingDriver

_GENERATED = "torch._inductor.runtime.compile_tasks."
# Of torch.compile's own options, those that need a card and leave no kernel out.
_SETTINGS: dict[str, Any] = {
    "compile_threads": 1,  # in this process, where the recorder hears of each
    "force_disable_caches": True,
    "cpp_wrapper": False,
    "triton.cudagraphs": False,
    # What these would time: it is chosen as without them.
    "max_autotune": False,
    "max_autotune_gemm": False,
    "coordinate_descent_tuning": False,
    "shape_padding": False,
    "benchmark_epilogue_fusion": False,
    "triton.autotune_at_compile_time": False,
    "triton.multi_kernel": 0,
}


def compiled(
    recorder: RecordingDriver,
    compile_graph: Callable[..., Any],
    wrapper: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """One graph, compiled as ``torch.compile``'s own ``wrapper`` asks for, without timing anything.

    Args:
        recorder: Notes where this differs from the choice of a card.
        compile_graph: What torch compiles it with.
        wrapper: Holds the options of this ``torch.compile``.
        args: The graph and its inputs.
        kwargs: As torch gives them.

    Returns:
        What runs the graph.
    """
    ours = copy.copy(wrapper)
    asked = {**wrapper.config, **(kwargs.get("config_patches") or {})}
    ours.config = {**wrapper.config, **_SETTINGS}
    if "config_patches" in kwargs:
        kwargs["config_patches"] = {**asked, **_SETTINGS}
    if asked.get("max_autotune"):
        ours.config["max_autotune_pointwise"] = True  # whose spaces are recorded
        recorder.remark(
            "torch.compile: max_autotune times products on a card: torch's own are recorded"
        )
    # Without a card no later time is better: the backward pass is generated now, too.
    with ExitStack() as during:
        during.enter_context(
            functorch_config.patch(
                force_non_lazy_backward_lowering=True, enable_autograd_cache=False
            )
        )
        during.enter_context(stand_ins.Attention(recorder))
        return compile_graph(ours, *args, **kwargs)


@contextmanager
def for_target(recorder: RecordingDriver) -> Iterator[None]:
    """Inside, Inductor compiles for the recorder's target, and what it made is recorded.

    Args:
        recorder: The driver that is active.
    """
    init_device_reg()
    launched = kernels.Launched(recorder)
    inside: Any = torch._C
    fold: Any = ConstantFolder.run

    def fold_on_host(*args: Any, **kwargs: Any) -> Any:
        with stand_ins.OnHost():  # type: ignore[no-untyped-call]
            return fold(*args, **kwargs)

    attribute: Any = GraphLowering.get_attr

    def constant(graph: Any, *args: Any, **kwargs: Any) -> Any:
        users = [one.meta.get("val") for one in graph.current_node.users]
        on_device = any(getattr(one, "is_cuda", False) for one in users)
        with stand_ins.OnDevice() if on_device else nullcontext():
            return attribute(graph, *args, **kwargs)

    changes: list[tuple[Any, str, Any]] = [
        (CachingAutotuner, "run", launched.method()),
        # Only what is launched is compiled, and then one configuration.
        (CachingAutotuner, "precompile", lambda *_, **__: None),
        (ConstantFolder, "run", fold_on_host),
        (GraphLowering, "get_attr", constant),
        (triton_helpers, "set_driver_to_gpu", lambda: None),
        # What the generated host code calls. A build of torch without CUDA lacks some.
        (inside, "_cuda_getCurrentRawStream", lambda device: 0),
        (inside._dynamo.guards, "_empty_strided_cuda", _empty_strided),
        (torch.cuda, "_DeviceGuard", lambda device: nullcontext()),
    ]
    with ExitStack() as ends:
        ends.callback(_forget)
        for owner, name, value in changes:
            ends.enter_context(mock.patch.object(owner, name, value, create=True))
        answering = dict.fromkeys(("cuda", "cuda:0"), stand_ins.interface())
        ends.enter_context(mock.patch.dict(device_interfaces, answering))
        # What is generated holds what is replaced here.
        ends.enter_context(inductor_utils.fresh_cache())
        _forget()
        yield


def _empty_strided(size: Any, stride: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")


def _forget() -> None:
    """Torch keeps what it was answered about the device, and the modules that it generated."""
    for module in (inductor_utils, triton_questions):
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
    for name in [one for one in sys.modules if one.startswith(_GENERATED)]:
        del sys.modules[name]
    for keeper in (DeviceProperties.create, CacheBase.get_system):
        keeper.cache_clear()

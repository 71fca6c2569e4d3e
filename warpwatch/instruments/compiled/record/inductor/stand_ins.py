"""What stands in for a card while Inductor compiles a graph."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._dynamo.device_interface import CudaInterface
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from warpwatch.instruments.compiled.record.torch import ops as torch_ops

if TYPE_CHECKING:
    from warpwatch.instruments.compiled.record.driver import RecordingDriver


class OnHost(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Constants are folded on the host: there is no memory of the device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {name: torch_ops.to_cpu(one) for name, one in (kwargs or {}).items()}
        return func(*map(torch_ops.to_cpu, args), **given)


class OnDevice(TorchFunctionMode):
    """Constants of a traced call lie on the device, as Inductor sees them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        asked = getattr(func, "__self__", None) is torch.Tensor.device
        return torch.device("cuda", 0) if asked and found.type == "cpu" else found


class Attention(TorchFunctionMode):
    """Torch's attention is its kernel for a card, which is chosen where there is one."""

    def __init__(self, recorder: RecordingDriver) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch._C._nn.scaled_dot_product_attention:
            found = _flash(*args, **(kwargs or {}))
            if found is not None:
                return found
            self._recorder.remark(
                "torch.compile: attention is made of products: a card may have a kernel for it"
            )
        return func(*args, **(kwargs or {}))


def _flash(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Flash attention where a card would take it for its shapes, else ``None``."""
    heads, width = {one.shape[-3] for one in (query, key, value)}, query.shape[-1]
    even = all(one.dim() == 4 and one.shape[-1] == width for one in (query, key, value))
    narrow = query.dtype in (torch.float16, torch.bfloat16) and width % 8 == 0 and width <= 256
    if not (even and narrow and attn_mask is None and query.is_cuda and len(heads) == 1):
        return None
    flash: Any = torch.ops.aten._scaled_dot_product_flash_attention
    return flash(query, key, value, dropout_p, is_causal, scale=scale)[0]


def interface() -> type[CudaInterface]:
    """What answers Dynamo's and Inductor's questions about a device: ``torch.cuda``, which speaks
    for the target when it is asked."""

    def properties(device: Any = None) -> Any:
        return torch.cuda.get_device_properties(device)

    answers: dict[str, Any] = {
        "device": lambda device=None: nullcontext(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "current_stream": lambda device=None: torch.cuda.current_stream(),
        "get_raw_stream": lambda device=None: 0,
        "synchronize": lambda device=None: torch.cuda.synchronize(),
        "get_device_properties": properties,
    }
    worker = {"get_device_properties": staticmethod(properties)}
    members: dict[str, Any] = {name: staticmethod(one) for name, one in answers.items()}
    members["Worker"] = type("Worker", (CudaInterface.Worker,), worker)
    return type("Interface", (CudaInterface,), members)

"""Dynamo's part: CPU tensors that pass for device tensors are traced as such.

It is imported where a function is given to ``torch.compile``. An ``ImportError`` says that torch's
inside is another than that of 2.11 to 2.13.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
import torch._dynamo as dynamo
from torch._dynamo.variables.streams import SymbolicStreamState
from torch._dynamo.variables.torch_function import SymbolicTorchFunctionState
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode, init_gpu_context
from torch._subclasses.meta_utils import MetaTensorDescriber

from warpwatch.instruments.compiled.record.known_values import Known
from warpwatch.instruments.compiled.record.torch import ops as torch_ops

from . import gradients, guards

_disabled: Any = dynamo.disable
_DEVICE = torch.device("cuda", 0)


@contextmanager
def on_device(known: Known) -> Iterator[None]:
    """Inside, Dynamo traces what ``known`` does not know to lie on the host as if on ``cuda:0``."""
    describe: Any = MetaTensorDescriber.describe_tensor
    state: Any = SymbolicTorchFunctionState.__init__

    def described(describer: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        found = describe(describer, tensor, *args, **kwargs)
        if found.device.type != "cpu" or found.layout is not torch.strided:
            return found
        if known.is_on_host(tensor):
            return found
        return dataclasses.replace(found, device=_DEVICE)

    def begun(tracer: Any, modes: Any, *args: Any, **kwargs: Any) -> None:
        # Else Dynamo would trace into the recorder, for the user's function.
        state(tracer, [one for one in modes if not torch_ops.is_ours(one)], *args, **kwargs)

    streams: Any = SymbolicStreamState.__init__

    def on_no_stream(state: Any) -> None:
        with mock.patch.object(torch.accelerator, "is_available", lambda: False):
            streams(state)

    changes: list[tuple[Any, str, Any]] = [
        (MetaTensorDescriber, "describe_tensor", described),
        (SymbolicTorchFunctionState, "__init__", begun),
        (torch.autograd, "grad", gradients.in_place_of(torch.autograd.grad)),
        (SymbolicStreamState, "__init__", on_no_stream),
        # There is no context of a device to make, and no memory of it.
        (fake_tensor, init_gpu_context.__name__, lambda device: None),
        (FakeTensorMode, "avoid_device_init", True),
        # What runs between two graphs is Python, and Dynamo would compile the recorder with it.
        *((mode, name, _disabled(getattr(mode, name))) for mode, name in torch_ops.HANDLERS),
    ]
    with ExitStack() as replaced:
        # The results of operators are kept by their operands, and not by target.
        FakeTensorMode.cache_clear()
        replaced.callback(FakeTensorMode.cache_clear)
        replaced.enter_context(guards.for_cuda())
        for owner, name, value in changes:
            replaced.enter_context(mock.patch.object(owner, name, value))
        yield

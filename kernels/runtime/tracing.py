"""Whether torch has to see operators instead of launches: compilers, tracers, transforms."""

from __future__ import annotations

from typing import Any

import torch

# Modes that make a graph, or fake tensors, of what the dispatcher sees of plain tensors.
_GRAPHS = torch._C._TorchDispatchModeKey
_TRACERS = (_GRAPHS.PROXY, _GRAPHS.FAKE, _GRAPHS.FUNCTIONAL)
# Looked up once: every call asks them.
_compiling = torch.compiler.is_compiling
_tracing = torch._C._is_tracing
_modes_active = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at
_transforms_active = torch._C._are_functorch_transforms_active
# What is no tensor, or one whose memory is its values.
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None), bool, int, float, str))


def traced(*values: Any) -> bool:
    """Whether torch has to see one operator instead of launches: while it compiles or traces
    (``make_fx``, ``jit.trace``) or counts (``FlopCounterMode``), where one of ``values`` is no
    plain tensor but a subclass that says itself what operators make of it, and within its
    transforms, whose tensors look plain (``vmap``); and on the meta device, where the first of
    ``values`` tells: all are on one."""
    return _compiling() or not PLAIN.issuperset(map(type, values)) or watched() or values[0].is_meta


def watched() -> bool:
    """Whether a transform, a tracer or a counter of torch is at work, whatever the tensors are."""
    return _transforms_active() or (_modes_active() and _seen_by_a_mode()) or _tracing()


def _seen_by_a_mode() -> bool:
    if any(torch._C._get_dispatch_mode(key) is not None for key in _TRACERS):
        return True
    modes = (_mode_at(i) for i in range(_modes_active()))
    return any(type(mode).__module__ == "torch.utils.flop_counter" for mode in modes)

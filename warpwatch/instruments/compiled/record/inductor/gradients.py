"""Gradients of traced calls on machines without a card.

Torch's own engine asks for streams of the device, which is not there. Here the same nodes are
called in the same order, one after the other.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.autograd.graph import get_gradient_edge

_Edge = tuple[Any, int]  # a node, and which of the gradients it takes


def in_place_of(grad: Any) -> Any:
    """What serves as ``torch.autograd.grad``: as before, but for tensors of a traced call."""

    def traced_or(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        if all(is_fake(one) for one in _all(outputs)):
            return traced(outputs, *args, **kwargs)
        return grad(outputs, *args, **kwargs)

    return traced_or


def traced(outputs: Any, inputs: Any, grad_outputs: Any = None, **options: Any) -> tuple[Any, ...]:
    """What serves as ``torch.autograd.grad`` for tensors of a traced call.

    Args:
        outputs: The tensors to start from.
        inputs: The tensors whose gradients are wanted.
        grad_outputs: One gradient for each output.
        options: Torch's own, which ask for nothing else here.

    Returns:
        One gradient for each input, ``None`` where no output depends on it.
    """
    wanted = [_edge(one) for one in _all(inputs)]
    grads: dict[Any, dict[int, Any]] = defaultdict(dict)
    with torch.no_grad():
        for output, given in zip(_all(outputs), _all(grad_outputs), strict=True):
            _add(grads, _edge(output), given)
        _run(grads, {node for node, _ in wanted})
    return tuple(grads[node].get(number) for node, number in wanted)


def _run(grads: dict[Any, dict[int, Any]], wanted: set[Any]) -> None:
    """Call every node that leads from those that have gradients to those that are ``wanted``. The
    latest made comes first, as in torch's engine: it decides the order of what is traced."""
    waits, leads = _graph(list(grads), wanted)
    order = count()
    ready = [(-_age(node), next(order), node) for node in grads if not waits[node]]
    heapq.heapify(ready)
    while ready:
        _, _, node = heapq.heappop(ready)
        following = node.next_functions
        given = grads[node] if node in wanted else grads.pop(node, {})
        found: Sequence[Any] = ()
        if given and any(following_node in leads for following_node, _ in following):
            found = _called(node, [given.get(n) for n in range(len(node._input_metadata))])
        for place, (after, number) in enumerate(following):
            if after is None:
                continue
            if after in leads and place < len(found) and found[place] is not None:
                _add(grads, (after, number), _as_declared(found[place], after, number))
            waits[after] -= 1
            if not waits[after]:
                heapq.heappush(ready, (-_age(after), next(order), after))


def _called(node: Any, given: list[Any]) -> list[Any]:
    """One gradient for each of the nodes that follow; ``None`` of those that need none."""
    if callable(node):
        return list(_all(node(*given)))
    # A function written in Python: it has a gradient for each argument, tensor or not.
    if getattr(node, "materialize_grads", True):
        given = [
            torch.zeros(tuple(like.shape), dtype=like.dtype, device=like.device)
            if one is None
            else one
            for one, like in zip(given, node._input_metadata, strict=True)
        ]
    made = _all(node.apply(*given))
    needed = iter([one for one, need in zip(made, node.needs_input_grad, strict=False) if need])
    return [None if after is None else next(needed) for after, _ in node.next_functions]


def _graph(roots: list[Any], wanted: set[Any]) -> tuple[dict[Any, int], set[Any]]:
    """How many nodes each has to wait for, and which lead to one that is wanted."""
    waits: dict[Any, int] = defaultdict(int)
    seen: set[Any] = set()
    before: dict[Any, list[Any]] = defaultdict(list)
    left = list(roots)
    while left:
        node = left.pop()
        if node in seen:
            continue
        seen.add(node)
        for after, _ in node.next_functions:
            if after is not None:
                waits[after] += 1
                before[after].append(node)
                left.append(after)
    leads: set[Any] = set()
    left = [node for node in wanted if node in seen]
    while left:
        node = left.pop()
        if node not in leads:
            leads.add(node)
            left += before[node]
    return waits, leads


def _age(node: Any) -> int:
    return int(node._sequence_nr())


def _edge(tensor: Any) -> _Edge:
    edge = get_gradient_edge(tensor)
    return edge.node, edge.output_nr


def _add(grads: dict[Any, dict[int, Any]], edge: _Edge, gradient: Any) -> None:
    node, number = edge
    there = grads[node].get(number)
    grads[node][number] = gradient if there is None else there + gradient


def _as_declared(gradient: Any, node: Any, number: int) -> Any:
    """Formulas of torch may leave a gradient broadcast, or in the dtype it was computed in."""
    declared = node._input_metadata[number]
    if tuple(gradient.shape) != tuple(declared.shape):
        gradient = gradient.sum_to_size(declared.shape)
    return gradient if gradient.dtype == declared.dtype else gradient.to(declared.dtype)


def _all(one: Any) -> Sequence[Any]:
    return one if isinstance(one, list | tuple) else (one,)

"""Both passes of a step that autograd differentiates, each replayed where its form is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from .forms import known, serve
from .plan import Plan


class _Remembered(SimpleNamespace):
    """What a formula keeps of a forward pass, in place of autograd's context."""

    saved: tuple[torch.Tensor | None, ...] = ()
    materialize = True

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        self.saved = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


@dataclass(frozen=True)
class _Forward:
    """The plan of a forward pass, where its tensors stand among the arguments, and what is kept:
    tensors by their place among these and the results."""

    plan: Plan
    places: tuple[int, ...]
    saved: tuple[int | None, ...]
    attributes: dict[str, Any]
    materialize: bool


class Node:
    """A differentiable step of one plan: whatever calls it comes with tensors of one form."""

    def __init__(self) -> None:
        self._forward: _Forward | None = None
        self._plans: dict[tuple[Any, ...], Any] = {}

    def forward(
        self,
        ctx: Any,
        body: Callable[..., Any],
        remember: Callable[..., Any],
        arguments: tuple[Any, ...],
    ) -> Any:
        """The results of ``body``; ``ctx`` has what ``remember`` keeps."""
        found = self._forward
        if found is None:
            results = body(*arguments)
            remember(ctx, arguments, results)
            self._learn(body, remember, arguments, results)
            return results
        given = [arguments[i] for i in found.places]
        results = found.plan.run(given.copy(), [one.data_ptr() for one in given])
        whole = (*given, results) if isinstance(results, torch.Tensor) else (*given, *results)
        ctx.save_for_backward(*[None if i is None else whole[i] for i in found.saved])
        ctx.set_materialize_grads(found.materialize)
        ctx.__dict__.update(found.attributes)
        return results

    def _learn(
        self, body: Any, remember: Callable[..., Any], arguments: tuple[Any, ...], results: Any
    ) -> None:
        plan = known(body, arguments)
        if plan is None:
            return
        kept = _Remembered()
        remember(kept, arguments, results)
        places = tuple(i for i, one in enumerate(arguments) if isinstance(one, torch.Tensor))
        made = (results,) if isinstance(results, torch.Tensor) else results
        whole = (*(arguments[i] for i in places), *made)
        numbers = {id(one): i for i, one in enumerate(whole)}
        if all(one is None or id(one) in numbers for one in kept.saved):
            saved = tuple(None if one is None else numbers[id(one)] for one in kept.saved)
            others = {k: v for k, v in vars(kept).items() if k not in ("saved", "materialize")}
            self._forward = _Forward(plan, places, saved, others, kept.materialize)

    def backward(self, ctx: Any, formula: Callable[..., Any], grads: tuple[Any, ...]) -> Any:
        """What ``formula(ctx, *grads)`` gives, with no gradients of its own."""
        saved, attributes = ctx.saved_tensors, ctx.__dict__
        count = len(saved)

        def whole(needs: tuple[bool, ...], *tensors: Any) -> Any:
            stand_in = SimpleNamespace(**attributes)
            stand_in.saved_tensors, stand_in.needs_input_grad = tensors[:count], needs
            return formula(stand_in, *tensors[count:])

        return serve(self._plans, whole, (ctx.needs_input_grad, *saved, *grads), {})

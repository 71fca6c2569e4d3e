"""A step that autograd differentiates, both of whose passes are replayed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch

from .forms import Forms, known, serve
from .plan import Plan

Body = Callable[..., Any]


class _Remembered(SimpleNamespace):
    """What a formula keeps of a forward pass, in place of autograd's context."""

    saved: tuple[torch.Tensor | None, ...] = ()
    materialize = True

    def save_for_backward(self, *tensors: torch.Tensor | None) -> None:
        self.saved = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


@dataclass(frozen=True)
class Node:
    """A differentiable step of one plan: whatever calls it comes with tensors of one form.

    ``plan`` is of the forward pass, ``places`` are those of tensors among its ``count`` arguments,
    ``saved`` those of what is saved among (None, tensors, results), ``attributes`` are what else
    the ``formula`` remembers. Results of ``wanted`` are autograd's, the others only saved: ``run``
    gives both. ``passes`` has, by which arguments of ``Replayed`` need gradients, the forms of the
    backward pass and that itself.
    """

    plan: Plan
    formula: Body
    count: int
    places: tuple[int, ...]
    saved: tuple[int, ...]
    attributes: dict[str, Any]
    materialize: bool
    results: int
    wanted: tuple[int, ...]
    run: Body
    passes: dict[tuple[bool, ...], tuple[Forms, Body]] = field(default_factory=dict)

    def gradients(self, needs: tuple[bool, ...], saved: Any, grads: tuple[Any, ...]) -> Any:
        """Of the arguments of ``Replayed``, as ``formula`` gives them."""
        needed, given = [False] * self.count, [None] * self.results
        for i, one in zip(self.places, needs[2:], strict=True):
            needed[i] = one
        for i, grad in zip(self.wanted, grads, strict=True):
            given[i] = grad
        whole = SimpleNamespace(**self.attributes)
        whole.saved_tensors, whole.needs_input_grad = saved, tuple(needed)
        found = self.formula(whole, *given)
        found = found if isinstance(found, tuple) else (found,)
        return (None, None, *(found[i] for i in self.places))

    def narrowed(self, wanted: tuple[int, ...]) -> tuple[tuple[int, ...], Body, Node]:
        """The results that the step gives where the rest takes those of ``wanted``, the step, and
        the node that it takes, then addresses and tensors."""
        if self.materialize or not wanted:  # the formula counts on every gradient
            wanted = self.wanted
        run = self.plan.giving(self.saved, wanted)
        return wanted, replay, replace(self, run=run, wanted=wanted, passes={})

    def backward(self, needs: tuple[bool, ...]) -> tuple[Forms, Body]:
        """Known forms of the backward pass where ``needs`` says who needs a gradient, and that."""
        return self.passes.setdefault(needs, (Forms(), functools.partial(self.replayed, needs)))

    def replayed(self, needs: tuple[bool, ...], *tensors: Any) -> Any:
        """As ``gradients``, of saved tensors and then of gradients."""
        split = len(tensors) - len(self.wanted)
        return self.gradients(needs, tensors[:split], tensors[split:])


class Replayed(torch.autograd.Function):
    """The step of a node. It takes that, the addresses of tensors, and these."""

    @staticmethod
    def forward(ctx: Any, node: Node, addresses: Sequence[int], *tensors: torch.Tensor) -> Any:
        saved, results = node.run(tensors, addresses)
        ctx.save_for_backward(*saved)
        if not node.materialize:
            ctx.set_materialize_grads(False)
        ctx.node = node
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        node, needs = ctx.node, ctx.needs_input_grad
        if torch.is_grad_enabled():
            return node.gradients(needs, ctx.saved_tensors, grads)
        plans, body = node.passes.get(needs) or node.backward(needs)
        return serve(plans, body, (*ctx.saved_tensors, *grads), {})


# Without what Function.apply does for the transforms of torch.func: where one is, nothing is
# replayed.
replay = super(torch.autograd.Function, Replayed).apply


def learner(body: Body, remember: Body, formula: Body) -> Callable[..., Node | None]:
    """Makes the node of a step that was just run, of its arguments and results; None where the
    step cannot be replayed."""

    def learn(arguments: tuple[Any, ...], results: Any) -> Node | None:
        with torch.no_grad():  # as a function of autograd runs it
            plan = known(body, arguments)
        if plan is None:
            return None
        kept = _Remembered()
        remember(kept, arguments, results)
        places = tuple(i for i, one in enumerate(arguments) if isinstance(one, torch.Tensor))
        made = (results,) if isinstance(results, torch.Tensor) else tuple(results)
        whole = (None, *(arguments[i] for i in places), *made)
        numbers = {id(one): i for i, one in enumerate(whole)}
        if any(id(one) not in numbers for one in kept.saved):
            return None
        saved = tuple(numbers[id(one)] for one in kept.saved)
        others = {k: v for k, v in vars(kept).items() if k not in ("saved", "materialize")}
        count, of = len(arguments), len(made)
        wanted = tuple(range(of))
        run = plan.giving(saved, wanted)
        return Node(plan, formula, count, places, saved, others, kept.materialize, of, wanted, run)

    return learn

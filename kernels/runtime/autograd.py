"""Gradients of operators, for autograd and for ``torch.func``.

What ``torch.library`` makes of a formula is an ``autograd.Function`` without ``setup_context``,
which the transforms of ``torch.func`` (grad, vjp, jacrev) refuse. Within them an operator is called
through a Function of ours, which has one. ``torch.compile`` leaves such a transform uncompiled, and
with fullgraph=True says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import pyfunctorch

from . import checks, tracing
from .launch import applied, learner


def differentiable(
    operator: Any, backward: Callable[..., Any], remember: Callable[..., Any]
) -> Callable[..., Any]:
    """Register the gradients of ``operator``; what comes back calls it, within transforms too.

    ``backward(ctx, *gradients)`` and ``remember(ctx, inputs, output)`` are what
    ``register_autograd`` takes. An operator that a formula calls has to be called so, too.
    """
    operator.register_autograd(backward, setup_context=remember)

    body = operator._init_fn

    class Direct(torch.autograd.Function):
        """Gradients without the dispatcher, whose time on the host is that of several launches."""

        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            found = body(*arguments)
            remember(ctx, arguments, found)
            return tuple(found) if isinstance(found, list) else found

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return backward(ctx, *grads)

    class Transformed(Direct):
        generate_vmap_rule = True

        @staticmethod
        def forward(*arguments: Any) -> Any:
            found = operator(*arguments)
            return tuple(found) if isinstance(found, list) else found

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            remember(ctx, inputs, output)

        @staticmethod
        def jvp(ctx: Any, *tangents: Any) -> Any:
            raise NotImplementedError(f"{operator._name}: {checks.NO_TANGENT}")

    # Without what Function.apply does for transforms, within which Transformed serves.
    straight = super(torch.autograd.Function, Direct).apply
    learn = learner(body, remember, backward)

    def call(*arguments: Any) -> Any:
        if not tracing.traced(*arguments):
            return applied(straight, learn, *arguments) if asked(arguments) else body(*arguments)
        if not torch._C._are_functorch_transforms_active():
            return operator(*arguments)
        if torch.compiler.is_compiling():
            if not _takes_gradients():
                return operator(*arguments)
            # Dynamo can follow neither of the two where gradients are taken: that runs as it is.
            torch._dynamo.graph_break("warpwatch: torch.func within torch.compile runs uncompiled")
        return Transformed.apply(*arguments)

    return call


class _ForwardOnly(torch.autograd.Function):
    """A function without gradients; where one is requested, it says so."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], message: str, *arguments: Any) -> Any:
        ctx.message = message
        return run(*arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(ctx.message)


def forward_only(run: Callable[..., Any], why: str, named: dict[str, Any], *others: Any) -> Any:
    """``run(*named.values(), *others)``, which has no gradients: a backward pass through it is a
    ``NotImplementedError`` that names the first of ``named`` that wants one, and says ``why``."""
    if torch.is_grad_enabled():
        for name, one in named.items():
            if isinstance(one, torch.Tensor) and one.requires_grad:
                return _ForwardOnly.apply(run, f"{name}: {why}", *named.values(), *others)
    return run(*named.values(), *others)


def asked(arguments: tuple[Any, ...]) -> bool:
    """Whether somebody may ask for gradients of one of them."""
    return torch.is_grad_enabled() and any(
        isinstance(one, torch.Tensor) and one.requires_grad for one in arguments
    )


def _takes_gradients() -> bool:
    """Whether any of the transforms that are active, which Dynamo follows here, is no ``vmap``."""
    if not torch._C._are_functorch_transforms_active():
        return False
    innermost = pyfunctorch.retrieve_current_functorch_interpreter()
    if innermost.key() != torch._C._functorch.TransformType.Vmap:
        return True
    with innermost.lower():
        return _takes_gradients()


def differentiable_once(operator: Any, name: str) -> Callable[..., Any]:
    """``operator`` computes gradients of ``name``, a list, and has none itself: asked for, it says
    so. Mapped (``vmap``), it is called for one entry after the other: torch has no fallback for
    what returns lists."""

    def one_by_one(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
        def entry(i: int, one: Any, axis: int | None) -> Any:
            if axis is None:
                return one
            # Log-sum-exps have to be contiguous, which those of another axis are not.
            return one.select(axis, i) if axis == 0 else one.select(axis, i).contiguous()

        pairs = list(zip(arguments, in_dims, strict=True))
        found = [operator(*(entry(i, *pair) for pair in pairs)) for i in range(info.batch_size)]
        stacked = [torch.stack(each) for each in zip(*found, strict=True)]
        return stacked, [0] * len(stacked)

    operator.register_vmap(one_by_one)

    def remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing."""

    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            f"{name}: expected to be differentiated once, its gradients have none of their own; "
            "drop create_graph=True, or take torch's attention where second gradients are requested"
        )

    return differentiable(operator, backward, remember)

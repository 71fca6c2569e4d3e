"""A workload that is written in the configuration: a function of the package and its arguments."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

from warpwatch.config.arguments import TensorSpec, parse_arguments, tensors

from .base import Inputs, Values, Workload
from .tensors import made

_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1, "bool": 1}
_NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True, kw_only=True)
class CallWorkload(Workload):
    """A call of ``package.module:function``.

    Attributes:
        title: The name of the workload.
        function: What is called, ``package.module:function``.
        arguments: Its arguments as :mod:`warpwatch.config.arguments` reads them.
        backward: Whether the gradients of all floating-point tensors are computed as well.
        compares_with: A function of the same arguments that gives the right answer, or nothing.
        operations: Floating-point operations of one call; 0 where nobody says.

    Example:
        >>> one = CallWorkload(
        ...     kernel="ops:gelu", group="configured", dtype="bf16", title="gelu-4096",
        ...     function="fastops.ops:gelu", arguments="bf16[4096,4096]",
        ... )
        >>> one.name, one.bytes_moved
        ('gelu-4096', 33554432)
    """

    title: str
    function: str
    arguments: str
    backward: bool = False
    compares_with: str = ""
    operations: int = 0

    @property
    def name(self) -> str:
        return self.title

    @property
    def definition(self) -> str:
        text = f"{self.function}({' '.join(self.arguments.split())})"
        return f"{text} and its gradients" if self.backward else text

    @property
    def checked_by(self) -> str:
        flops = f"{self.operations} flops" if self.operations else ""
        return ", ".join(filter(None, (self.compares_with, flops)))

    @property
    def flops(self) -> int:
        return self.operations

    @property
    def bytes_moved(self) -> int:
        """The tensors of the arguments, read once: results would come on top."""
        return sum(_size(one) for one in self._tensors())

    @property
    def has_reference(self) -> bool:
        return bool(self.compares_with)

    def _tensors(self) -> list[TensorSpec]:
        positional, keywords = parse_arguments(self.arguments)
        return tensors((*positional, *keywords.values()))

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        import torch

        generator = torch.Generator(device).manual_seed(seed) if values == "random" else None

        def built(value: Any) -> Any:
            return made(value, device, backward=self.backward, generator=generator)

        positional, keywords = parse_arguments(self.arguments)
        return {
            "positional": tuple(map(built, positional)),
            "keywords": {name: built(value) for name, value in keywords.items()},
        }

    def call(self, inputs: Inputs) -> Any:
        return self._run(self.function, inputs)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        import torch
        from torch.utils._pytree import tree_map

        if not self.compares_with:
            raise NotImplementedError(f"{self.title} names no reference in the configuration")

        def cast(value: Any) -> Any:
            is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
            if not is_float or dtype is None:
                return value
            return value.detach().to(getattr(torch, dtype)).requires_grad_(value.requires_grad)

        return self._run(self.compares_with, tree_map(cast, dict(inputs)))

    def _run(self, path: str, inputs: Inputs) -> Any:
        module, _, name = path.partition(":")
        function: Any = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        output = function(*inputs["positional"], **inputs["keywords"])
        return _with_gradients(output, inputs) if self.backward else output


def _with_gradients(output: Any, inputs: Inputs) -> Any:
    """The outputs that a gradient comes from, and the gradients of all tensors with one."""
    import torch
    from torch.utils._pytree import tree_flatten

    def with_gradient(tree: Any) -> list[torch.Tensor]:
        found = tree_flatten(tree)[0]
        return [one for one in found if isinstance(one, torch.Tensor) and one.requires_grad]

    outputs, leaves = with_gradient(output), with_gradient(dict(inputs))
    if not outputs:
        raise ValueError("backward = true: no output depends on a tensor that requires a gradient")
    grads = [torch.ones_like(one) for one in outputs]
    return *outputs, *torch.autograd.grad(outputs, leaves, grads, allow_unused=True)


def _size(tensor: TensorSpec) -> int:
    ending = next((end for end in _BYTES if tensor.dtype.endswith(end)), "")
    each = 1 if tensor.dtype.startswith("float8") else _BYTES.get(ending, 8)
    return each * math.prod(tensor.shape)


def dtype_name(arguments: str) -> str:
    """The dtype that stands for a call: that of its first floating-point tensor, else ``fp32``."""
    positional, keywords = parse_arguments(arguments)
    for value in tensors((*positional, *keywords.values())):
        if value.dtype in _NAMES:
            return _NAMES[value.dtype]
        if value.dtype.startswith("float8"):
            return "fp8"
    return "fp32"

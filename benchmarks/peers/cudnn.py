"""cuDNN's attention through its own frontend, which chooses among more kernels than torch does.

A graph of cuDNN is built once for each form of a call.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Workload

from .layouts import as_asked, heads_first

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Mask:
    """Which keys a query sees: ``causal`` those up to its own, counted from the last of both, and
    of these with a ``window`` so many before it."""

    causal: bool
    window: int
    square: bool

    def options(self, cudnn: Any) -> dict[str, Any]:
        """What the frontend calls it; its left bound counts the query's own key."""
        if not self.causal:
            return {}
        sides = cudnn.diagonal_alignment
        found = {
            "diagonal_alignment": sides.TOP_LEFT if self.square else sides.BOTTOM_RIGHT,
            "diagonal_band_right_bound": 0,
        }
        return found | ({"diagonal_band_left_bound": self.window + 1} if self.window else {})


@dataclass(frozen=True)
class Graph:
    """A graph whose plans are built, its tensors by name, and the bytes that it works in."""

    built: Any
    tensors: dict[str, Any]
    workspace: int

    def __call__(self, memory: dict[str, torch.Tensor]) -> None:
        """Run it on the current stream over the memory of each of its tensors."""
        import torch

        cudnn, handle = _cudnn()
        cudnn.set_stream(handle, torch.cuda.current_stream().cuda_stream)
        workspace = torch.empty(self.workspace, device="cuda", dtype=torch.uint8)
        given = {tensor: memory[name] for name, tensor in self.tensors.items()}
        self.built.execute(given, workspace, handle=handle)


@cache
def _cudnn() -> tuple[Any, Any]:
    """The module, and a handle of this process."""
    cudnn: Any = importlib.import_module("cudnn")
    return cudnn, cudnn.create_handle()


def described(cudnn: Any, made: Any, memory: dict[str, torch.Tensor], names: str) -> dict[str, Any]:
    """The tensors of a graph that are like memory of the same names.

    Args:
        cudnn: The frontend's module.
        made: The graph, of ``pygraph``.
        memory: (batch, heads, rows, head dim) in any strides, by name.
        names: Of those that are described.

    Returns:
        The graph's tensors by name.
    """
    return {
        name: made.tensor(
            name=name,
            dim=list(memory[name].shape),
            stride=list(memory[name].stride()),
            data_type=_dtype(cudnn, memory[name].dtype),
        )
        for name in names.split()
    }


def forward_graph(
    cudnn: Any, memory: dict[str, torch.Tensor], mask: Mask, scale: float, handle: Any = None
) -> tuple[Any, dict[str, Any]]:
    """The graph of a forward pass, not yet planned, and its tensors.

    Args:
        cudnn: The frontend's module.
        memory: ``q``, ``k``, ``v`` and ``out``, and ``lse`` if it is wanted, fp32 (batch, heads,
            rows, 1).
        mask: Of the scores.
        scale: Of the scores.
        handle: Of cuDNN; none to only describe the graph.
    """
    made = _begun(cudnn, memory["q"].dtype, handle)
    tensors = described(cudnn, made, memory, "q k v")
    wanted = "lse" in memory
    out, lse = made.sdpa(
        name="sdpa", **tensors, generate_stats=wanted, attn_scale=scale, **mask.options(cudnn)
    )
    _written(cudnn, out, memory["out"])
    if wanted:
        _written(cudnn, lse, memory["lse"])
    return made, tensors | {"out": out} | ({"lse": lse} if wanted else {})


def backward_graph(
    cudnn: Any, memory: dict[str, torch.Tensor], mask: Mask, scale: float, handle: Any = None
) -> tuple[Any, dict[str, Any]]:
    """The graph of the gradients ``dq``, ``dk`` and ``dv``, as ``forward_graph`` has it."""
    made = _begun(cudnn, memory["q"].dtype, handle)
    tensors = described(cudnn, made, memory, "q k v out dout lse")
    renamed = {"o": "out", "dO": "dout", "stats": "lse"}
    given = {name: tensors[renamed.get(name, name)] for name in ("q", "k", "v", *renamed)}
    gradients = made.sdpa_backward(
        name="sdpa_backward", **given, attn_scale=scale, **mask.options(cudnn)
    )
    for name, gradient in zip(("dq", "dk", "dv"), gradients, strict=True):
        _written(cudnn, gradient, memory[name])
        tensors[name] = gradient
    return made, tensors


def _begun(cudnn: Any, dtype: torch.dtype, handle: Any) -> Any:
    of = cudnn.data_type
    kinds = {"intermediate_data_type": of.FLOAT, "compute_data_type": of.FLOAT}
    given = {} if handle is None else {"handle": handle}
    return cudnn.pygraph(io_data_type=_dtype(cudnn, dtype), **kinds, **given)


def _dtype(cudnn: Any, dtype: torch.dtype) -> Any:
    names = {"torch.bfloat16": "BFLOAT16", "torch.float16": "HALF", "torch.float32": "FLOAT"}
    return getattr(cudnn.data_type, names[str(dtype)])


def _written(cudnn: Any, tensor: Any, memory: torch.Tensor) -> None:
    tensor.set_output(True).set_dim(list(memory.shape)).set_stride(list(memory.stride()))
    tensor.set_data_type(_dtype(cudnn, memory.dtype))


Describe = Callable[..., tuple[Any, dict[str, Any]]]
_planned: dict[object, Graph] = {}


def _graph(describe: Describe, memory: dict[str, torch.Tensor], mask: Mask, scale: float) -> Graph:
    """The graph of a form, whose plans are built at its first call."""
    form = {name: (one.shape, one.stride(), one.dtype) for name, one in memory.items()}
    key = (describe.__name__, tuple(sorted(form.items())), mask, scale)
    if key not in _planned:
        cudnn, handle = _cudnn()
        made, tensors = describe(cudnn, memory, mask, scale, handle)
        made.validate()
        made.build_operation_graph()
        made.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        made.check_support()
        made.build_plans()
        _planned[key] = Graph(made, tensors, max(1, made.get_workspace_size()))
    return _planned[key]


def attention() -> Callable[[Workload, Inputs], Any]:
    """The forward pass, the gradients of inputs whose forward pass is done once, or both."""
    kept: list[Any] = []

    def forward(q: Any, k: Any, v: Any, mask: Mask, scale: float, wanted: bool) -> dict[str, Any]:
        import torch

        batch, heads, rows, _ = q.shape
        out = q.new_empty((batch, rows, heads, v.shape[3])).transpose(1, 2)
        memory = {"q": q, "k": k, "v": v, "out": out}
        if wanted:
            memory["lse"] = q.new_empty((batch, heads, rows, 1), dtype=torch.float32)
        _graph(forward_graph, memory, mask, scale)(memory)
        return memory

    def run(workload: Any, inputs: Inputs) -> Any:
        q, k, v = heads_first(workload, inputs)
        scale, (rows, keys) = q.shape[3] ** -0.5, (q.shape[2], k.shape[2])
        # A single last query sees every key.
        causal = workload.causal and rows > 1
        mask = Mask(causal, getattr(workload, "window", 0), rows == keys)
        if "dout" not in inputs:
            return as_asked(workload, forward(q, k, v, mask, scale, False)["out"])
        if "lse" not in inputs:  # no forward pass was finished before
            memory = forward(q, k, v, mask, scale, True)
        else:
            if not kept or kept[0] is not inputs:
                kept[:] = [inputs, forward(q, k, v, mask, scale, True)]
            memory = kept[1]
        (dout,) = heads_first(workload, inputs, ("dout",))
        made = {f"d{name}": memory[name].new_empty(inputs[name].shape) for name in "qkv"}
        views = dict(zip(made, heads_first(workload, made, tuple(made)), strict=True))
        memory = {**memory, "dout": dout, **views}
        _graph(backward_graph, memory, mask, scale)(memory)
        return tuple(made.values())

    return run

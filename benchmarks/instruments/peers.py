"""Other implementations of the same operations, to stand beside ours: who they are, how to call.

A peer is measured by the same rules as our kernels. A workload of a peer is called
``WORKLOAD @ PEER`` wherever a workload's name is expected.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks import configuration
from benchmarks.instruments import applies
from benchmarks.workloads.base import Inputs, Values, Workload

if TYPE_CHECKING:
    import torch

SEPARATOR = " @ "
OURS = "ours"
# That one process compiles FlexAttention for.
MOST_SHAPES = 1000

Run = Callable[[Workload, Inputs], Any]
Applies = Callable[[Workload], bool]


@dataclass(frozen=True)
class Peer:
    """``run(workload, inputs)`` computes what the workload's kernel computes. ``needs`` is the
    module it comes from; ``applies`` whether it knows this workload; ``compiles`` whether its
    first call takes seconds."""

    name: str
    needs: str
    applies: Applies
    run: Run
    compiles: bool = False

    def refusal(self) -> str | None:
        """Why the peer cannot be had here, in one line."""
        try:
            importlib.import_module(self.needs)
        except Exception as error:  # a half-installed peer may raise anything
            text = str(error).splitlines()[0] if str(error) else "no message"
            return f"{self.name}: import {self.needs}: {type(error).__name__}: {text}"
        return None


@dataclass(frozen=True, kw_only=True)
class PeerWorkload(Workload):
    """A workload whose call is a peer's; all else is the workload's own."""

    base: Workload
    peer: Peer

    @property
    def name(self) -> str:
        return f"{self.base.name}{SEPARATOR}{self.peer.name}"

    @property
    def flops(self) -> int:
        return self.base.flops

    @property
    def bytes_moved(self) -> int:
        return self.base.bytes_moved

    @property
    def tf32(self) -> bool:
        return bool(getattr(self.base, "tf32", False))

    @property
    def missing(self) -> str | None:
        """Why the peer does not stand beside this workload."""
        if not self.peer.applies(self.base):
            return f"{self.peer.name} does not compute {self.base.name}"
        return self.peer.refusal()

    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        return self.base.inputs(device, seed, values)

    def call(self, inputs: Inputs) -> Any:
        return self.peer.run(self.base, inputs)

    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        return self.base.reference(inputs, dtype)


def base_name(name: str) -> str:
    """The workload a peer's workload stands beside."""
    return name.partition(SEPARATOR)[0]


def get(name: str) -> Workload:
    """The workload called ``name``, of a peer if it says so."""
    base_name, separator, peer_name = name.partition(SEPARATOR)
    base: Workload = configuration.workloads().get(base_name)
    if not separator or peer_name == OURS:
        return base
    found = {peer.name: peer for peer in PEERS}.get(peer_name)
    if found is None:
        raise ValueError(f"unknown peer {peer_name!r}: expected one of {' '.join(NAMES)}")
    return of(base, found)


def of(base: Workload, peer: Peer) -> PeerWorkload:
    return PeerWorkload(
        kernel=base.kernel, group=base.group, dtype=base.dtype, base=base, peer=peer
    )


def compiles(name: str) -> bool:
    """Whether the first call of a workload, ours or a peer's, waits for compilers."""
    workload = get(name)
    return not isinstance(workload, PeerWorkload) or workload.peer.compiles


def beside(base: Workload) -> list[PeerWorkload]:
    """Every peer that knows ``base``, whether it can be imported here or not."""
    return [of(base, peer) for peer in PEERS if peer.applies(base)]


def _asks_heads_first(workload: Workload) -> bool:
    return workload.kernel == "scaled_dot_product_attention"


def _heads_first(workload: Any, inputs: Inputs) -> list[torch.Tensor]:
    """(batch, heads, rows, head dim), as torch takes them: views, nothing is copied."""
    tensors = [inputs[name] for name in "qkv"]
    return tensors if _asks_heads_first(workload) else [one.transpose(1, 2) for one in tensors]


def _rows_first(workload: Any, inputs: Inputs) -> list[torch.Tensor]:
    tensors = [inputs[name] for name in "qkv"]
    return [one.transpose(1, 2) for one in tensors] if _asks_heads_first(workload) else tensors


def _as_asked(workload: Any, heads_first: torch.Tensor) -> torch.Tensor:
    return heads_first if _asks_heads_first(workload) else heads_first.transpose(1, 2)


def _with_gradients(forward: Run) -> Run:
    """``forward``, and for a backward workload its gradients alone: the forward pass is done once
    for the inputs and its graph kept."""
    kept: list[Any] = []

    def run(workload: Workload, inputs: Inputs) -> Any:
        if "dout" not in inputs:
            return forward(workload, inputs)
        import torch

        if not kept or kept[0] is not inputs:
            leaves = {name: inputs[name].detach().requires_grad_() for name in "qkv"}
            out = forward(workload, {**inputs, **leaves})
            kept[:] = [inputs, tuple(leaves.values()), out]
        _, wanted, out = kept
        return torch.autograd.grad(out, wanted, inputs["dout"], retain_graph=True)

    return run


def _over_contiguous_keys(forward: Run) -> Run:
    """``forward``, and for a paged cache over a contiguous copy of it, made once for the inputs:
    the peers read no pages. Their time is that of the better layout."""
    kept: list[Any] = []

    def run(workload: Any, inputs: Inputs) -> Any:
        if inputs.get("table") is None:
            return forward(workload, inputs)
        if not kept or kept[0] is not inputs:
            pages = inputs["table"].long()
            rows = {name: inputs[name][pages].flatten(1, 2)[:, : workload.KV] for name in "kv"}
            kept[:] = [inputs, {**inputs, **rows}]
        return forward(workload, kept[1])

    return run


def _sdpa(backend: str) -> Run:
    def run(workload: Any, inputs: Inputs) -> Any:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right

        q, k, v = _heads_first(workload, inputs)
        rows, keys = q.shape[2], k.shape[2]
        # A single last query sees every key; torch's own causal mask is aligned to the first key.
        masked = workload.causal and rows > 1
        with sdpa_kernel(getattr(SDPBackend, backend)):
            out = torch.nn.functional.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=causal_lower_right(rows, keys) if masked and rows != keys else None,
                is_causal=masked and rows == keys,
                enable_gqa=q.shape[1] != k.shape[1],
            )
        return _as_asked(workload, out)

    return run


@cache
def _compiled_flex() -> Callable[..., Any]:
    import torch
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    # From the ninth shape on torch would quietly compute by the formula, all scores in memory.
    torch._dynamo.config.recompile_limit = MOST_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MOST_SHAPES
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False)
    return compiled


@cache
def _causal_blocks(rows: int, columns: int, window: int, device: torch.device) -> Any:
    """Query i sees key i + columns - rows and before it ``window`` keys, or for 0 all."""
    from torch.nn.attention.flex_attention import create_block_mask

    def causal(b: Any, h: Any, row: Any, column: Any) -> Any:
        return row + (columns - rows) >= column

    def windowed(b: Any, h: Any, row: Any, column: Any) -> Any:
        last = row + (columns - rows)
        return (last >= column) & (last - window <= column)

    mask = windowed if window else causal
    return create_block_mask(mask, None, None, rows, columns, device=str(device))


def _flex(workload: Any, inputs: Inputs) -> Any:
    q, k, v = _heads_first(workload, inputs)
    mask = None
    if workload.causal:
        window = getattr(workload, "window", 0)
        mask = _causal_blocks(q.shape[2], k.shape[2], window, q.device)
    out = _compiled_flex()(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return _as_asked(workload, out)


def _flash_attn(module: str) -> Run:
    def run(workload: Any, inputs: Inputs) -> Any:
        found = importlib.import_module(module)
        q, k, v = _rows_first(workload, inputs)
        out = found.flash_attn_func(q, k, v, causal=workload.causal)
        out = out[0] if isinstance(out, tuple) else out
        return out.transpose(1, 2) if _asks_heads_first(workload) else out

    return run


def _cublas(workload: Any, inputs: Inputs) -> Any:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = workload.tf32
    added = inputs["residual"] if "residual" in inputs else inputs.get("bias")
    if added is not None:
        out = torch.addmm(added, inputs["a"], inputs["b"])
    else:
        out = torch.mm(inputs["a"], inputs["b"])
    if workload.activation is not None:
        out = getattr(torch.nn.functional, workload.activation)(out)
    return out


def _cublas_fp8(use_fast_accum: bool) -> Run:
    """The unit that adds fp8 products keeps 14 bits: with ``use_fast_accum`` of the whole sum,
    without of parts, which are added in fp32, as our kernels do it."""

    def run(workload: Any, inputs: Inputs) -> Any:
        import torch

        a_scale, b_scale = inputs["a_scale"], inputs["b_scale"]
        if workload.scales == "rows":
            a_scale, b_scale = a_scale[:, None], b_scale[None, :]
        out = torch._scaled_mm(
            inputs["a"],
            inputs["b"],
            scale_a=a_scale,
            scale_b=b_scale,
            bias=inputs["bias"],
            out_dtype=torch.bfloat16,
            use_fast_accum=use_fast_accum,
        )
        if workload.activation is not None:
            out = getattr(torch.nn.functional, workload.activation)(out)
        return out

    return run


_FLEX = "torch.nn.attention.flex_attention"


def _attention(
    name: str,
    needs: str,
    run: Run,
    knows: Applies = applies.is_flash_shaped,
    *,
    compiles: bool = False,
) -> Peer:
    return Peer(name, needs, knows, _over_contiguous_keys(_with_gradients(run)), compiles)


PEERS: tuple[Peer, ...] = (
    _attention("torch-flash", "torch", _sdpa("FLASH_ATTENTION")),
    _attention("torch-cudnn", "torch", _sdpa("CUDNN_ATTENTION")),
    _attention("torch-efficient", "torch", _sdpa("EFFICIENT_ATTENTION"), applies.is_attention),
    _attention("flex", _FLEX, _flex, applies.is_for_flex, compiles=True),
    _attention("flash_attn", "flash_attn", _flash_attn("flash_attn")),
    _attention("flash_attn.cute", "flash_attn.cute", _flash_attn("flash_attn.cute")),
    Peer("cublas", "torch", applies.is_matmul, _cublas),
    Peer("cublas-fp8", "torch", applies.is_scaled_matmul, _cublas_fp8(use_fast_accum=False)),
    Peer("cublas-fp8-fast", "torch", applies.is_scaled_matmul, _cublas_fp8(use_fast_accum=True)),
)
NAMES = tuple(peer.name for peer in PEERS)

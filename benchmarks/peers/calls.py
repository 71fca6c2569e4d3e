"""How each library is called for what a workload's kernel computes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from warpwatch.workload.base import Inputs, Workload

from . import applies
from .layouts import as_asked, asks_heads_first, heads_first, rows_first

if TYPE_CHECKING:
    import torch

# That one process compiles FlexAttention for.
MOST_SHAPES = 1000

Run = Callable[[Workload, Inputs], Any]


def with_gradients(forward: Run) -> Run:
    """``forward``, and for a backward workload its gradients alone: the forward pass is done once
    for the inputs and its graph kept. A training step does both in every call."""
    kept: list[Any] = []

    def begun(workload: Workload, inputs: Inputs) -> tuple[tuple[torch.Tensor, ...], Any]:
        leaves = {name: inputs[name].detach().requires_grad_() for name in "qkv"}
        return tuple(leaves.values()), forward(workload, {**inputs, **leaves})

    def run(workload: Workload, inputs: Inputs) -> Any:
        if "dout" not in inputs:
            return forward(workload, inputs)
        import torch

        if "lse" not in inputs:  # no forward pass was finished before
            leaves, out = begun(workload, inputs)
            return torch.autograd.grad(out, leaves, inputs["dout"])
        if not kept or kept[0] is not inputs:
            kept[:] = [inputs, *begun(workload, inputs)]
        _, wanted, out = kept
        return torch.autograd.grad(out, wanted, inputs["dout"], retain_graph=True)

    return run


def over_contiguous_keys(forward: Run) -> Run:
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


def sdpa(backend: str) -> Run:
    def run(workload: Any, inputs: Inputs) -> Any:
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.attention.bias import causal_lower_right

        q, k, v = heads_first(workload, inputs)
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
        return as_asked(workload, out)

    return run


@cache
def compiled_flex() -> Callable[..., Any]:
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


def flex(workload: Any, inputs: Inputs) -> Any:
    q, k, v = heads_first(workload, inputs)
    mask = None
    if workload.causal:
        window = getattr(workload, "window", 0)
        mask = _causal_blocks(q.shape[2], k.shape[2], window, q.device)
    out = compiled_flex()(q, k, v, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
    return as_asked(workload, out)


def flash_attn(module: str) -> Run:
    """The interface that the libraries of FlashAttention share."""

    def run(workload: Any, inputs: Inputs) -> Any:
        found = importlib.import_module(module)
        if "cu" in inputs:
            ends, longest = inputs["cu"], max(workload.lengths)
            tensors = [inputs[name] for name in "qkv"]
            lengths = {"cu_seqlens_q": ends, "cu_seqlens_k": ends}
            longest_of = {"max_seqlen_q": longest, "max_seqlen_k": longest}
            out = found.flash_attn_varlen_func(
                *tensors, **lengths, **longest_of, causal=workload.causal
            )
            return out[0] if isinstance(out, tuple) else out
        q, k, v = rows_first(workload, inputs)
        window = getattr(workload, "window", 0)
        options = {"window_size": (window, 0)} if window else {}
        out = found.flash_attn_func(q, k, v, causal=workload.causal, **options)
        out = out[0] if isinstance(out, tuple) else out
        return out.transpose(1, 2) if asks_heads_first(workload) else out

    return run


def lacks_flash_attention_2(workload: Any) -> str | None:
    """FlashAttention-4 comes as a part of the same package, without what is at its top."""
    there = hasattr(importlib.import_module("flash_attn"), "flash_attn_func")
    return None if there else "flash_attn has no flash_attn_func; try pip install flash-attn"


def flash_attn_3(workload: Any, inputs: Inputs) -> Any:
    """FlashAttention-3's own interface; it reads pages of a cache, and its lengths, as they are."""
    found = importlib.import_module("flash_attn_interface")
    if "q_scale" in inputs:
        of_heads = (workload.B, workload.kv_heads)
        scales = {f"{name}_descale": inputs[f"{name}_scale"].expand(of_heads) for name in "qkv"}
        q, k, v = (inputs[name] for name in "qkv")
        out = found.flash_attn_func(q, k, v, causal=workload.causal, **scales)
        return out[0] if isinstance(out, tuple) else out
    if "seqlens" not in inputs:
        return flash_attn("flash_attn_interface")(workload, inputs)
    q, k, v = rows_first(workload, inputs)
    return found.flash_attn_with_kvcache(
        q,
        k,
        v,
        cache_seqlens=inputs["seqlens"],
        page_table=inputs["table"],
        causal=workload.causal,
    )


def lacks_gradients(workload: Any) -> str | None:
    """FlashAttention-3 is also built without its backward pass."""
    if not applies.takes_gradients(workload):
        return None
    import torch

    built = hasattr(torch.ops.flash_attn_3, "bwd") and not _is_switched_off("BACKWARD")
    return None if built else "this build has no backward pass"


def _is_switched_off(part: str) -> bool:
    """Whether a build of FlashAttention-3 says that it was made without ``part``."""
    try:
        flags = importlib.import_module("flash_attn_config").CONFIG["build_flags"]
    except (ImportError, AttributeError, KeyError):
        return False
    return bool(flags.get(f"FLASHATTENTION_DISABLE_{part}", False))


def quack(workload: Any, inputs: Inputs) -> Any:
    gemm = importlib.import_module("quack.gemm_interface").gemm
    return gemm(inputs["a"], inputs["b"], bias=inputs.get("bias"), tuned=False)


def cublas(workload: Any, inputs: Inputs) -> Any:
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


def lacks_scales_of_blocks(workload: Any) -> str | None:
    """cuBLAS has them from CUDA 12.9 on, on Hopper alone. It counts blocks along K in fours, and
    torch 2.11 refuses rows of scales that are filled up to that."""
    if workload.scales != "blocks":
        return None
    import torch

    built = torch.version.cuda
    if built is None or tuple(map(int, built.split(".")[:2])) < (12, 9):
        return f"scales of blocks need a torch of CUDA 12.9 or later, got {built or 'none'}"
    if torch.cuda.get_device_capability()[0] != 9:
        return f"scales of blocks need a Hopper GPU, got {torch.cuda.get_device_name()}"
    if workload.K % 512:
        return f"scales of blocks need a K of whole 512, got {workload.K}"
    return None


def over_turned_scales(forward: Run) -> Run:
    """``forward``, and for scales of blocks over copies as cuBLAS reads them, column by column,
    made once for the inputs."""
    kept: list[Any] = []

    def run(workload: Any, inputs: Inputs) -> Any:
        if workload.scales != "blocks":
            return forward(workload, inputs)
        if not kept or kept[0] is not inputs:
            names = ("a_scale", "b_scale")
            turned = {name: inputs[name].t().contiguous().t() for name in names}
            kept[:] = [inputs, {**inputs, **turned}]
        return forward(workload, kept[1])

    return run


def cublas_fp8(use_fast_accum: bool) -> Run:
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


def grouped(workload: Any, inputs: Inputs) -> Any:
    """torch's grouped product. It counts the ends of groups, we where each begins as well."""
    import torch

    ends = inputs["offsets"][1:]
    if workload.weights:
        return torch._grouped_mm(inputs["a"].t(), inputs["dout"], offs=ends)
    return torch._grouped_mm(inputs["a"], inputs["b"], offs=ends)

"""Other implementations of what our kernels compute: who they are, and for what."""

from __future__ import annotations

from warpwatch.instruments.peers.registry import Applies, Lacks, Peer, Run

from . import applies, calls, cudnn

_FLEX = "torch.nn.attention.flex_attention"


def _attention(
    name: str,
    needs: str,
    run: Run,
    knows: Applies = applies.is_for_torch,
    *,
    lacks: Lacks = lambda workload: None,
    compiles: bool = False,
    install: str = "",
) -> Peer:
    called = calls.over_contiguous_keys(calls.with_gradients(run))
    return Peer(name, needs, knows, called, compiles, lacks, install)


PEERS: tuple[Peer, ...] = (
    _attention("torch-flash", "torch", calls.sdpa("FLASH_ATTENTION")),
    _attention("torch-cudnn", "torch", calls.sdpa("CUDNN_ATTENTION")),
    _attention(
        "torch-efficient",
        "torch",
        calls.sdpa("EFFICIENT_ATTENTION"),
        applies.is_for_efficient,
    ),
    _attention("flex", _FLEX, calls.flex, applies.is_for_flex, compiles=True),
    _attention(
        "flash_attn",
        "flash_attn",
        calls.flash_attn("flash_attn"),
        applies.is_for_flash_attention,
        lacks=calls.lacks_flash_attention_2,
        install="pip install flash-attn, which needs nvcc",
    ),
    Peer(
        "flash_attn_3",
        "flash_attn_interface",
        applies.is_for_flash_attention_3,
        calls.with_gradients(calls.flash_attn_3),
        lacks=calls.lacks_gradients,
        install="pip install --pre tokenspeed-fa3",
    ),
    _attention(
        "flash_attn.cute",
        "flash_attn.cute",
        calls.flash_attn("flash_attn.cute"),
        applies.is_for_flash_attention,
        install="pip install --pre flash-attn-4",
    ),
    Peer(
        "cudnn-frontend",
        "cudnn",
        applies.is_for_cudnn,
        calls.over_contiguous_keys(cudnn.attention()),
        compiles=True,
        install="pip install nvidia-cudnn-frontend",
    ),
    Peer("cublas", "torch", applies.is_matmul, calls.cublas),
    Peer(
        "quack",
        "quack",
        applies.is_for_quack,
        calls.quack,
        install="pip install quack-kernels",
    ),
    Peer("torch-grouped", "torch", applies.is_grouped, calls.grouped),
    Peer(
        "cublas-fp8",
        "torch",
        applies.is_scaled_matmul,
        calls.over_turned_scales(calls.cublas_fp8(use_fast_accum=False)),
        lacks=calls.lacks_scales_of_blocks,
    ),
    Peer(
        "cublas-fp8-fast",
        "torch",
        applies.is_scaled_at_the_end,
        calls.cublas_fp8(use_fast_accum=True),
    ),
)

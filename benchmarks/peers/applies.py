"""Which workloads a peer computes: by what they ask for beyond the plain formula."""

from __future__ import annotations

from typing import Any

from warpwatch.workload.base import Workload


def _is_plain(workload: Workload, *attributes: str) -> bool:
    """Asks the kernel for no more than its plain formula: a window or a residual are arguments
    most peers are not given."""
    return all(hasattr(workload, name) for name in attributes) and not workload.needs


def is_plain_attention(workload: Any) -> bool:
    """Each query sees a key: the peers give what they like where one sees none."""
    plain = _is_plain(workload, "causal", "D", "S", "keys")
    return plain and (not workload.causal or workload.keys >= workload.S)


def is_decoding(workload: Any) -> bool:
    """Over a cache in the dtype of the queries to which nothing is written."""
    return _is_plain(workload, "page", "KV", "S")


def is_attention(workload: Any) -> bool:
    return is_plain_attention(workload) or is_decoding(workload)


def is_for_efficient(workload: Any) -> bool:
    """torch's memory-efficient backend has no kernel whose query heads share a key head."""
    return is_attention(workload) and workload.G in (0, workload.H)


def is_flash_shaped(workload: Any) -> bool:
    return is_attention(workload) and workload.D <= 256 and workload.dtype != "fp32"


def is_training(workload: Any) -> bool:
    """Both passes in one call. Peers know no other gradients than those with the rounding of the
    output: their answer is checked as every other."""
    return bool(workload.needs == ("exact_gradients",)) and workload.D <= 256


def is_for_torch(workload: Any) -> bool:
    """What torch's fused backends compute."""
    return is_flash_shaped(workload) or is_training(workload)


def is_windowed(workload: Any) -> bool:
    """Causal with a window, each query seeing a key, values as wide as keys."""
    windowed = workload.needs == ("window_size",) and workload.causal
    return bool(windowed and workload.keys >= workload.S and not workload.DV) and workload.D <= 256


def is_packed(workload: Any) -> bool:
    """Sequences of several lengths in one row of tokens."""
    return _is_plain(workload, "pack", "lengths")


def is_for_flash_attention(workload: Any) -> bool:
    """What the libraries of FlashAttention compute in 16 bits."""
    return is_for_torch(workload) or is_windowed(workload) or is_packed(workload)


def is_for_cudnn(workload: Any) -> bool:
    """What cuDNN computes in 16 bits; of packed sequences it wants other forms of their lengths."""
    return is_for_torch(workload) or is_windowed(workload)


def is_fp8_attention(workload: Any) -> bool:
    """One scale a tensor, no window."""
    return bool(workload.needs == ("q_scale",)) and not workload.DV


def is_for_flash_attention_3(workload: Any) -> bool:
    return is_for_flash_attention(workload) or is_fp8_attention(workload)


def takes_gradients(workload: Any) -> bool:
    """Whether the call ends with gradients."""
    backward = workload.kernel.endswith("_backward") or getattr(workload, "backward", False)
    return bool(backward) or is_training(workload)


def is_for_flex(workload: Any) -> bool:
    """Of the peers only Flex is given windows: torch's backends compute none without all scores'
    mask in memory."""
    return is_flash_shaped(workload) or is_windowed(workload)


def is_matmul(workload: Any) -> bool:
    """A residual is the sum that cuBLAS adds to, alone: behind a bias or an activation it is
    another launch."""
    added = workload.needs == ("residual",) and not (workload.bias or workload.activation)
    return _is_plain(workload, "M", "N", "K") or added


def is_for_quack(workload: Any) -> bool:
    """Its own tiles, which it takes without a search, are those of 16-bit products."""
    plain = is_matmul(workload) and workload.needs == () and workload.activation is None
    return plain and workload.dtype in ("fp16", "bf16")


def is_scaled_matmul(workload: Any) -> bool:
    """fp8 along K on both sides: what cuBLAS multiplies on every GPU that has fp8."""
    return workload.needs == ("a_scale",) and bool(workload.layout == "nt")


def is_scaled_at_the_end(workload: Any) -> bool:
    """Scales of blocks multiply the sum of each block of K, so that no sum can be longer."""
    return is_scaled_matmul(workload) and bool(workload.scales != "blocks")


def is_grouped(workload: Any) -> bool:
    """Rows over a matrix each group, or the gradient of those matrices."""
    return _is_plain(workload, "groups", "offsets")

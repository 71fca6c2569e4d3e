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


def is_flash_shaped(workload: Any) -> bool:
    return is_attention(workload) and workload.D <= 256 and workload.dtype != "fp32"


def is_for_flex(workload: Any) -> bool:
    """Of the peers only Flex is given windows: torch's backends compute none without all scores'
    mask in memory."""
    windowed = workload.needs == ("window_size",) and workload.causal
    sees_keys = windowed and workload.keys >= workload.S and not workload.DV
    return is_flash_shaped(workload) or (sees_keys and workload.D <= 256)


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

"""Whether there is a GPU, asked without importing torch: what a process that forks may know."""

from __future__ import annotations

import os
from pathlib import Path

_NODES = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))


def has_gpu() -> bool:
    """A driver's device node is there and its devices are not hidden."""
    hidden = {os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")}
    return not hidden & {"", "-1"} and any(node.exists() for node in _NODES)

"""The architectures that are compiled for, and the device each is judged on by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Target:
    """An architecture Triton compiles for.

    ``arch`` is what Triton's ``GPUTarget`` takes: the compute capability times ten for CUDA, the
    gfx name for HIP. ``device`` names the datasheet (a file of ``warpwatch/devices``) whose
    units, clocks and bandwidth the bound of this target is computed with.
    """

    name: str
    backend: Literal["cuda", "hip"]
    arch: int | str
    warp_size: int
    device: str


TARGETS: tuple[Target, ...] = (
    Target("sm_80", "cuda", 80, 32, "a100"),
    Target("sm_90", "cuda", 90, 32, "h200"),
    Target("sm_100", "cuda", 100, 32, "b200"),
    Target("gfx90a", "hip", "gfx90a", 64, "mi250x"),
    Target("gfx942", "hip", "gfx942", 64, "mi300x"),
    Target("gfx950", "hip", "gfx950", 64, "mi355x"),
)


def get(name: str) -> Target:
    """The target called ``name``; ``ValueError`` names the known ones."""
    for target in TARGETS:
        if target.name == name:
            return target
    known = " ".join(target.name for target in TARGETS)
    raise ValueError(f"unknown target {name!r}: expected one of {known}")

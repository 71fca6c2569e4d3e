"""The architectures that are compiled for, and the device each is judged on by default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .tritons import OLDEST, numbers


@dataclass(frozen=True)
class Target:
    """An architecture Triton compiles for.

    Attributes:
        name: As users write it, such as ``sm_90``.
        backend: Which of Triton's backends compiles for it.
        arch: What Triton's ``GPUTarget`` takes: the compute capability times ten for CUDA, the gfx
            name for HIP.
        warp_size: Threads of a warp or wave.
        device: The datasheet, a file of ``warpwatch/devices``, whose units, clocks and bandwidth
            the bound of this target is computed with.
        since: The first Triton that compiles for it.
        multiplies_since: The first Triton that makes its matrix instructions.
        by_default: Whether it is compiled for where nobody names targets.
    """

    name: str
    backend: Literal["cuda", "hip"]
    arch: int | str
    warp_size: int
    device: str
    since: tuple[int, int] = OLDEST
    multiplies_since: tuple[int, int] = OLDEST
    by_default: bool = True

    def mistake(self, triton: str) -> str:
        """Say whether a Triton does not know this target.

        Args:
            triton: Its version, such as ``3.6.0``.

        Returns:
            One line that names the first that does; empty where this one does.

        Example:
            >>> get("sm_103").mistake("3.5.1")
            'triton 3.5.1 does not know sm_103: expected 3.6 or later'
        """
        if numbers(triton) >= self.since:
            return ""
        return (
            f"triton {triton} does not know {self.name}: expected {_written(self.since)} or later"
        )

    def remedy(self, triton: str) -> str:
        """What to do where a Triton made no matrix instruction of this target."""
        if numbers(triton) < self.multiplies_since:
            return f"compile with triton {_written(self.multiplies_since)} or later"
        return "give tl.dot blocks of 16 or more on each side, in a dtype that the units take"


KNOWN: tuple[Target, ...] = (
    Target("sm_80", "cuda", 80, 32, "a100"),
    Target("sm_90", "cuda", 90, 32, "h200"),
    Target("sm_100", "cuda", 100, 32, "b200"),
    Target("sm_103", "cuda", 103, 32, "b300", since=(3, 6), by_default=False),
    Target("sm_120", "cuda", 120, 32, "rtx5090", by_default=False),
    Target("gfx90a", "hip", "gfx90a", 64, "mi250x"),
    Target("gfx942", "hip", "gfx942", 64, "mi300x"),
    Target("gfx950", "hip", "gfx950", 64, "mi355x"),
    Target("gfx1201", "hip", "gfx1201", 32, "rx9070xt", by_default=False),
    Target("gfx1250", "hip", "gfx1250", 32, "mi455x", (3, 6), (3, 7), by_default=False),
)
# What is compiled for by default, in modules of users too. Each target takes as long as another, so
# the others are for those who name them.
TARGETS: tuple[Target, ...] = tuple(target for target in KNOWN if target.by_default)


def get(name: str) -> Target:
    """The target called ``name``; ``ValueError`` names the known ones."""
    for target in KNOWN:
        if target.name == name:
            return target
    raise ValueError(f"unknown target {name!r}: expected one of {choices()}")


def choices() -> str:
    """The names of all targets as a message lists them, those compiled for by default first.

    Example:
        >>> choices().partition(", ")[0]
        'sm_80 sm_90 sm_100 gfx90a gfx942 gfx950 (the default ones)'
    """
    others = " ".join(target.name for target in KNOWN if not target.by_default)
    defaults = " ".join(target.name for target in TARGETS)
    return f"{defaults} (the default ones), {others} (where named)"


def _written(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))

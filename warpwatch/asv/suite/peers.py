"""asv's benchmarks of peers: code that no commit of the project changes.

A peer that moves is a canary: the machine, its driver or its clocks changed. Its metrics are
evidence therefore, never a verdict on a commit.
"""

from __future__ import annotations

from typing import Any

from warpwatch.session.commit import peers_measured

from . import measured

_ONLY = ("latency_cold", "peak_share", "tensor_pipe")


def classes(module: str) -> dict[str, type[measured.Measured]]:
    """Make the benchmark classes of the peers that this run measures.

    Args:
        module: The name of asv's module that the classes are to belong to.

    Returns:
        One class a kernel by its name; none where the project has no canaries, unless
        ``WARPWATCH_GPU_SET=peers`` measures every peer.
    """
    made = measured.classes(module, peers_measured(), _ONLY)
    for one in made.values():
        for metric in _ONLY:
            track: Any = vars(one)[f"track_{metric}"]
            track.role = "evidence"
    return made

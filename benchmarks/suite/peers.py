"""asv's view of the peers: code that no commit of ours changes.

A peer that moves is a canary: the machine, its driver or its clocks changed. Its metrics are
evidence therefore, never a verdict on a commit.
"""

from __future__ import annotations

from typing import Any

from benchmarks.instruments import commit

_ONLY = ("latency_cold", "peak_share", "tensor_pipe")


def _as_evidence(made: dict[str, type[commit.Measured]]) -> dict[str, type[commit.Measured]]:
    for one in made.values():
        for metric in _ONLY:
            track: Any = vars(one)[f"track_{metric}"]
            track.role = "evidence"
    return made


globals().update(_as_evidence(commit.classes(__name__, commit.canaries(), _ONLY)))

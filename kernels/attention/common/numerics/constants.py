"""Constants of the softmax that kernels share."""

from __future__ import annotations

LOG2_E = 1.4426950408889634

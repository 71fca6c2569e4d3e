"""Constants of the softmax that kernels share: on the host, and in a kernel's exponents."""

from __future__ import annotations

import triton.language as tl

LOG2_E = 1.4426950408889634
# What makes an exponent of e one of 2, and a logarithm in base 2 one in base e.
TO_BASE_2 = tl.constexpr(LOG2_E)
TO_BASE_E = tl.constexpr(0.6931471805599453)

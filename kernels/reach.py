"""Which tiles span more elements than 32 bits count.

Offsets within a tile are products of 32 bits, since Triton passes strides below 2^31 so: the last
rows of a tile may lie further.
"""

from __future__ import annotations

LIMIT = 1 << 31
# No tile has a longer side: with smaller strides none spans as much.
LONGEST = 256
SMALL = LIMIT // (2 * LONGEST)

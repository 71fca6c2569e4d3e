"""How Hopper's matrix unit adds products of fp8: not in fp32.

It adds 32 products and the sum so far at once, and of each term drops what is below 2^-13 of the
largest sum of two factors' exponents, a subnormal's being the smallest, or of the exponent of the
sum so far; of the sum it keeps 13 binary places after the first (:func:`unit_scores`). That last
cut is most of what head dims up to 32 lose, where there is one addition: seven log-sum-exps'
largest errors on an H200 were 6.506e-4, 7.638e-4, 7.20e-5, 6.21e-5, 2.592e-4, 1.885e-4 and
1.644e-4, and are here 6.506e-4, 7.635e-4, 7.27e-5, 6.22e-5, 2.593e-4, 1.883e-4 and 1.642e-4;
without it 1.7e-4, 2.2e-4, 1.5e-5, 1.3e-5, 4.2e-5, 6.2e-5 and 2.6e-5 (seeds 63000449, 455, 881, 883,
885, 886 and 887 of tools/kernels/random_configurations.py; what remains is fp32).
"""

from __future__ import annotations

import torch

UNIT_ADDS, UNIT_KEEPS = 32, 13  # products at once on Hopper, binary places of the largest
SMALLEST_E4M3FN, TINY = 2.0**-6, 2.0**-100  # that is no subnormal; in the place of a sum of 0


def unit_scores(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(rows, keys) products of q (rows, D) and k (keys, D), added as Hopper's unit adds fp8."""
    found = q.new_zeros(len(q), len(k))
    place_q, place_k = (_power(one, SMALLEST_E4M3FN) for one in (q, k))
    at_once = max(1, (1 << 24) // max(1, len(k) * UNIT_ADDS))
    for i in range(0, len(q), at_once):
        rows, total = slice(i, i + at_once), found[i : i + at_once]
        for j in range(0, q.shape[1], UNIT_ADDS):
            columns = slice(j, j + UNIT_ADDS)
            terms = q[rows, None, columns] * k[None, :, columns]
            places = place_q[rows, None, columns] * place_k[None, :, columns] * (terms != 0.0)
            largest = torch.maximum(places.amax(-1), _power(total, TINY))
            added = _cut(terms, largest[..., None]).sum(-1) + _cut(total, largest)
            total.copy_(_cut(added, _power(added, TINY)))
    return found


def _power(values: torch.Tensor, smallest: float) -> torch.Tensor:
    """The power of 2 in each, or the ``smallest`` there is."""
    return torch.exp2(torch.floor(torch.log2(values.abs().clamp_min(smallest))))


def _cut(values: torch.Tensor, power: torch.Tensor) -> torch.Tensor:
    """Without what is below 2^-13 of ``power``."""
    place = power * 2.0**-UNIT_KEEPS
    return torch.trunc(values / place) * place

"""Which launches a backward pass needs, and how they are cut: decided before any of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from kernels.attention.common.numerics.exactness import sums_over_keys, sums_over_rows
from kernels.attention.common.packed.sequences import describable_as
from kernels.attention.common.problem import Given, Problem
from kernels.attention.portable.tuning.choose import Asked, choose_backward, measured
from kernels.attention.portable.tuning.plain import DELTA_APART, BackwardConfig
from kernels.runtime.targets import Target

# The first rows of a causal problem see as few. Their weights are near 1, where the rounding of out
# in delta is all in the scores' gradients: in a bias's, that of rows which saw under 64 keys was up
# to 1.8 times what it may be, next to a bias that hid a third of them.
EARLY_KEYS = 64


@dataclass(frozen=True)
class Plan:
    """With ``finds_far`` a launch finds rows of scores far from 0, and all launches come a second
    time for these, exactly. ``delta_alone`` sums up delta by a launch of its own,
    ``row_blocks`` blocks of a head's rows have what is exact, and with ``with_delta`` the queries'
    kernel finds delta. It then writes it in blocks of ``padded`` rows, unless that is 0. ``wide``
    is the type of what kernels keep in fp64 where they add in it."""

    config: BackwardConfig
    exact: bool
    finds_far: bool
    delta_alone: bool
    row_blocks: int
    with_delta: bool
    padded: int
    marked: bool
    tma: bool
    branch: bool
    ordered: bool
    wide: torch.dtype

    @property
    def launches(self) -> tuple[str, ...]:
        """In their order; those of far rows follow."""
        first = (("delta", self.delta_alone), ("rows", self.row_blocks > 0))
        return (*(name for name, needed in first if needed), "queries", "keys")


def plan(
    target: Target,
    problem: Problem,
    given: Given,
    *,
    bias_grad: bool,
    corrected: bool,
    far: bool = False,
) -> Plan:
    """The plan of a problem on ``target``, from shapes, strides and options only.

    Args:
        target: The architecture.
        problem: What is differentiated.
        given: The other tensors of the pass.
        bias_grad: The bias's gradient is wanted.
        corrected: Rows of one heavy weight have their delta (portable/backward/heavy_rows.py).
        far: The pass is that of far rows only.
    """
    options, mask = problem.options, problem.mask
    seqlen_q, seqlen_k = problem.lengths
    dtype, bias, widest = problem.q.dtype, options.bias, max(problem.head_dims)
    # Summed over the keys of a row, a bias's gradient vanishes but for dlse.
    over_keys = bias_grad and sums_over_keys(bias, seqlen_k)
    # Summed over queries, the rounding of out in delta adds up, which dp's does not.
    over_rows = bias_grad and sums_over_rows(bias, seqlen_q)
    exact = problem.is_exact or over_keys or far
    corrected = corrected and not exact
    packed = problem.packed is not None
    fits = describable_as(problem.packed, problem.q, problem.k, problem.v, given.dout)
    fits = fits and (measured(target, *problem.head_dims) or not packed)
    alone = None
    if mask.left is None and not bias_grad:
        alone = options.alone_in_gradients(problem.scores)
    asked = Asked.of(target, problem, fits, alone)
    config = choose_backward(target, widest, dtype, asked, exact=exact)
    # The queries' kernel comes first and finds delta, where its registers were seen to suffice.
    less = corrected or given.dlse is not None
    apart = less and widest > DELTA_APART.get(target.name, 256)
    with_delta = options.plain and not (exact or asked.other or apart)
    # Then it writes what the weights of rows are made of in whole blocks, which need no masks.
    # Rows of a batch that fill blocks need none either, and four bytes each instead of eight.
    own, walked = config.q.block_m, config.kv.block_m
    uneven = packed or seqlen_q % walked != 0
    padded = walked if with_delta and uneven and own % walked == 0 else 0
    row_blocks = triton.cdiv(seqlen_q, own)
    if not exact:
        early = seqlen_q if over_rows else 0
        if mask.causal and not packed and not options.plain:
            early = max(early, EARLY_KEYS - mask.offset)
        row_blocks = min(row_blocks, triton.cdiv(early, own))
    masked = mask.causal or mask.left is not None or bias is not None
    return Plan(
        config,
        exact,
        finds_far=bias is not None and bias.dtype != torch.bool and not exact,
        delta_alone=not (exact or with_delta or over_rows),
        row_blocks=row_blocks,
        with_delta=with_delta,
        padded=padded,
        marked=corrected,
        tma=config.tma and fits,
        branch=options.block_mask is None and masked,
        # Where the place of a block decides how long it takes, and registers were seen to suffice.
        ordered=mask.causal and mask.left is None and options.plain and not exact,
        wide=torch.float64 if dtype == torch.float32 and target.adds_fp64 else torch.float32,
    )

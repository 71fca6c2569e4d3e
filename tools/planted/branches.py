"""The branches on which defects and harmless changes are planted, and what the gate must say.

Edits that stand on one branch touch different kernels, so that each workload meets one of them.
"""

from __future__ import annotations

from tools.planted import attention, matmul
from tools.planted.plants import Branch

BRANCHES = (
    Branch(
        "counters",
        True,
        (
            attention.causal_not_skipped,
            matmul.l2_unfriendly,
            attention.masking_every_block,
            attention.exp_for_exp2,
            attention.split_off,
            matmul.stages_lost,
            matmul.smaller_tile,
        ),
    ),
    Branch(
        "time-1",
        False,
        (
            attention.extra_copy,
            matmul.second_launch,
            attention.spilling_tile,
            attention.halved_blocks,
            matmul.lost_tma,
            attention.tidy_fp8_attention,
            attention.tidy_backward,
        ),
    ),
    Branch(
        "time-2",
        False,
        (
            attention.scratch,
            matmul.fp16_accumulation,
            matmul.lost_wgmma,
            matmul.tidy_grouped,
            matmul.tidy_fp8_matmul,
            attention.host_sync,
        ),
    ),
    Branch(
        "subtle",
        True,
        (
            attention.heads_beyond_l2,
            attention.start_offset_lost,
            attention.fewer_parts,
            attention.query_stage_lost,
            matmul.fewer_rows_together,
            matmul.scales_asked_late,
        ),
    ),
    Branch(
        # With two subtle ones more, whose kernels others of their branch change.
        "harmless",
        True,
        (
            attention.tidy_combine,
            attention.told_fp8_softmax,
            matmul.tidy_tf32,
            matmul.tidy_fp8_blocks,
            attention.weights_converted_back,
            attention.rows_scaled_twice,
        ),
    ),
)

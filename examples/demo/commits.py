"""The demo's history, oldest first: planted changes among harmless ones."""

from __future__ import annotations

from . import harmless, planted
from .story import Commit

COMMITS: tuple[Commit, ...] = (
    harmless.comments,
    harmless.moved_file,
    planted.extra_copy,
    harmless.renamed_kernel,
    planted.fused_norm,
    harmless.docstrings,
    harmless.readme,
    planted.halved_blocks,
    harmless.new_kernel,
    harmless.extracted_helper,
    planted.serialised_wgmma,
    harmless.renamed_constant,
    planted.copy_removed,
    harmless.reordered_arguments,
    planted.lost_tma,
    harmless.factored_offsets,
    planted.spilling_tile,
    harmless.type_hints,
    planted.lost_wgmma,
    harmless.checked_shapes,
    harmless.renamed_variables,
    harmless.moved_gpu,
    planted.causal_not_skipped,
    harmless.another_gpu,
    planted.second_launch,
    harmless.keyword_arguments,
    planted.spill_on_one_amd,
    planted.does_not_fit,
)

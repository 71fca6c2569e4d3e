"""Which functions of public files are run, with which arguments, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

HOPPER, BLACKWELL = "sm_90", "sm_100"
BOTH = (HOPPER, BLACKWELL)


@dataclass(frozen=True)
class Case:
    """``function`` of a ``file``, called on ``targets`` with the ``arguments`` of its module.

    ``known`` is the kind of fault that the kernel has as it is published, and ``why`` it is one.
    """

    file: str
    function: str
    arguments: Callable[[Any], tuple[Any, ...]]
    targets: tuple[str, ...] = BOTH
    known: str = ""
    why: str = ""

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.file}: {self.function}"


def _knobs(module: Any) -> Any:
    """A fixture that sets switches of the compiler."""
    return mock.MagicMock()


LAST_PROLOGUE = (
    "the last prologue copies operands of a tile that there is not, and the program ends while "
    "they are on their way"
)
CASES = (
    Case("03-async-copy.py", "test_elementwise_add_cpasync", lambda m: (64, 80, 32, 32)),
    Case("03-async-copy.py", "test_elementwise_add_pipelined", lambda m: (64, 200, 32, 64, 2)),
    Case("04-tma.py", "test_memcpy_1d_tma", lambda m: (64, 200)),
    Case("04-tma.py", "test_elementwise_add_pipelined", lambda m: (64, 300, 32, 64, 2)),
    Case("05-wgmma.py", "test_small_mma", lambda m: (64, 32, 32, False, 16, 4), (HOPPER,)),
    Case(
        "05-wgmma.py",
        "test_blocked_matmul",
        lambda m: (80, 80, 160, 64, 64, 64, True, 4),
        (HOPPER,),
    ),
    Case(
        "05-wgmma.py",
        "test_blocked_matmul_pipelined",
        lambda m: (80, 80, 304, 64, 64, 64, 4),
        (HOPPER,),
    ),
    Case("06-tcgen05.py", "test_small_mma", lambda m: (128, 64, 64, True, True, 4), (BLACKWELL,)),
    Case(
        "06-tcgen05.py",
        "test_blocked_matmul",
        lambda m: (80, 80, 160, 64, 64, 64, True, 4),
        (BLACKWELL,),
    ),
    Case(
        "06-tcgen05.py",
        "test_blocked_matmul_pipelined",
        lambda m: (80, 160, 304, 64, 64, 64, 4),
        (BLACKWELL,),
    ),
    Case("07-persistence.py", "test_pipelined_matmul", lambda m: (80, 80, 304, 64, 64, 64, 3, 4)),
    Case(
        "07-persistence.py",
        "test_persistent_matmul",
        lambda m: (208, 208, 304, 64, 64, 64, 3, 4, m.schedulers[0]),
    ),
    Case(
        "07-persistence.py",
        "test_persistent_matmul_pipelined",
        lambda m: (208, 208, 304, 64, 64, 64, 3, 4, m.schedulers[1]),
        BOTH,
        "copy in flight at the end",
        LAST_PROLOGUE,
    ),
    Case(
        "08-warp-specialization.py",
        "test_elementwise_add_warp_specialized",
        lambda m: (64, 300, 32, 64, 2, 2, 4),
    ),
    Case(
        "08-warp-specialization.py",
        "test_matmul_warp_specialized",
        lambda m: (208, 416, 304, 128, 256, 64, 2, 4, 4, m.t7.schedulers[0]),
        (BLACKWELL,),
    ),
    Case(
        "08-warp-specialization.py",
        "test_matmul_warp_specialized",
        lambda m: (1200, 416, 80, 128, 256, 64, 2, 4, 4, m.t7.schedulers[0]),
        (BLACKWELL,),
        "deadlock",
        "the epilogue hands back the accumulator after the one that it read; if it does so before "
        "the products ask for that one, they wait for a phase that only they could bring about",
    ),
    Case(
        "09-tma-gather-scatter.py",
        "test_async_gather",
        lambda m: (8, 16, 48, m.torch.bfloat16, 64, 64, _knobs(m)),
        (BLACKWELL,),
    ),
    Case(
        "09-tma-gather-scatter.py",
        "test_async_scatter",
        lambda m: (8, 16, 48, m.torch.bfloat16, 64, 64, _knobs(m)),
        (BLACKWELL,),
    ),
    Case(
        "09-tma-gather-scatter.py",
        "test_matmul_fused_gather_scatter",
        lambda m: (256, 256, 320, 128, 128, 64, 3),
        (BLACKWELL,),
        "copy in flight at the end",
        LAST_PROLOGUE,
    ),
    Case(
        "10-tcgen05-copy.py",
        "test_matmul_accumulate",
        lambda m: (256, 640, 128, 128, 128, 64, 3, m.torch.float16),
        (BLACKWELL,),
    ),
    Case(
        "11-tcgen05-mma-scaled.py",
        "test_simple_mma_scaled",
        lambda m: (128, 64, 256, "mxfp8", "mxfp4", 64, 128),
        (BLACKWELL,),
    ),
    Case(
        "11-tcgen05-mma-scaled.py",
        "test_mma_scaled_tcgen05_copy",
        lambda m: (128, 128, 512, "nvfp4", "nvfp4", 128, 256),
        (BLACKWELL,),
    ),
    Case(
        "11-tcgen05-mma-scaled.py",
        "test_mma_scaled_pipelined",
        lambda m: (640, 256, 128, "mxfp8", "mxfp8", m.mma_scaled_pipelined_kernel),
        (BLACKWELL,),
        "product in flight at the end",
        "scales are copied to tensor memory for a product that is not made, and nothing waits",
    ),
    Case(
        "11-tcgen05-mma-scaled.py",
        "test_mma_scaled_pipelined",
        lambda m: (128, 256, 640, "mxfp8", "mxfp8", m.mma_scaled_pipelined_kernel),
        (BLACKWELL,),
        "deadlock",
        "one barrier counts two products that are on their way; if both are done before the wait "
        "for the first of them looks, it waits for a third",
    ),
    Case(
        "11-tcgen05-mma-scaled.py",
        "test_mma_scaled_pipelined",
        lambda m: (1280, 256, 640, "mxfp4", "mxfp4", m.mma_scaled_warp_specialized_kernel),
        (BLACKWELL,),
    ),
    Case(
        "test_core.py",
        "test_tma_mma_shared_inputs",
        lambda m: ([4, 1], [1, 1, 1], [2, 1], False, True),
    ),
    Case(
        "test_core.py",
        "test_tma_mma_shared_inputs",
        lambda m: ([4, 1], [1, 1, 1], [2, 1], True, True),
        (BLACKWELL,),
    ),
)

# Why a planted fault is not found: by file, function and text.
ONE_TILE = "nothing is wrong: every program has one tile, and uses each accumulator once"
EXPLAINED = {
    (
        "08-warp-specialization.py",
        "matmul_mma_partition",
        "no mbarrier.wait(acc_empty_bars.index(acc_state.index), acc_state.phase)",
    ): ONE_TILE,
    (
        "08-warp-specialization.py",
        "matmul_epilogue_partition",
        "no mbarrier.arrive(acc_empty_bars.index(acc_state.index), count=1)",
    ): ONE_TILE,
    (
        "08-warp-specialization.py",
        "compute_partition",
        "no fence_async_shared()",
    ): "it is between a read and a copy over it, where the simulator asks for no fence",
}

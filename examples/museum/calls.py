"""Exhibits whose call became worse: more work, more launches, or launches that are refused."""

from __future__ import annotations

from .case import Case, Edit
from .edits import BOTH, LOOP, NVIDIA, TRITON, tile

_MASK = "o_m[:, None] >= (n + o_n)[None, :], b_s"
_WINDOW = Edit(
    _MASK,
    "(o_m[:, None] >= (n + o_n)[None, :]) & (o_m[:, None] < (n + o_n + 256)[None, :]), b_s",
)
_KEYS = "for n in range(0, last, BLOCK_N):"
_GATED = "    return gated(x, gate)"
_IN_A_WIDER_ROW = Edit(
    _GATED,
    '    wide = torch.empty((ROWS, 2 * D), dtype=torch.float16, device="cuda")\n'
    "    return gated(wide[:, :D], gate)",
)

_WORK = (
    Case(
        "causal-not-skipped",
        "keys that no query sees are multiplied and masked",
        "https://github.com/vllm-project/vllm/pull/20308",
        "attention.py",
        BOTH,
        BOTH,
        r"bound_us",
        (Edit(_KEYS, "for n in range(0, length, BLOCK_N):"),),
    ),
    Case(
        "window-not-bounded",
        "a window masks keys that the loop still reads",
        "https://github.com/sgl-project/sglang/pull/34462",
        "attention.py",
        BOTH,
        BOTH,
        r"bound_us",
        (_WINDOW,),
        (
            _WINDOW,
            Edit(
                _KEYS,
                "first = tl.maximum(i_m * BLOCK_M - 256, 0) // BLOCK_N * BLOCK_N\n"
                "    for n in range(first, last, BLOCK_N):",
            ),
        ),
    ),
    Case(
        "default-tile",
        "no tuned configuration is found, and the default is a small tile",
        "https://github.com/vllm-project/vllm/pull/34846",
        "product.py",
        BOTH,
        BOTH,
        r"bound_us",
        (tile(BLOCK_M=16, BLOCK_N=16),),
    ),
)

_LAUNCHES = (
    Case(
        "zeros-for-empty",
        "an output is filled with zeros before it is written",
        "https://github.com/vllm-project/vllm/pull/28182",
        "product.py",
        BOTH,
        BOTH,
        r"launches 1 -> 2",
        (Edit("c = torch.empty(", "c = torch.zeros("),),
    ),
    Case(
        "extra-contiguous",
        "an operand is copied that the kernel could read where it lies",
        "https://github.com/sgl-project/sglang/pull/5953",
        "gate.py",
        BOTH,
        BOTH,
        r"copied_bytes",
        (
            _IN_A_WIDER_ROW,
            Edit("    y = torch.empty((ROWS", "    x = x.contiguous()\n    y = torch.empty((ROWS"),
        ),
        (_IN_A_WIDER_ROW,),
    ),
    Case(
        "zeros-like",
        "memory like another tensor's is filled before a kernel writes all of it",
        "https://github.com/linkedin/Liger-Kernel/pull/217",
        "norm.py",
        BOTH,
        BOTH,
        r"torch runs aten.zeros_like 0 -> 1",
        (
            Edit(
                "torch.empty(x.shape, dtype=x.dtype, device=x.device)",
                "torch.zeros_like(x)",
            ),
        ),
        (
            Edit(
                "torch.empty(x.shape, dtype=x.dtype, device=x.device)",
                "torch.empty_like(x)",
            ),
        ),
    ),
    Case(
        "transposed-copy",
        "a transposed view is made contiguous before the kernel",
        "https://github.com/sgl-project/sglang/pull/20469",
        "norm.py",
        BOTH,
        BOTH,
        r"copied_bytes",
        (
            Edit(
                'x = torch.empty((ROWS, D), dtype=torch.float16, device="cuda")',
                'x = torch.empty((D, ROWS), dtype=torch.float16, device="cuda").t().contiguous()',
            ),
        ),
    ),
    Case(
        "staged-output",
        "results are staged and copied where they could be written at once",
        "https://github.com/flagos-ai/FlagGems/pull/5632",
        "norm.py",
        BOTH,
        BOTH,
        r"copied_bytes",
        (Edit("    return y\n", "    return torch.empty_like(y).copy_(y)\n"),),
    ),
    Case(
        "second-kernel",
        "a fused kernel falls apart: its input is read twice",
        "https://github.com/ServiceNow/Fast-LLM/pull/546",
        "norm.py",
        BOTH,
        BOTH,
        r"launches 1 -> 2",
        (
            Edit(
                "@triton.jit\ndef norm_kernel(x, weight, y, eps",
                """@triton.jit
def squares_kernel(x, squares, D: tl.constexpr):
    i = tl.program_id(0)
    b_x = tl.load(x + i * D + tl.arange(0, D)).to(tl.float32)
    tl.store(squares + i, tl.sum(b_x * b_x, 0))


@triton.jit
def norm_kernel(x, weight, squares, y, eps""",
            ),
            Edit("tl.sum(b_x * b_x, 0) / D", "tl.load(squares + i) / D"),
            Edit(
                "    norm_kernel[(ROWS,)](x, weight, y, eps",
                """    squares = torch.empty((ROWS,), dtype=torch.float32, device=x.device)
    squares_kernel[(ROWS,)](x, squares, D, num_warps=WARPS)
    norm_kernel[(ROWS,)](x, weight, squares, y, eps""",
            ),
        ),
    ),
)

_REFUSED = (
    Case(
        "tensor-on-the-host",
        "a tensor that host code made without naming a device: every card refuses the launch",
        "https://github.com/pytorch/torchtitan/issues/1225",
        "norm.py",
        BOTH,
        BOTH,
        r"launch refused: weight lies on the host",
        (
            Edit(
                'weight = torch.empty((D,), dtype=torch.float16, device="cuda")',
                "weight = torch.empty((D,), dtype=torch.float16)",
            ),
        ),
    ),
    Case(
        "configuration-does-not-compile",
        "one configuration of a table is refused by the compiler",
        f"{TRITON}/issues/5609",
        "product.py",
        BOTH,
        BOTH,
        r"product_kernel: ",
        (tile(BLOCK_K=48),),
    ),
    Case(
        "specialised-warps",
        "specialised warps in a loop of pointers: no code on Hopper, no pipeline on Ampere",
        f"{TRITON}/issues/9728",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"PassManager::run failed|async_copy_level 1 -> 0",
        (Edit(LOOP, "for k in tl.range(0, K, BLOCK_K, warp_specialize=True):"),),
    ),
)

_HARD_TO_SEE = (
    Case(
        "narrow-loads",
        "a stride that 16 does not divide: each thread loads two bytes at a time",
        f"{TRITON}/pull/10389",
        "gate.py",
        BOTH,
        BOTH,
        r"global_instructions",
        (
            Edit(
                _GATED,
                '    wide = torch.empty((ROWS, D + 1), dtype=torch.float16, device="cuda")\n'
                "    return gated(wide[:, :D], gate)",
            ),
        ),
    ),
    Case(
        "order-of-tiles",
        "tiles in the order of rows: L2 serves fewer of them",
        f"{TRITON}/issues/4766",
        "product.py",
        BOTH,
        BOTH,
        r"L2",
        (Edit('"GROUP": 8', '"GROUP": 1'),),
        missed="no L2 is modelled",
    ),
    Case(
        "descriptor-and-reduction",
        "Triton 3.6 spreads a reduction over lanes after a descriptor's load",
        f"{TRITON}/issues/9703",
        "described.py",
        ("sm_90",),
        ("sm_90",),
        r"shuffles|barriers",
        tritons=("3.5.1", "3.6.0"),
        missed="no latency of shuffles is modelled",
    ),
)

CASES = (*_WORK, *_LAUNCHES, *_REFUSED, *_HARD_TO_SEE)

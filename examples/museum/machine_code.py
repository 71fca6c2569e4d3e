"""Exhibits whose machine code became worse: slower instructions, fewer blocks, spills."""

from __future__ import annotations

from .case import Case, Edit
from .edits import BOTH, LOOP, NVIDIA, TRITON, tile

_LOADS = """        b_a = tl.load(a + o_m[:, None] * stride_a + (k + o_k)[None, :])
        b_b = tl.load(b + (k + o_k)[:, None] * stride_b + o_n[None, :])
"""
_DOT = "tl.dot(b_a, b_b, b_c)"
_A = 'a = torch.empty((M, K), dtype=torch.float16, device="cuda")'
_B = 'b = torch.empty((K, N), dtype=torch.float16, device="cuda")'
_HEADS = "HEADS, LENGTH, D = 16, 2048, 64"


def _in_fp32(precision: str) -> tuple[Edit, ...]:
    """The product of fp32, in a precision."""
    return (
        Edit(_DOT, f'tl.dot(b_a, b_b, b_c, input_precision="{precision}")'),
        *(Edit(one, one.replace("float16", "float32")) for one in (_A, _B)),
    )


_WIDE_HEADS = Edit(_HEADS, "HEADS, LENGTH, D = 16, 2048, 256")
_SHORT = Edit("M, N, K = 2048, 2048, 1024", "M, N, K = 2048, 2048, 256")
_LARGE_TILE = tile(BLOCK_M=128, BLOCK_N=128)
_SMALL = tile(BLOCK_M=32, BLOCK_N=32, BLOCK_K=256, num_warps=1)
_LONG_ROWS = Edit("ROWS, D = 4096, 4096", "ROWS, D = 4096, 16384")

_MATRIX_UNITS = (
    Case(
        "wgmma-lost",
        "too few warps for its instruction: a product leaves wgmma",
        f"{TRITON}/issues/4758",
        "product.py",
        NVIDIA,
        ("sm_90",),
        r"tensor_core_level 2 -> 1",
        (tile(num_warps=2),),
    ),
    Case(
        "upcast-before-dot",
        "operands become fp32 before they are multiplied",
        f"{TRITON}/issues/10176",
        "product.py",
        BOTH,
        BOTH,
        r"bound_us",
        (_LARGE_TILE, Edit(_DOT, "tl.dot(b_a.to(tl.float32), b_b.to(tl.float32), b_c)")),
        (_LARGE_TILE,),
    ),
    Case(
        "fp32-without-tensor-cores",
        "a product in fp32 leaves the tensor cores",
        f"{TRITON}/issues/2491",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"tensor_core_level \d -> 0",
        _in_fp32("ieee"),
        _in_fp32("tf32"),
    ),
    Case(
        "wgmma-serialised",
        "wgmma waits for registers: the assembler advises against its own code",
        "https://github.com/NVIDIA/cutlass/issues/1840",
        "product.py",
        ("sm_90",),
        ("sm_90",),
        r"advisories|C75\d\d",
        (tile(BLOCK_M=128, BLOCK_N=256),),
    ),
    Case(
        "small-product",
        "a small product by plain arithmetic takes all registers",
        f"{TRITON}/issues/5572",
        "product.py",
        ("sm_90",),
        ("sm_90",),
        r"spilled_bytes",
        (_SMALL, *_in_fp32("ieee")),
        (_SMALL, *_in_fp32("tf32")),
    ),
)

_PIPELINES = (
    Case(
        "branch-in-loop",
        "a branch that is the same in every iteration turns pipelining off",
        f"{TRITON}/pull/11222",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"async_copy_level 1 -> 0",
        (
            Edit(
                _LOADS,
                """        if stride_a >= K:
            b_a = tl.load(a + o_m[:, None] * stride_a + (k + o_k)[None, :])
            b_b = tl.load(b + (k + o_k)[:, None] * stride_b + o_n[None, :])
        else:
            b_a = tl.load(b + o_m[:, None] * stride_a + (k + o_k)[None, :])
            b_b = tl.load(a + (k + o_k)[:, None] * stride_b + o_n[None, :])
""",
            ),
        ),
    ),
    Case(
        "rows-out-of-step",
        "rows of odd length are not copied asynchronously any more",
        f"{TRITON}/issues/4684",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"async_copy_level 1 -> 0",
        (
            Edit(_A, _A.replace("(M, K)", "(M, K + 1)") + "[:, :K]"),
            Edit(_B, _B.replace("(K, N)", "(K, N + 1)") + "[:, :N]"),
        ),
    ),
    Case(
        "unrolled-loop",
        "an unrolled loop is no loop that could be pipelined",
        f"{TRITON}/issues/4377",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"async_copy_level 1 -> 0",
        (Edit(LOOP, "for k in tl.static_range(0, 256, BLOCK_K):"), _SHORT),
        (_SHORT,),
    ),
)

_SHARED = (
    Case(
        "tf32x3-shared",
        "Triton 3.8 keeps three times the shared memory for tf32x3",
        f"{TRITON}/issues/11526",
        "threefold.py",
        ("sm_80",),
        ("sm_80",),
        r"shared memory",
        tritons=("3.7.1", "3.8.0"),
    ),
    Case(
        "stages-over-the-limit",
        "stages of a softmax do not fit an A100",
        f"{TRITON}/pull/3920",
        "softmax.py",
        ("sm_80",),
        ("sm_80",),
        r"bytes of shared memory a block, a100 has",
        (Edit("STAGES = 2", "STAGES = 7"),),
    ),
    Case(
        "tile-over-the-limit",
        "a tile that larger cards take does not fit an A100",
        f"{TRITON}/issues/7268",
        "product.py",
        ("sm_80",),
        ("sm_80",),
        r"bytes of shared memory a block, a100 has",
        (tile(BLOCK_K=128, num_stages=7),),
        (tile(BLOCK_K=128, num_stages=5),),
    ),
    Case(
        "fewer-blocks",
        "deeper stages leave room for fewer blocks",
        "https://github.com/NVIDIA/cutlass/issues/854",
        "attention.py",
        NVIDIA,
        NVIDIA,
        r"blocks_in_flight",
        (Edit('"num_stages": 2', '"num_stages": 5'),),
        missed="faster by prediction on sm_90, and on an H200, too",
    ),
)

_REGISTERS = (
    Case(
        "warps-inverted",
        "a tuned number of warps became the wrong one: registers spill",
        f"{TRITON}/issues/11373",
        "attention.py",
        NVIDIA,
        NVIDIA,
        r"spilled_bytes",
        (_WIDE_HEADS, Edit('"num_warps": 4', '"num_warps": 2')),
        (_WIDE_HEADS, Edit('"num_warps": 4', '"num_warps": 8')),
    ),
    Case(
        "gradient-spills",
        "rows that outgrew their registers: the gradient of a layer norm spills",
        "https://github.com/linkedin/Liger-Kernel/issues/801",
        "gradient.py",
        NVIDIA,
        NVIDIA,
        r"spilled_bytes",
        (Edit("WARPS = 16", "WARPS = 1"),),
    ),
    Case(
        "reduction-warps",
        "one warp for a long row: registers spill",
        "https://github.com/pytorch/pytorch/pull/113039",
        "norm.py",
        ("sm_90",),
        ("sm_90",),
        r"spilled_bytes",
        (_LONG_ROWS, Edit("WARPS = 8", "WARPS = 1")),
        (_LONG_ROWS,),
    ),
    Case(
        "waves-asked",
        "more waves than registers allow, on AMD only: a shipped configuration spills",
        "https://github.com/ROCm/aiter/pull/5137",
        "product.py",
        ("sm_90", "gfx942", "gfx950"),
        ("gfx942", "gfx950"),
        r"spilled_bytes",
        (
            _LARGE_TILE,
            Edit("**TILE)\n    return c", "**TILE, **AMD)\n    return c"),
            Edit(
                "\n\n\n@triton.jit",
                '\nAMD = {"waves_per_eu": 8} if torch.version.hip else {}\n\n\n@triton.jit',
            ),
        ),
        (_LARGE_TILE,),
    ),
    Case(
        "tile-on-amd",
        "a tile of keys that is tuned for another architecture does not fit these",
        "https://github.com/sgl-project/sglang/pull/34741",
        "attention.py",
        ("gfx942", "gfx950"),
        ("gfx942", "gfx950"),
        r"launch refused: \d+ bytes of shared memory|spilled_bytes",
        (_WIDE_HEADS, Edit('"BLOCK_N": 64', '"BLOCK_N": 256')),
        (_WIDE_HEADS, Edit('"BLOCK_N": 64', '"BLOCK_N": 32')),
    ),
    Case(
        "expert-weights",
        "the same tile spills under Triton 3.8",
        "https://github.com/AMD-AGI/Primus-Turbo/pull/471",
        "weights.py",
        ("gfx942",),
        ("gfx942",),
        r"spilled_bytes",
        tritons=("3.7.1", "3.8.0"),
    ),
)

CASES = (*_MATRIX_UNITS, *_PIPELINES, *_SHARED, *_REGISTERS)

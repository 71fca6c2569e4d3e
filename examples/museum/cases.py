"""The exhibits, by what became worse."""

from __future__ import annotations

import re

from .case import Case, Edit

TRITON = "https://github.com/triton-lang/triton"
NVIDIA = ("sm_80", "sm_90")
BOTH = ("sm_90", "gfx942")

_TILE = '"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8, "num_warps": 4, "num_stages": 3'
_LOADS = """        b_a = tl.load(a + o_m[:, None] * stride_a + (k + o_k)[None, :])
        b_b = tl.load(b + (k + o_k)[:, None] * stride_b + o_n[None, :])
"""
_DOT = "tl.dot(b_a, b_b, b_c)"
_LOOP = "for k in range(0, K, BLOCK_K):"
_A = 'a = torch.empty((M, K), dtype=torch.float16, device="cuda")'
_B = 'b = torch.empty((K, N), dtype=torch.float16, device="cuda")'
_HEADS = "HEADS, LENGTH, D = 16, 2048, 64"


def _tile(**values: int) -> Edit:
    """The tile of the product, with other values."""
    text = _TILE
    for name, value in values.items():
        text = re.sub(rf'"{name}": \d+', f'"{name}": {value}', text)
    return Edit(_TILE, text)


def _in_fp32(precision: str) -> tuple[Edit, ...]:
    """The product of fp32, in a precision."""
    return (
        Edit(_DOT, f'tl.dot(b_a, b_b, b_c, input_precision="{precision}")'),
        *(Edit(one, one.replace("float16", "float32")) for one in (_A, _B)),
    )


_WIDE_HEADS = Edit(_HEADS, "HEADS, LENGTH, D = 16, 2048, 256")
_SHORT = Edit("M, N, K = 2048, 2048, 1024", "M, N, K = 2048, 2048, 256")
_LARGE_TILE = _tile(BLOCK_M=128, BLOCK_N=128)
_SMALL = _tile(BLOCK_M=16, BLOCK_N=16, BLOCK_K=256, num_warps=1)
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
        (_tile(num_warps=2),),
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
        (_tile(BLOCK_M=128, BLOCK_N=256),),
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
        (Edit(_LOOP, "for k in tl.static_range(0, 256, BLOCK_K):"), _SHORT),
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
        (_tile(BLOCK_K=128, num_stages=7),),
        (_tile(BLOCK_K=128, num_stages=5),),
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
        "a tile of keys that is too wide for one architecture spills there",
        "https://github.com/sgl-project/sglang/pull/34741",
        "attention.py",
        ("gfx942", "gfx950"),
        ("gfx942", "gfx950"),
        r"spilled_bytes",
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
        (_tile(BLOCK_M=16, BLOCK_N=16),),
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
        (_tile(BLOCK_K=48),),
    ),
    Case(
        "specialised-warps",
        "specialised warps in a loop of pointers: no code on Hopper, no pipeline on Ampere",
        f"{TRITON}/issues/9728",
        "product.py",
        NVIDIA,
        NVIDIA,
        r"PassManager::run failed|async_copy_level 1 -> 0",
        (Edit(_LOOP, "for k in tl.range(0, K, BLOCK_K, warp_specialize=True):"),),
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
        r"shared",
        tritons=("3.5.1", "3.6.0"),
    ),
)

CASES: tuple[Case, ...] = (
    *_MATRIX_UNITS,
    *_PIPELINES,
    *_SHARED,
    *_REGISTERS,
    *_WORK,
    *_LAUNCHES,
    *_REFUSED,
    *_HARD_TO_SEE,
)

"""The commits that change what a kernel costs, each with what the report must say about it."""

from __future__ import annotations

from .story import Commit, Edit, Planted

ATTENTION = "demokernels/attention.py"
ALL = ("sm_80", "sm_90", "gfx90a", "gfx942")
NVIDIA = ("sm_80", "sm_90")
HOPPER = ("sm_90",)
BOTH = ("sm_90", "gfx942")  # what norm and linear are compiled for

fused_norm = Commit(
    "rms_norm reads its input once",
    (
        Edit(
            "demokernels/rows/norm.py",
            """@triton.jit
def square_sum_kernel(x, sums, D: tl.constexpr):
    i_row = tl.program_id(0)
    b_x = tl.load(x + i_row * D + tl.arange(0, D)).to(tl.float32)
    tl.store(sums + i_row, tl.sum(b_x * b_x, 0))


@triton.jit
def scale_kernel(x, weight, sums, y, eps, D: tl.constexpr):
""",
            """@triton.jit
def norm_kernel(x, weight, y, eps, D: tl.constexpr):
""",
        ),
        Edit(
            "demokernels/rows/norm.py",
            "    rms = tl.rsqrt(tl.load(sums + i_row) / D + eps)\n",
            "    rms = tl.rsqrt(tl.sum(b_x * b_x, 0) / D + eps)\n",
        ),
        Edit(
            "demokernels/rows/norm.py",
            """    sums = torch.empty((rows,), dtype=torch.float32, device=x.device)
    square_sum_kernel[(rows,)](x, sums, D, num_warps=8)
    scale_kernel[(rows,)](x, weight, sums, y, eps, D, num_warps=8)
""",
            """    norm_kernel[(rows,)](x, weight, y, eps, D, num_warps=8)
""",
        ),
    ),
    Planted(
        "improved",
        "norm",
        "fewer launches",
        {"launches": BOTH, "bound_us": BOTH},
    ),
)

extra_copy = Commit(
    "attention hands the kernel contiguous heads",
    (
        Edit(
            ATTENTION,
            "    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)\n",
            """    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    # (batch, heads, seqlen, head_dim): the rows of a head lie together.
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
""",
        ),
    ),
    Planted(
        "regressed",
        "attention",
        "extra copy",
        {"copied_bytes": ALL, "launches": ALL, "bound_us": ALL},
    ),
)

copy_removed = Commit(
    "attention reads heads where they lie",
    (
        Edit(
            ATTENTION,
            """    # (batch, heads, seqlen, head_dim): the rows of a head lie together.
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
""",
            "",
        ),
    ),
    Planted(
        "improved",
        "attention",
        "copy removed",
        {"copied_bytes": ALL, "launches": ALL, "bound_us": ALL},
    ),
)

causal_not_skipped = Commit(
    "attention leaves the causal limit to the mask alone",
    (
        Edit(
            ATTENTION,
            """    # A row sees no key after itself: later blocks of keys are not read.
    last = tl.minimum((i_m + 1) * BLOCK_M, seqlen)
    for start in range(0, last, BLOCK_N):
""",
            "    for start in range(0, seqlen, BLOCK_N):\n",
        ),
    ),
    Planted("regressed", "attention", "more work", {"bound_us": ALL}),
)

spill_on_one_amd = Commit(
    "attention: a larger tile for MI300",
    (
        Edit(
            ATTENTION,
            '"gfx942": {"BLOCK_M": 128, "BLOCK_N": 64,',
            '"gfx942": {"BLOCK_M": 256, "BLOCK_N": 128,',
        ),
    ),
    Planted("regressed", "attention", "spill", {"spilled_bytes": ("gfx942",)}),
)

spilling_tile = Commit(
    "gated_mlp: a larger tile on Hopper reads the weights less often",
    (
        Edit(
            "demokernels/gated.py",
            '"sm_90": {"BLOCK_M": 64, "BLOCK_N": 64,',
            '"sm_90": {"BLOCK_M": 128, "BLOCK_N": 128,',
        ),
    ),
    Planted(
        "regressed",
        "gated_mlp",
        "spill",
        # What spills passes the first cache, which becomes the busiest unit.
        {
            "spilled_bytes": HOPPER,
            "advisories": HOPPER,
            "blocks_in_flight": HOPPER,
            "bound_us": HOPPER,
        },
    ),
)

halved_blocks = Commit(
    "linear: a deeper pipeline where TMA fills it",
    (
        Edit(
            "demokernels/linear.py",
            "num_stages=3 if tma else 2",
            "num_stages=4 if tma else 2",
        ),
    ),
    Planted("regressed", "linear", "fewer blocks", {"blocks_in_flight": HOPPER}),
)

lost_tma = Commit(
    "linear: one way to load on every GPU",
    (
        Edit(
            "demokernels/linear.py",
            """        if TMA:
            b_x = x.load([i_m * BLOCK_M, k])
            b_w = w.load([k, i_n * BLOCK_N])
        else:
            b_x = tl.load(x + o_m[:, None] * K + (k + o_k)[None, :])
            b_w = tl.load(w + (k + o_k)[:, None] * N + o_n[None, :])
""",
            """        b_x = tl.load(x + o_m[:, None] * K + (k + o_k)[None, :])
        b_w = tl.load(w + (k + o_k)[:, None] * N + o_n[None, :])
""",
        ),
        Edit("demokernels/linear.py", "    TMA: tl.constexpr,\n", ""),
        Edit("demokernels/linear.py", "        TMA=tma,\n", ""),
        Edit(
            "demokernels/linear.py",
            """    if tma:
        x = TensorDescriptor.from_tensor(x, [BLOCK_M, BLOCK_K])
        w = TensorDescriptor.from_tensor(w, [BLOCK_K, BLOCK_N])
""",
            "",
        ),
        Edit(
            "demokernels/linear.py",
            "from triton.tools.tensor_descriptor import TensorDescriptor\n",
            "",
        ),
    ),
    Planted("regressed", "linear", "TMA", {"async_copy_level": HOPPER}),
)

second_launch = Commit(
    "linear: gelu is a kernel of its own, so that others can use it",
    (
        Edit(
            "demokernels/linear.py",
            "    b_y = gelu(b_y)\n",
            "",
        ),
        Edit(
            "demokernels/linear.py",
            "def linear(x, w, bias):\n",
            '''@triton.jit
def gelu_kernel(x, BLOCK: tl.constexpr):
    """In place."""
    o_x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    b_x = tl.load(x + o_x).to(tl.float32)
    tl.store(x + o_x, gelu(b_x).to(x.dtype.element_ty))


def linear(x, w, bias):
''',
        ),
        Edit(
            "demokernels/linear.py",
            "    return y\n",
            "    gelu_kernel[(M * N // 1024,)](y, BLOCK=1024)\n    return y\n",
        ),
    ),
    Planted(
        "regressed",
        "linear",
        "more launches",
        {"launches": BOTH, "bound_us": BOTH},
    ),
)

lost_wgmma = Commit(
    "logits: multiply in fp32 for accuracy",
    (
        Edit(
            "demokernels/logits.py",
            "tl.dot(b_x, b_w, b_out)",
            "tl.dot(b_x.to(tl.float32), b_w.to(tl.float32), b_out, input_precision='ieee')",
        ),
    ),
    Planted(
        "regressed",
        "logits",
        "tensor-core",
        {
            # AMD multiplies fp32 on its matrix cores too, at a fourth of the rate or less.
            "tensor_core_level": NVIDIA,
            "bound_us": ALL,
            "blocks_in_flight": NVIDIA,
        },
    ),
)

serialised_wgmma = Commit(
    "matmul: the loop runs as often as K says",
    (
        Edit(
            "demokernels/matmul.py",
            """    # At least one step: ptxas then knows that the accumulator is written.
    for _ in range(tl.maximum(tl.cdiv(K, BLOCK_K), 1)):
""",
            "    for _ in range(tl.cdiv(K, BLOCK_K)):\n",
        ),
    ),
    Planted("regressed", "matmul", "serialised", {"advisories": HOPPER}),
)

does_not_fit = Commit(
    "matmul: six stages on Ampere",
    (
        Edit(
            "demokernels/matmul.py",
            '"BLOCK_K": 32, "num_warps": 4, "num_stages": 4}',
            '"BLOCK_K": 64, "num_warps": 4, "num_stages": 7}',
        ),
    ),
    Planted("regressed", "matmul", "compile", {"compile_failures": ("sm_80",)}),
)

"""Defects and harmless changes planted in matmul: text edits of kernels and their launches."""

from __future__ import annotations

from examples.demo.story import Edit
from tools.planted.plants import TIME, Plant

LARGE_MATMUL = "matmul-fp16-8192x8192x8192"
WIDE_MATMUL = "matmul-bf16-4096x28672x4096-nt"
GELU = "matmul-fp16-2048x2048x2048-bias-gelu"
SKINNY = "matmul-bf16-16x4096x4096-nt"
TF32 = "matmul-fp32-2048x2048x2048-tf32"
FP8_MATMUL = "matmul-fp8-4096x4096x4096-nt-tensor"
GROUPED = "matmul-grouped-bf16-8192x14336x4096-G8"
RESIDUAL = "matmul-bf16-4096x4096x14336-nt-residual"
SQUARE = "matmul-fp16-4096x4096x4096"
FP8_ROWS = "matmul-fp8-4096x14336x4096-nt-rows"
FP8_BLOCKS = "matmul-fp8-4096x7168x2048-nt-blocks"

l2_unfriendly = Plant(
    "l2-unfriendly-order",
    "matmul on Hopper spreads neighbouring tiles over the matrix",
    WIDE_MATMUL,
    (
        Edit(
            "kernels/matmul/hopper/persistent.py",
            "        n_tiles_m = self.rows_of_tiles()\n        n_tiles_n",
            "        n_tiles_m = self.rows_of_tiles()\n"
            "        i_tile = i_tile * 997 % self.tiles()\n        n_tiles_n",
        ),
    ),
    "more memory traffic",
    TIME,
)

stages_lost = Plant(
    "pipeline-stages-lost",
    "matmul of tf32 needs less shared memory",
    TF32,
    (
        # All its tiles run at once: the order of them that another plant changes is nothing to it.
        Edit(
            "kernels/matmul/hopper/tf32/launch.py",
            "WIDE = HopperConfig(consumers=2, block_n=256, block_k=32, stages=4, store_n=32)\n",
            "WIDE = HopperConfig(consumers=2, block_n=256, block_k=32, stages=2, store_n=32)\n",
        ),
    ),
    "latency is no longer hidden",
    TIME,
)

smaller_tile = Plant(
    "smaller-tile",
    "grouped_matmul: tiles of 64 rows waste less at the ends of groups",
    GROUPED,
    (
        Edit(
            "kernels/matmul/common/tuning.py",
            '("sm_90", "16-bit"): (C(128, 128, 64, 8, 4), C(64, 64, 64, 4, 4)),',
            '("sm_90", "16-bit"): (C(64, 64, 64, 4, 4),),',
        ),
    ),
    "more instructions",
    TIME,
)

second_launch = Plant(
    "second-launch",
    "matmul on Hopper leaves gelu to torch",
    GELU,
    (
        Edit(
            "kernels/matmul/operators/dense.py",
            "        if not backends.specialised(name, product):\n"
            "            portable.launch(product, allow_tf32)\n",
            "        if not backends.specialised(name, Product(a, b, out, bias)):\n"
            "            portable.launch(product, allow_tf32)\n"
            "        elif activation:\n"
            "            out.copy_(getattr(torch.nn.functional, activation)(out))\n",
        ),
    ),
    "launches a call instead of",
    ("launches", *TIME),
)

lost_tma = Plant(
    "tma-lost",
    "matmul adds residuals in portable Triton, which loads its largest tiles in one way everywhere",
    RESIDUAL,
    (
        # No large tile but fp8's is the portable kernel's on Hopper otherwise.
        Edit(
            "kernels/matmul/operators/dense.py",
            "            return one_row.launch(product, row)\n",
            "            return one_row.launch(product, row)\n"
            "        if residual is not None:\n"
            "            return portable.launch(product)\n",
        ),
        Edit(
            "kernels/matmul/common/tuning.py",
            '    ("sm_90", "16-bit"): (\n        C(128, 256, 64, 8, 4, tma=True),\n',
            '    ("sm_90", "16-bit"): (\n        C(128, 256, 64, 8, 4),\n',
        ),
    ),
    "copies to shared memory wait",
    ("async_copy_level", *TIME),
)

fp16_accumulation = Plant(
    "fp16-accumulation",
    "matmul on Hopper accumulates in the operands' dtype",
    LARGE_MATMUL,
    (
        Edit(
            "kernels/matmul/hopper/persistent.py",
            "    acc = gl.zeros([problem.ROWS, WIDTH], gl.float32, LAYOUT)\n",
            "    acc = gl.zeros([problem.ROWS, WIDTH], ring.a.dtype, LAYOUT)\n",
        ),
    ),
    "relative error",
    ("relative_error", "latency_cold"),
)

lost_wgmma = Plant(
    "wgmma-lost",
    "matmul multiplies in fp32 for accuracy",
    SKINNY,
    (
        # Of a plain product of few rows on Hopper nothing is the portable kernel's otherwise.
        Edit(
            "kernels/matmul/hopper/launch.py",
            " or by_shape(M, N, K, processors) in FEW)\n",
            ")\n",
        ),
        Edit(
            "kernels/matmul/portable/kernel.py",
            "            b_c = add_product(b_c, b_a, b_b)\n",
            "            b_c = tl.dot(\n"
            "                b_a.to(tl.float32), b_b.to(tl.float32), b_c, "
            "input_precision=PRECISION\n"
            "            )\n",
        ),
    ),
    "a slower flavour of tensor-core instruction",
    ("tensor_core_level", *TIME),
)

# Each is to cost 1 to 5 %.
fewer_rows_together = Plant(
    "fewer-rows-together",
    "matmul on Hopper walks the widest tiles row by row",
    SQUARE,
    (
        # A turn has as many tiles, but its programs share one row of A and all columns of B.
        Edit(
            "kernels/matmul/hopper/choose.py",
            "\nWIDE = HopperConfig(consumers=2, block_n=256, stages=4)\n",
            "\nWIDE = HopperConfig(consumers=2, block_n=256, stages=4, group_m=1)\n",
        ),
    ),
    "more memory traffic",
    TIME,
)

scales_asked_late = Plant(
    "scales-asked-late",
    "matmul of fp8 loads scales of rows and columns where it multiplies by them",
    FP8_ROWS,
    (
        Edit(
            "kernels/matmul/hopper/fp8/persistent.py",
            "        # All warps have read those of the tile before:"
            " its last barriers came behind.\n"
            "        ask_scales(a_ahead, a_scale, row, problem.M, stride_am, A_SCALE)\n"
            "        ask_scales(b_ahead, b_scale, column, problem.N, stride_bn, B_SCALE)\n",
            "",
        ),
        Edit(
            "kernels/matmul/hopper/fp8/persistent.py",
            "        wait_for_scales(A_SCALE, B_SCALE)\n",
            "",
        ),
        Edit(
            "kernels/matmul/hopper/fp8/persistent.py",
            "                x *= a_ahead.load(gl.SliceLayout(1, LAYOUT))[:, None]\n",
            "                o_m = row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))\n"
            "                at_m = a_scale + o_m * stride_am\n"
            "                x *= gl.load(at_m, mask=o_m < problem.M, other=0.0)[:, None]\n",
        ),
        Edit(
            "kernels/matmul/hopper/fp8/persistent.py",
            "                part = b_ahead.slice(i * WIDTH, WIDTH, 0)\n"
            "                x *= part.load(gl.SliceLayout(0, LAYOUT))[None, :]\n",
            "                o_n = first + gl.arange(0, WIDTH, gl.SliceLayout(0, LAYOUT))\n"
            "                at_n = b_scale + o_n * stride_bn\n"
            "                x *= gl.load(at_n, mask=o_n < problem.N, other=0.0)[None, :]\n",
        ),
    ),
    "more instructions",
    TIME,
)

# Each must change no answer, no cost and no counter.
tidy_grouped = Plant(
    "harmless: a comment and an order",
    "grouped_matmul adds up its pointers in the order they are used",
    GROUPED,
    (
        Edit(
            "kernels/matmul/portable/grouped.py",
            "    a += row.to(tl.int64) * a_pitch.row\n"
            "    b += i_group.to(tl.int64) * stride_bg"
            " + (i_n * BLOCK_N).to(tl.int64) * b_pitch.column\n",
            "    # The 64-bit part of an address is a scalar.\n"
            "    b += (i_n * BLOCK_N).to(tl.int64) * b_pitch.column"
            " + i_group.to(tl.int64) * stride_bg\n"
            "    a += row.to(tl.int64) * a_pitch.row\n",
        ),
    ),
)

tidy_fp8_matmul = Plant(
    "harmless: host code",
    "matmul of fp8 names the number of its tiles",
    FP8_MATMUL,
    (
        Edit(
            "kernels/matmul/hopper/fp8/launch.py",
            "    count = triton.cdiv(M, ROWS * CONSUMERS) * triton.cdiv(N, config.block_n)\n",
            "    tiles_m = triton.cdiv(M, ROWS * CONSUMERS)\n"
            "    tiles_n = triton.cdiv(N, config.block_n)\n"
            "    count = tiles_m * tiles_n\n",
        ),
    ),
)

tidy_tf32 = Plant(
    "harmless: an order of host code",
    "matmul of tf32 reads its sizes in one place",
    TF32,
    (
        Edit(
            "kernels/matmul/hopper/tf32/launch.py",
            "    M, N, _ = product.sizes\n"
            "    config = config or choose(M, N, targets.multiprocessors())\n",
            "    processors, (M, N, _) = targets.multiprocessors(), product.sizes\n"
            "    config = config or choose(M, N, processors)\n",
        ),
    ),
)

tidy_fp8_blocks = Plant(
    "harmless: a decision in other words",
    "matmul of fp8 says when wide tiles have registers, and types its rows",
    FP8_BLOCKS,
    (
        Edit(
            "kernels/matmul/hopper/fp8/launch.py",
            "    rows = triton.cdiv(M, ROWS * CONSUMERS)\n    # Registers",
            "    rows: int = triton.cdiv(M, ROWS * CONSUMERS)\n    # Registers",
        ),
        Edit(
            "kernels/matmul/hopper/fp8/launch.py",
            "    crowded = blocks or long\n"
            "    if rows * triton.cdiv(N, 256) >= 3 * multiprocessors and not crowded:\n",
            "    roomy = not blocks and not long\n"
            "    if roomy and not rows * triton.cdiv(N, 256) < 3 * multiprocessors:\n",
        ),
    ),
)

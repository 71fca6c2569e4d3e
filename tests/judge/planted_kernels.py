"""Defects and harmless changes, each a small edit of our kernels, and what the gate must say.

Edits that stand on one branch touch different kernels, so that each workload meets one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from examples.demo.story import Edit

HOPPER_ATTENTION = "attention-bf16-B4-S4096-H16-D128-causal"
VIEWED_ATTENTION = "attention-bf16-B4-S2048-H16-D128-bhsd"
WINDOW = "attention-bf16-B1-S8192-H32-G8-D128-causal-window4096"
FP8_ATTENTION = "attention-fp8-B4-S4096-H16-D128"
BACKWARD = "attention-backward-bf16-B4-S4096-H8-D256"
LONG_DECODE = "attention-kvcache-bf16-B1-S1-KV65536-H32-G8-D128-page64-causal"
DECODE = "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-causal"
SMALL_DECODE = "attention-kvcache-bf16-B8-S1-KV2048-H32-G8-D128-causal"
LARGE_MATMUL = "matmul-fp16-8192x8192x8192"
WIDE_MATMUL = "matmul-bf16-4096x28672x4096-nt"
GELU = "matmul-fp16-2048x2048x2048-bias-gelu"
SKINNY = "matmul-bf16-16x4096x4096-nt"
TF32 = "matmul-fp32-2048x2048x2048-tf32"
FP8_MATMUL = "matmul-fp8-4096x4096x4096-nt-tensor"
GROUPED = "matmul-grouped-bf16-8192x14336x4096-G8"


@dataclass(frozen=True)
class Plant:
    """One commit. ``cause`` is part of the sentence the gate must give; ``metrics`` are those of
    which one at least must be found worse. Without ``cause`` the commit is harmless."""

    name: str
    subject: str
    workload: str
    edits: tuple[Edit, ...]
    cause: str = ""
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Branch:
    """Commits that one gate judges. Without ``counters`` it judges by time alone: what the
    compiler says then names the causes."""

    name: str
    counters: bool
    plants: tuple[Plant, ...]

    @property
    def seconds(self) -> float:
        """About what the gate takes on an H200."""
        return (32.0 if self.counters else 14.0) * len(self.plants)

    @property
    def workloads(self) -> tuple[str, ...]:
        return tuple(plant.workload for plant in self.plants)


TIME = ("latency_cold", "sm_cycles", "tensor_pipe")

causal_not_skipped = Plant(
    "causal-not-skipped",
    "attention on Hopper leaves the causal limit to the mask alone",
    HOPPER_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper_problem.py",
            "            end = min(end, min(row + N_ROWS, own.seqlen_q) + own.causal_offset)\n",
            "",
        ),
    ),
    "more instructions",
    TIME,
)

l2_unfriendly = Plant(
    "l2-unfriendly-order",
    "matmul on Hopper spreads neighbouring tiles over the matrix",
    WIDE_MATMUL,
    (
        Edit(
            "kernels/matmul/hopper_kernel.py",
            "        n_tiles_m = gl.cdiv(self.M, self.BLOCK_M)\n        per_group",
            "        n_tiles_m = gl.cdiv(self.M, self.BLOCK_M)\n"
            "        i_tile = i_tile * 997 % self.tiles()\n        per_group",
        ),
    ),
    "more memory traffic",
    TIME,
)

masking_every_block = Plant(
    "masking-every-block",
    "windowed attention on Hopper masks every block: one kind of block less",
    WINDOW,
    (
        Edit(
            "kernels/attention/hopper_forward.py",
            "                n_blocks, row, own, problem, I_CONSUMER, False,\n",
            "                n_blocks, row, own, problem, I_CONSUMER, problem.WINDOW,\n",
        ),
    ),
    "more instructions",
    TIME,
)

exp_for_exp2 = Plant(
    "exp-for-exp2",
    "fp8 attention takes exp, as the formula is written",
    FP8_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper_fp8_forward.py",
            "    p = gl.exp2(s * scale_log2 - (new - OFFSET)[:, None])\n",
            "    power = s * scale_log2 - (new - OFFSET)[:, None]\n"
            "    p = gl.exp(power * 0.6931471805599453)\n",
        ),
    ),
    "more instructions",
    TIME,
)

split_off = Plant(
    "split-kv-off",
    "decoding gives each key head one program: no second launch",
    LONG_DECODE,
    (
        Edit(
            "kernels/attention/kvcache_configs.py",
            "    return next(s for s in range(1, most + 1) if filled(s) >= ENOUGH * best)\n",
            "    return 1 if best else 0\n",
        ),
    ),
    "some are idle",
    TIME,
)

stages_lost = Plant(
    "pipeline-stages-lost",
    "matmul of tf32 needs less shared memory",
    TF32,
    (
        Edit(
            "kernels/matmul/configs.py",
            '("sm_90", "tf32"): (C(128, 128, 32, 8, 4, tma=True),',
            '("sm_90", "tf32"): (C(128, 128, 32, 8, 1, tma=True),',
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
            "kernels/matmul/configs.py",
            '("sm_90", "16-bit"): (C(128, 128, 64, 8, 4), C(64, 64, 64, 4, 4)),',
            '("sm_90", "16-bit"): (C(64, 64, 64, 4, 4),),',
        ),
    ),
    "more instructions",
    TIME,
)

extra_copy = Plant(
    "extra-copy",
    "attention hands its kernels contiguous tensors",
    VIEWED_ATTENTION,
    (
        Edit(
            "kernels/attention/operators.py",
            "    out, lse = _outputs(q, k, v)\n    if out.numel():\n        launch(\n",
            "    out, lse = _outputs(q, k, v)\n"
            "    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()\n"
            "    if out.numel():\n        launch(\n",
        ),
    ),
    "copies of",
    ("copied_bytes", *TIME),
)

second_launch = Plant(
    "second-launch",
    "matmul on Hopper leaves gelu to torch",
    GELU,
    (
        Edit(
            "kernels/matmul/operators.py",
            "                return hopper.launch(a, b, out, bias, activation)\n",
            "                hopper.launch(a, b, out, bias, None)\n"
            "                if activation:\n"
            "                    out.copy_(getattr(torch.nn.functional, activation)(out))\n"
            "                return\n",
        ),
    ),
    "launches a call instead of",
    ("launches", *TIME),
)

spilling_tile = Plant(
    "spilling-tile",
    "windowed attention on Hopper reads keys for 192 rows at a time",
    WINDOW,
    (
        Edit(
            "kernels/attention/hopper.py",
            "    if head_dim > 64 or windowed:\n        three = False\n",
            "    if windowed:\n        return HopperConfig(3, block_n=128, stages=2)\n"
            "    if head_dim > 64:\n        three = False\n",
        ),
    ),
    "registers spill",
    ("spilled_bytes", *TIME),
)

halved_blocks = Plant(
    "halved-blocks",
    "decoding on Hopper reads 128 keys at a time",
    DECODE,
    (
        Edit(
            "kernels/attention/kvcache_configs.py",
            '    "sm_90": {128: C(64, 16, 32, 4, 3, turned=True)},\n',
            '    "sm_90": {128: C(128, 16, 32, 4, 3, turned=True)},\n',
        ),
    ),
    "fewer blocks in flight",
    ("blocks_in_flight", *TIME),
)

lost_tma = Plant(
    "tma-lost",
    "matmul of fp8 loads its largest tiles in one way on every GPU",
    FP8_MATMUL,
    (
        Edit(
            "kernels/matmul/configs.py",
            '    "sm_90": (\n        C(64, 32, 128, 4, 4),\n'
            "        C(128, 128, 128, 8, 4, tma=True),\n",
            '    "sm_90": (\n        C(64, 32, 128, 4, 4),\n        C(128, 128, 128, 8, 4),\n',
        ),
    ),
    "copies to shared memory wait",
    ("async_copy_level", *TIME),
)

scratch = Plant(
    "scratch-of-s-by-s",
    "attention keeps room for the scores",
    HOPPER_ATTENTION,
    (
        Edit(
            "kernels/attention/operators.py",
            "    out, lse = _outputs(q, k, v)\n    if out.numel():\n        launch(\n",
            "    out, lse = _outputs(q, k, v)\n"
            "    scores = q.new_empty((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))\n"
            "    if out.numel() and scores.numel():\n        launch(\n",
        ),
    ),
    "a scratch tensor",
    ("peak_bytes",),
)

fp16_accumulation = Plant(
    "fp16-accumulation",
    "matmul on Hopper accumulates in the output's dtype",
    LARGE_MATMUL,
    (
        Edit(
            "kernels/matmul/hopper_kernel.py",
            "        acc = gl.zeros([ROWS, problem.BLOCK_N], gl.float32, LAYOUT)\n",
            "        acc = gl.zeros([ROWS, problem.BLOCK_N], c.dtype, LAYOUT)\n",
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
        Edit(
            "kernels/matmul/portable.py",
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

host_sync = Plant(
    "host-synchronisation",
    "decoding splits by the longest sequence there is",
    SMALL_DECODE,
    (
        Edit(
            "kernels/attention/kvcache_launch.py",
            "            seen = cache.capacity if left is None else"
            " min(cache.capacity, seqlen_q + right - left)\n",
            "            seen = cache.capacity if left is None else"
            " min(cache.capacity, seqlen_q + right - left)\n"
            "            if cache.seqlens is not None:\n"
            "                seen = min(seen, max(1, int(cache.seqlens.max())))\n",
        ),
    ),
    "waits for the GPU",
    TIME,
)

# Each must change no answer, no cost and no counter.
tidy_fp8_attention = Plant(
    "harmless: a name",
    "fp8 attention calls its factor by what it is",
    FP8_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper_fp8_forward.py",
            "    factor = gl.exp2(maximum - new)\n",
            "    shrunk = gl.exp2(maximum - new)\n",
        ),
        Edit(
            "kernels/attention/hopper_fp8_forward.py",
            "    return p, new, total * factor + gl.sum(p, 1), factor\n",
            "    return p, new, total * shrunk + gl.sum(p, 1), shrunk\n",
        ),
    ),
)

tidy_backward = Plant(
    "harmless: a local function",
    "attention's gradients compute the softmax's exponent in a line of its own",
    BACKWARD,
    (
        Edit(
            "kernels/attention/hopper_backward_q.py",
            "    p = gl.exp2(s * scale_log2 - lse[:, None])\n",
            "    power = s * scale_log2 - lse[:, None]\n    p = gl.exp2(power)\n",
        ),
    ),
)

tidy_grouped = Plant(
    "harmless: a comment and an order",
    "grouped_matmul adds up its pointers in the order they are used",
    GROUPED,
    (
        Edit(
            "kernels/matmul/grouped.py",
            "    a += row.to(tl.int64) * stride_am\n"
            "    b += i_group.to(tl.int64) * stride_bg"
            " + (i_n * BLOCK_N).to(tl.int64) * stride_bn\n",
            "    # The 64-bit part of an address is a scalar.\n"
            "    b += (i_n * BLOCK_N).to(tl.int64) * stride_bn"
            " + i_group.to(tl.int64) * stride_bg\n"
            "    a += row.to(tl.int64) * stride_am\n",
        ),
    ),
)

tidy_fp8_matmul = Plant(
    "harmless: host code",
    "matmul of fp8 names the number of its tiles",
    FP8_MATMUL,
    (
        Edit(
            "kernels/matmul/fp8.py",
            "    steps = tl.cdiv(K, BLOCK_K)\n    first_k = 0\n",
            "    n_steps = tl.cdiv(K, BLOCK_K)\n    steps = n_steps\n    first_k = 0\n",
        ),
    ),
)

BRANCHES = (
    Branch(
        "counters",
        True,
        (
            causal_not_skipped,
            l2_unfriendly,
            masking_every_block,
            exp_for_exp2,
            split_off,
            stages_lost,
            smaller_tile,
        ),
    ),
    Branch(
        "time-1",
        False,
        (
            extra_copy,
            second_launch,
            spilling_tile,
            halved_blocks,
            lost_tma,
            tidy_fp8_attention,
            tidy_backward,
        ),
    ),
    Branch(
        "time-2",
        False,
        (
            scratch,
            fp16_accumulation,
            lost_wgmma,
            tidy_grouped,
            tidy_fp8_matmul,
            host_sync,
        ),
    ),
)

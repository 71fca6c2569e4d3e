"""Defects and harmless changes planted in attention: text edits of kernels and their launches."""

from __future__ import annotations

from examples.demo.story import Edit
from tools.planted.plants import TIME, Plant

HOPPER_ATTENTION = "attention-bf16-B4-S4096-H16-D128-causal"
VIEWED_ATTENTION = "attention-bf16-B4-S2048-H16-D128-bhsd"
WINDOW = "attention-bf16-B1-S8192-H32-G8-D128-causal-window4096"
FP8_ATTENTION = "attention-fp8-B4-S4096-H16-D128"
BACKWARD = "attention-backward-bf16-B4-S4096-H8-D256"
LONG_DECODE = "attention-kvcache-bf16-B1-S1-KV65536-H32-G8-D128-page64-causal"
DECODE = "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-causal"
SMALL_DECODE = "attention-kvcache-bf16-B8-S1-KV2048-H32-G8-D128-causal"

causal_not_skipped = Plant(
    "causal-not-skipped",
    "attention on Hopper leaves the causal limit to the mask alone",
    HOPPER_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper/tile_order.py",
            "        end = min(end, min(row + N_ROWS, seqlen_q) + causal_offset)\n",
            "",
        ),
    ),
    "more instructions",
    TIME,
)

masking_every_block = Plant(
    "masking-every-block",
    "windowed attention on Hopper masks every block: one kind of block less",
    WINDOW,
    (
        Edit(
            "kernels/attention/hopper/forward/kernel.py",
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
            "kernels/attention/hopper/fp8/kernel.py",
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
            "kernels/attention/decode/tuning.py",
            "    return next(s for s in range(1, most + 1) if filled(s) >= ENOUGH * best)\n",
            "    return 1 if best else 0\n",
        ),
    ),
    "some are idle",
    TIME,
)

extra_copy = Plant(
    "extra-copy",
    "attention hands its kernels contiguous tensors",
    VIEWED_ATTENTION,
    (
        Edit(
            "kernels/attention/operators/dense.py",
            "    if out.numel():\n        launch(q, k, v, out,",
            "    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()\n"
            "    if out.numel():\n        launch(q, k, v, out,",
        ),
    ),
    "copies of",
    ("copied_bytes", *TIME),
)

spilling_tile = Plant(
    "spilling-tile",
    "windowed attention on Hopper reads keys for 192 rows at a time",
    WINDOW,
    (
        Edit(
            "kernels/attention/hopper/forward/launch.py",
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
            "kernels/attention/decode/tuning.py",
            '    "sm_90": {128: C(64, 16, 32, 4, 3, turned=True, alone=4)},\n',
            '    "sm_90": {128: C(128, 16, 32, 4, 3, turned=True, alone=3)},\n',
        ),
    ),
    "fewer blocks in flight",
    ("blocks_in_flight", *TIME),
)

scratch = Plant(
    "scratch-of-s-by-s",
    "attention keeps room for the scores",
    HOPPER_ATTENTION,
    (
        Edit(
            "kernels/attention/operators/dense.py",
            "    if out.numel():\n        launch(q, k, v, out,",
            "    scores = q.new_empty((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))\n"
            "    if out.numel() and scores.numel():\n        launch(q, k, v, out,",
        ),
    ),
    "a scratch tensor",
    ("peak_bytes",),
)

host_sync = Plant(
    "host-synchronisation",
    "decoding splits by the longest sequence there is",
    SMALL_DECODE,
    (
        Edit(
            "kernels/attention/decode/launch.py",
            "        seen = cache.capacity if left is None else"
            " min(cache.capacity, seqlen_q + right - left)\n",
            "        seen = cache.capacity if left is None else"
            " min(cache.capacity, seqlen_q + right - left)\n"
            "        if cache.seqlens is not None:\n"
            "            seen = min(seen, max(1, int(cache.seqlens.max())))\n",
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
            "kernels/attention/hopper/fp8/kernel.py",
            "    factor = gl.exp2(maximum - new)\n",
            "    shrunk = gl.exp2(maximum - new)\n",
        ),
        Edit(
            "kernels/attention/hopper/fp8/kernel.py",
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
            "kernels/attention/hopper/backward/wide/query_grads.py",
            "    p = gl.exp2(s * scale_log2 - lse[:, None])\n",
            "    power = s * scale_log2 - lse[:, None]\n    p = gl.exp2(power)\n",
        ),
    ),
)

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
SHORT_ATTENTION = "attention-bf16-B32-S512-H16-D128"
MIDDLE_ATTENTION = "attention-bf16-B16-S1024-H16-D128"
CAUSAL_BACKWARD = "attention-backward-bf16-B4-S4096-H8-D256-causal"
BACKWARD_OF_SUMS = "attention-backward-bf16-B4-S4096-H16-D128"
BACKWARD_OF_NARROW = "attention-backward-bf16-B4-S4096-H32-D64"
LONGEST_DECODE = "attention-kvcache-bf16-B1-S1-KV131072-H32-G8-D128-page64-causal"
COMBINED_DECODE = "attention-kvcache-bf16-B1-S1-KV32768-H32-G8-D128-page64-causal"
CAUSAL_FP8_ATTENTION = "attention-fp8-B4-S4096-H16-D128-causal"

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
            "    if out.numel():\n        launch(problem, out,",
            "    q, k, v = (one.contiguous() for one in (problem.q, problem.k, problem.v))\n"
            "    problem = Problem(q, k, v, problem.mask, problem.scale, None, problem.options)\n"
            "    if out.numel():\n        launch(problem, out,",
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
            "    if out.numel():\n        launch(problem, out,",
            "    scores = problem.q.new_empty(problem.scores)\n"
            "    if out.numel() and scores.numel():\n        launch(problem, out,",
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

# Each is to cost 1 to 5 %.
heads_beyond_l2 = Plant(
    "heads-beyond-l2",
    "attention's causal gradients on Hopper begin with the longest blocks of all heads",
    CAUSAL_BACKWARD,
    (
        # Launches of 32 heads, 4 MB each: sixteen at a time instead of eight.
        Edit(
            "kernels/attention/hopper/backward/wide/launch.py",
            "L2_BYTES = 32 << 20  #",
            "L2_BYTES = 64 << 20  #",
        ),
    ),
    "more memory traffic",
    TIME,
)

start_offset_lost = Plant(
    "start-offset-lost",
    "attention's gradients on Hopper walk queries from the first, causal or not",
    BACKWARD_OF_SUMS,
    (
        Edit(
            "kernels/attention/hopper/backward/one_pass/order.py",
            "        else:\n"
            "            n = gl.cdiv(seqlen_k, self.BLOCK_N)\n"
            "            shift = i_n * n_m // (gl.maximum(n, 1) if self.PACKED else n)\n"
            "        blocks = n_m - first\n",
            "        blocks = n_m - first\n",
        ),
    ),
    "latency is no longer hidden",
    TIME,
)

fewer_parts = Plant(
    "fewer-parts",
    "decoding splits keys into fewer parts, which are fewer to add",
    LONGEST_DECODE,
    (
        # Of 264 places for a program 240 are taken instead of 256.
        Edit("kernels/attention/decode/tuning.py", "ENOUGH = 0.94\n", "ENOUGH = 0.88\n"),
    ),
    "some are idle",
    TIME,
)

query_stage_lost = Plant(
    "query-stage-lost",
    "attention on Hopper keeps the queries of only one tile: less shared memory",
    MIDDLE_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper/forward/launch.py",
            "        q_stages=2,\n        by_head=",
            "        q_stages=1,\n        by_head=",
        ),
    ),
    "latency is no longer hidden",
    TIME,
)

weights_converted_back = Plant(
    "weights-converted-back",
    "attention's gradients on Hopper multiply the weights that dv was given",
    BACKWARD_OF_NARROW,
    (
        # Rounded and back to fp32: of eight all, and not only the last two.
        Edit(
            "kernels/attention/hopper/weight_pairs.py",
            "        if i == 3:\n"
            "            if f16:\n"
            '                lines.append("mov.b32 {h, i}, $15; cvt.f32.f16 a, h;'
            ' cvt.f32.f16 b, i;")\n'
            "            else:\n"
            '                lines.append("shl.b32 a, $15, 16; and.b32 b, $15, 0xffff0000;")\n'
            '            even, odd = "a", "b"\n',
            '        pair = f"${12 + i}"\n'
            "        if f16:\n"
            '            lines.append(f"mov.b32 {{h, i}}, {pair};")\n'
            '            lines.append("cvt.f32.f16 a, h; cvt.f32.f16 b, i;")\n'
            "        else:\n"
            '            lines.append(f"shl.b32 a, {pair}, 16; and.b32 b, {pair}, 0xffff0000;")\n'
            '        even, odd = "a", "b"\n',
        ),
    ),
    "more instructions",
    TIME,
)

rows_scaled_twice = Plant(
    "rows-scaled-twice",
    "attention on Hopper zeroes rows that saw no key after their division",
    SHORT_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper/forward/kernel.py",
            "            leave(staging, times(acc, inverse, problem), problem)\n",
            "            acc = times(acc, inverse, problem)\n"
            "            leave(staging, times(acc, gl.where(empty, 0.0, 1.0), problem), problem)\n",
        ),
    ),
    "more instructions",
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

tidy_combine = Plant(
    "harmless: a local of a second launch",
    "decoding names a part's share of the sum",
    COMBINED_DECODE,
    (
        Edit(
            "kernels/attention/decode/combine.py",
            "    b_weight = tl.exp(b_max - shift[None, :]) if NATURAL"
            " else tl.exp2(b_max - shift[None, :])\n"
            "    row_sum = tl.sum(b_sum * b_weight, 0)\n"
            "    b_out = tl.sum(b_part * b_weight[:, :, None], 0)\n",
            "    b_share = tl.exp(b_max - shift[None, :]) if NATURAL"
            " else tl.exp2(b_max - shift[None, :])\n"
            "    row_sum = tl.sum(b_sum * b_share, 0)\n"
            "    b_out = tl.sum(b_part * b_share[:, :, None], 0)\n",
        ),
    ),
)

told_fp8_softmax = Plant(
    "harmless: a docstring",
    "fp8 attention describes what its softmax is given",
    CAUSAL_FP8_ATTENTION,
    (
        Edit(
            "kernels/attention/hopper/fp8/kernel.py",
            '    """One step of the online softmax: exponentials, maximum and sum,'
            ' and the old ones\' factor."""\n',
            '    """One step of the online softmax: exponentials, maximum and sum,'
            " and the old ones' factor.\n\n"
            "    ``maximum`` is scaled, scores are not: ``scale_log2`` takes them to base 2.\n"
            '    """\n',
        ),
    ),
)

"""Edits that change no kernel's cost; nothing may be said against them."""

from __future__ import annotations

from dataclasses import dataclass

from .case import Edit

_TARGETS = ("sm_90", "gfx942")


@dataclass(frozen=True)
class Harmless:
    """One edit of one file, for one target each."""

    name: str
    title: str
    file: str
    edits: tuple[Edit, ...]
    targets: tuple[str, ...]


def _of(file: str, *edits: tuple[str, tuple[Edit, ...]]) -> tuple[Harmless, ...]:
    stem = file.removesuffix(".py")
    return tuple(
        Harmless(f"{stem}-{number}", title, file, made, (_TARGETS[number % 2],))
        for number, (title, made) in enumerate(edits, 1)
    )


_PRODUCT = _of(
    "product.py",
    (
        "a comment",
        (Edit("    b_c = tl.zeros(", "    # The sum stays in registers.\n    b_c = tl.zeros("),),
    ),
    (
        "a kernel by another name",
        (
            Edit("def product_kernel(", "def tile_of_c("),
            Edit("    product_kernel[(tiles,)]", "    tile_of_c[(tiles,)]"),
        ),
    ),
    (
        "a docstring",
        (Edit("def product(a, b):\n", 'def product(a, b):\n    """a: (M, K), b: (K, N)."""\n'),),
    ),
    (
        "offsets with a name",
        (
            Edit(
                "tl.load(b + (k + o_k)[:, None] * stride_b + o_n[None, :])",
                "tl.load(b + o_b)",
            ),
            Edit(
                "        b_a = tl.load(",
                "        o_b = (k + o_k)[:, None] * stride_b + o_n[None, :]\n"
                "        b_a = tl.load(",
            ),
        ),
    ),
    (
        "a sum in the other order",
        (Edit("(k + o_k)[None, :])", "(o_k + k)[None, :])"),),
    ),
    (
        "a shape that is checked",
        (
            Edit(
                "    c = torch.empty(",
                "    if a.shape[1] != b.shape[0]:\n"
                '        raise ValueError(f"b: expected {a.shape[1]} rows, got {b.shape[0]}")\n'
                "    c = torch.empty(",
            ),
        ),
    ),
    (
        "arguments by name",
        (
            Edit("(a, b, c, M, N, K, ", "(a=a, b=b, c=c, M=M, N=N, K=K, stride_a="),
            Edit(
                "a.stride(0), b.stride(0), c.stride(0), **TILE",
                "a.stride(0), stride_b=b.stride(0), stride_c=c.stride(0), **TILE",
            ),
        ),
    ),
    (
        "a product written as an addition",
        (Edit("b_c = tl.dot(b_a, b_b, b_c)", "b_c += tl.dot(b_a, b_b)"),),
    ),
)

_ATTENTION = _of(
    "attention.py",
    (
        "a constant that is private",
        (
            Edit("LOG2_E = 1.44269504", "_LOG2_E = 1.44269504"),
            Edit("LENGTH, LOG2_E * D**-0.5", "LENGTH, _LOG2_E * D**-0.5"),
        ),
    ),
    (
        "a variable by another name",
        (
            Edit(
                "        b_shrunk = tl.exp2(b_max - b_new)",
                "        b_alpha = tl.exp2(b_max - b_new)",
            ),
            Edit("b_sum = b_sum * b_shrunk", "b_sum = b_sum * b_alpha"),
            Edit("b_out * b_shrunk[:, None]", "b_out * b_alpha[:, None]"),
        ),
    ),
    (
        "a helper",
        (
            Edit(
                "@triton.jit\ndef attention_kernel(",
                "@triton.jit\ndef hidden(o_m, o_n, b_s):\n"
                '    return tl.where(o_m[:, None] >= o_n[None, :], b_s, float("-inf"))\n\n\n'
                "@triton.jit\ndef attention_kernel(",
            ),
            Edit(
                'tl.where(o_m[:, None] >= (n + o_n)[None, :], b_s, float("-inf"))',
                "hidden(o_m, n + o_n, b_s)",
            ),
        ),
    ),
    (
        "values loaded before the maximum",
        (
            Edit("        b_v = tl.load(v + start + (n + o_n)[:, None] * D + o_d[None, :])\n", ""),
            Edit(
                "        b_s = tl.dot(b_q, b_k) * scale\n",
                "        b_v = tl.load(v + start + (n + o_n)[:, None] * D + o_d[None, :])\n"
                "        b_s = tl.dot(b_q, b_k) * scale\n",
            ),
        ),
    ),
    (
        "a comparison turned round",
        (
            Edit(
                "o_m[:, None] >= (n + o_n)[None, :]",
                "(n + o_n)[None, :] <= o_m[:, None]",
            ),
        ),
    ),
    (
        "type hints",
        (
            Edit(
                "def attention(q, k, v):",
                "def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:",
            ),
        ),
    ),
    (
        "a maximum by a condition",
        (
            Edit(
                "last = tl.minimum((i_m + 1) * BLOCK_M, length)",
                "last = min((i_m + 1) * BLOCK_M, length)",
            ),
        ),
    ),
    (
        "memory of the same kind, asked in other words",
        (
            Edit(
                "out = torch.empty_like(q)",
                "out = torch.empty(q.shape, dtype=q.dtype, device=q.device)",
            ),
        ),
    ),
)

_NORM = _of(
    "norm.py",
    ("a comment", (Edit("    rms = ", "    # fp32: squares of fp16 overflow.\n    rms = "),)),
    (
        "a square with a name",
        (
            Edit("tl.sum(b_x * b_x, 0)", "tl.sum(b_square, 0)"),
            Edit("    rms = ", "    b_square = b_x * b_x\n    rms = "),
        ),
    ),
    (
        "the weight before the sum",
        (
            Edit(" * tl.load(weight + o_d).to(tl.float32)", " * b_weight"),
            Edit("    rms = ", "    b_weight = tl.load(weight + o_d).to(tl.float32)\n    rms = "),
        ),
    ),
    (
        "a pointer with a name",
        (
            Edit("tl.load(x + i * D + o_d)", "tl.load(row + o_d)"),
            Edit("    o_d = tl.arange(0, D)\n", "    o_d = tl.arange(0, D)\n    row = x + i * D\n"),
        ),
    ),
    (
        "a root in other words",
        (
            Edit(
                "tl.rsqrt(tl.sum(b_x * b_x, 0) / D + eps)",
                "tl.math.rsqrt(tl.sum(b_x * b_x, 0) / D + eps)",
            ),
        ),
    ),
    (
        "like another tensor",
        (Edit("torch.empty(x.shape, dtype=x.dtype, device=x.device)", "torch.empty_like(x)"),),
    ),
    ("a default", (Edit("def norm(x, weight, eps):", "def norm(x, weight, eps=1e-6):"),)),
    (
        "a grid with a name",
        (Edit("    norm_kernel[(ROWS,)]", "    grid = (x.shape[0],)\n    norm_kernel[grid]"),),
    ),
)

_GATE = _of(
    "gate.py",
    ("a product in the other order", (Edit("slope * b_gate", "b_gate * slope"),)),
    (
        "factors in the other order",
        (Edit("b_x * tl.sigmoid(slope * b_gate)", "tl.sigmoid(slope * b_gate) * b_x"),),
    ),
    (
        "a constant with a name",
        (
            Edit("BLOCK = 1024", "BLOCK = 1024\nSLOPE = 1.702"),
            Edit("x.stride(0), 1.702, D", "x.stride(0), SLOPE, D"),
        ),
    ),
    (
        "a helper",
        (
            Edit(
                "@triton.jit\ndef gate_kernel",
                "@triton.jit\ndef opened(b, slope):\n    return tl.sigmoid(slope * b)\n\n\n"
                "@triton.jit\ndef gate_kernel",
            ),
            Edit("tl.sigmoid(slope * b_gate)", "opened(b_gate, slope)"),
        ),
    ),
    (
        "loads in the other order",
        (
            Edit("    b_x = tl.load(x + i * stride_x + o_d).to(tl.float32)\n", ""),
            Edit(
                "    b_y = ", "    b_x = tl.load(x + i * stride_x + o_d).to(tl.float32)\n    b_y = "
            ),
        ),
    ),
    ("a division that leaves no rest", (Edit("D // BLOCK)]", "triton.cdiv(D, BLOCK))]"),)),
    (
        "another name for an argument",
        (
            Edit(
                "def gate_kernel(x, gate, y, stride_x, slope, D",
                "def gate_kernel(x, gate, y, stride_x, steepness, D",
            ),
            Edit("slope * b_gate", "steepness * b_gate"),
        ),
    ),
    (
        "a cast in other words",
        (Edit("b_y.to(y.dtype.element_ty)", "tl.cast(b_y, y.dtype.element_ty)"),),
    ),
)

_GRADIENT = _of(
    "gradient.py",
    ("a comment", (Edit("    c_1 = ", "    # Means of the row.\n    c_1 = "),)),
    (
        "the scalar loads first",
        (
            Edit("(b_x - tl.load(mean + i)) * b_scale", "(b_x - b_mean) * b_scale"),
            Edit(
                "    o_d = tl.arange(0, D)\n",
                "    o_d = tl.arange(0, D)\n    b_mean = tl.load(mean + i)\n",
            ),
        ),
    ),
    (
        "means in the other order",
        (
            Edit(
                "    c_1 = tl.sum(b_hat * b_wdy, 0) / D\n    c_2 = tl.sum(b_wdy, 0) / D\n",
                "    c_2 = tl.sum(b_wdy, 0) / D\n    c_1 = tl.sum(b_hat * b_wdy, 0) / D\n",
            ),
        ),
    ),
    (
        "a result with a name",
        (
            Edit(
                "    tl.store(dx + i * D + o_d, ((b_wdy - b_hat * c_1 - c_2) * b_scale)",
                "    b_dx = (b_wdy - b_hat * c_1 - c_2) * b_scale\n"
                "    tl.store(dx + i * D + o_d, b_dx",
            ),
        ),
    ),
    ("an axis by name", (Edit("c_2 = tl.sum(b_wdy, 0) / D", "c_2 = tl.sum(b_wdy, axis=0) / D"),)),
    (
        "a shape from a tensor",
        (
            Edit(
                "    dx = torch.empty_like(x)",
                "    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)",
            ),
        ),
    ),
    (
        "warps with a name",
        (
            Edit(
                "    gradient_kernel[(ROWS,)]",
                '    options = {"num_warps": WARPS}\n    gradient_kernel[(ROWS,)]',
            ),
            Edit("D, num_warps=WARPS)", "D, **options)"),
        ),
    ),
    ("a product in the other order", (Edit("b_wdy = b_w * b_dy", "b_wdy = b_dy * b_w"),)),
)

_SOFTMAX = _of(
    "softmax.py",
    (
        "a comment",
        (Edit("        b_x = tl.exp(", "        # No larger than one.\n        b_x = tl.exp("),),
    ),
    (
        "a maximum with a name",
        (
            Edit("tl.exp(b_x - tl.max(b_x, 0))", "tl.exp(b_x - largest)"),
            Edit(
                "        b_x = tl.exp(", "        largest = tl.max(b_x, 0)\n        b_x = tl.exp("
            ),
        ),
    ),
    (
        "an offset with a name",
        (
            Edit("tl.load(x + row * COLUMNS + o)", "tl.load(x + at)"),
            Edit("tl.store(y + row * COLUMNS + o,", "tl.store(y + at,"),
            Edit(
                "        b_x = tl.load(", "        at = row * COLUMNS + o\n        b_x = tl.load("
            ),
        ),
    ),
    (
        "the first row with a name",
        (
            Edit("tl.range(tl.program_id(0), rows", "tl.range(first, rows"),
            Edit(
                "    o = tl.arange(0, COLUMNS)\n",
                "    o = tl.arange(0, COLUMNS)\n    first = tl.program_id(0)\n",
            ),
        ),
    ),
    (
        "a sum with a name",
        (
            Edit("b_x / tl.sum(b_x, 0))", "b_x / total)"),
            Edit("        tl.store(", "        total = tl.sum(b_x, 0)\n        tl.store("),
        ),
    ),
    ("a keyword", (Edit("tl.max(b_x, 0)", "tl.max(b_x, axis=0)"),)),
    (
        "a kernel by another name",
        (
            Edit("def softmax_kernel(", "def rows_kernel("),
            Edit("    softmax_kernel[(512,)]", "    rows_kernel[(512,)]"),
        ),
    ),
    ("memory in other words", (Edit("y = torch.empty_like(x)", "y = x.new_empty(x.shape)"),)),
)

HARMLESS: tuple[Harmless, ...] = (
    *_PRODUCT,
    *_ATTENTION,
    *_NORM,
    *_GATE,
    *_GRADIENT,
    *_SOFTMAX,
)

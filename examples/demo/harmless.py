"""The commits that change no kernel's cost; the report must find nothing in them."""

from __future__ import annotations

from .story import Commit, Edit, Move

comments = Commit(
    "attention: say what the running maximum is for",
    (
        Edit(
            "demokernels/attention.py",
            "@triton.jit\ndef attention_kernel(\n",
            """# The softmax is kept relative to the largest score seen so far (b_max). When a block
# brings a larger one, what was summed before shrinks by exp2(b_max - b_new).


@triton.jit
def attention_kernel(
""",
        ),
    ),
)

renamed_kernel = Commit(
    "matmul: the kernel is called after what a program does",
    (
        Edit(
            "demokernels/matmul.py",
            "@triton.jit\ndef matmul_kernel(",
            "@triton.jit\ndef tile_of_c(",
        ),
        Edit("demokernels/matmul.py", "    matmul_kernel[grid](", "    tile_of_c[grid]("),
    ),
)

renamed_variables = Commit(
    "logits: h for the hidden states, as in the paper",
    (
        Edit(
            "demokernels/logits.py",
            "def logits_kernel(\n    x,\n",
            "def logits_kernel(\n    h,\n",
        ),
        Edit(
            "demokernels/logits.py",
            "        b_x = tl.load(x + o_m[:, None] * D + o_k[None, :])\n",
            "        b_h = tl.load(h + o_m[:, None] * D + o_k[None, :])\n",
        ),
        Edit("demokernels/logits.py", "b_x.to(tl.float32)", "b_h.to(tl.float32)"),
    ),
)

extracted_helper = Commit(
    "gated_mlp: the gate is a function",
    (
        Edit(
            "demokernels/gated.py",
            "@triton.jit\ndef gated_kernel(\n",
            """@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def gated_kernel(
""",
        ),
        Edit(
            "demokernels/gated.py",
            "    b_y = b_gate * tl.sigmoid(b_gate) * b_up\n",
            "    b_y = silu(b_gate) * b_up\n",
        ),
    ),
)

moved_file = Commit(
    "Kernels over rows have a folder",
    (
        Move("demokernels/norm.py", "demokernels/rows/norm.py"),
        Edit("demokernels/rows/__init__.py", "", '"""Kernels that own one row a program."""\n'),
        Edit(
            "demokernels/__init__.py",
            "from .norm import rms_norm\n",
            "from .rows.norm import rms_norm\n",
        ),
    ),
)

moved_gpu = Commit(
    "gpu.py becomes active.py",
    (
        Move("demokernels/gpu.py", "demokernels/active.py"),
        Edit("demokernels/attention.py", "from .gpu import arch", "from .active import arch"),
        Edit("demokernels/gated.py", "from .gpu import arch", "from .active import arch"),
        Edit("demokernels/matmul.py", "from .gpu import arch", "from .active import arch"),
        Edit("demokernels/linear.py", "from .gpu import has_tma", "from .active import has_tma"),
    ),
)

reordered_arguments = Commit(
    "linear: the kernel takes its output last, as the others do",
    (
        Edit(
            "demokernels/linear.py",
            "    bias,\n    y,\n    K: tl.constexpr,\n    N,\n",
            "    bias,\n    N,\n    K: tl.constexpr,\n    y,\n",
        ),
        Edit(
            "demokernels/linear.py",
            "        bias,\n        y,\n        K,\n        N,\n",
            "        bias,\n        N,\n        K,\n        y,\n",
        ),
    ),
)

docstrings = Commit(
    "Docstrings for the public functions",
    (
        Edit(
            "demokernels/matmul.py",
            "def matmul(a, b):\n",
            'def matmul(a, b):\n    """a: (M, K), b: (K, N), whole tiles only."""\n',
        ),
        Edit(
            "demokernels/gated.py",
            "def gated_mlp(x, gate, up):\n",
            'def gated_mlp(x, gate, up):\n    """x: (M, K); gate, up: (K, N)."""\n',
        ),
        Edit(
            "demokernels/logits.py",
            "def logits(x, head):\n",
            'def logits(x, head):\n    """x: (M, D), head: (D, V)."""\n',
        ),
    ),
)

type_hints = Commit(
    "Type hints for attention and rms_norm",
    (
        Edit(
            "demokernels/attention.py",
            "def attention(q, k, v):\n",
            "def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:\n",
        ),
        Edit(
            "demokernels/rows/norm.py",
            "def rms_norm(x, weight, eps=1e-6):\n",
            "def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6):\n",
        ),
    ),
)

checked_shapes = Commit(
    "matmul refuses shapes that do not match",
    (
        Edit(
            "demokernels/matmul.py",
            "    M, K = a.shape\n",
            """    M, K = a.shape
    if b.shape[0] != K:
        raise ValueError(f"b: expected {K} rows, the columns of a, got {b.shape[0]}")
""",
        ),
    ),
)

new_kernel = Commit(
    "softmax over rows",
    (
        Edit(
            "demokernels/rows/softmax.py",
            "",
            '''"""Softmax of rows."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, y, D: tl.constexpr):
    i_row = tl.program_id(0)
    o_d = tl.arange(0, D)
    b_x = tl.load(x + i_row * D + o_d).to(tl.float32)
    b_x = tl.exp(b_x - tl.max(b_x, 0))
    tl.store(y + i_row * D + o_d, (b_x / tl.sum(b_x, 0)).to(y.dtype.element_ty))


def softmax(x):
    rows, D = x.shape
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    softmax_kernel[(rows,)](x, y, D, num_warps=4)
    return y
''',
        ),
        Edit(
            "demokernels/__init__.py",
            "from .rows.norm import rms_norm\n",
            "from .rows.norm import rms_norm\nfrom .rows.softmax import softmax\n",
        ),
        Edit("demokernels/__init__.py", '"rms_norm"]', '"rms_norm", "softmax"]'),
    ),
)

renamed_constant = Commit(
    "attention: the scale's constant is private",
    (
        Edit("demokernels/attention.py", "LOG2_E = 1.44", "_LOG2_E = 1.44"),
        Edit("demokernels/attention.py", "        LOG2_E / math", "        _LOG2_E / math"),
    ),
)

another_gpu = Commit(
    "matmul: tiles for Blackwell",
    (
        Edit(
            "demokernels/matmul.py",
            '    "gfx942": {',
            '    "sm_100": {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, '
            '"num_stages": 3},\n    "gfx942": {',
        ),
    ),
)

keyword_arguments = Commit(
    "softmax: arguments of the launch by name",
    (
        Edit(
            "demokernels/rows/softmax.py",
            "    softmax_kernel[(rows,)](x, y, D, num_warps=4)\n",
            "    softmax_kernel[(rows,)](x=x, y=y, D=D, num_warps=4)\n",
        ),
    ),
)

factored_offsets = Commit(
    "gated_mlp: the weights' offsets are computed once a step",
    (
        Edit(
            "demokernels/gated.py",
            """        b_gate = tl.dot(b_x, tl.load(gate + o_k[:, None] * N + o_n[None, :]), b_gate)
        b_up = tl.dot(b_x, tl.load(up + o_k[:, None] * N + o_n[None, :]), b_up)
""",
            """        o_w = o_k[:, None] * N + o_n[None, :]
        b_gate = tl.dot(b_x, tl.load(gate + o_w), b_gate)
        b_up = tl.dot(b_x, tl.load(up + o_w), b_up)
""",
        ),
    ),
)

readme = Commit(
    "A README",
    (Edit("README.md", "", "# demokernels\n\nSmall kernels of a language model.\n"),),
)

"""Functions of CUDA's mathematical library, which kernels call as ``libdevice``.

Each is computed in fp64 and rounded once. The card's may differ in the last bits, and its fast ones
in more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl

from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import computed, rounded


def _floating(function: Callable[..., Any], kind: tl.dtype | None = None) -> Callable[..., Block]:
    """A function of fp32 or fp64, whose result is of the same type or of ``kind``."""

    def of(*given: Any) -> Block:
        beside = next((one.dtype for one in given if isinstance(one, Block)), tl.float32)
        blocks = [block_of(one, beside) for one in given]
        if blocks[0].dtype not in (tl.float32, tl.float64):
            raise MisuseError(f"libdevice expects fp32 or fp64, got {blocks[0].dtype}")
        wide = (one.data.astype(np.float64) for one in blocks)
        made = blocks[0].dtype if kind is None else kind
        return Block(rounded(np.asarray(computed(function, *wide)), made), made)

    return of


def _bits(function: Callable[[int, int], int]) -> Callable[[Any], Block]:
    """A function of an integer's bits and of their number."""

    def of(x: Any) -> Block:
        x = block_of(x)
        width = x.dtype.primitive_bitwidth
        if x.dtype.is_floating() or width not in (32, 64):
            raise MisuseError(f"libdevice expects int32 or int64, got {x.dtype}")
        each = np.frompyfunc(lambda one: function(int(one) % 2**width, width), 1, 1)
        return Block(np.asarray(each(x.data)).astype(np.int32), tl.int32)

    return of


def _torchs(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_PLAIN: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in (
        "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1", "log", "log2",
        "log10", "log1p", "sqrt", "cbrt", "floor", "ceil", "trunc", "rint", "copysign", "hypot",
        "fmod", "abs",
    )},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "rcp_rn": lambda x: 1.0 / x,
    "sqrt_rn": np.sqrt,
    "div_rn": np.true_divide,
    "fma": lambda a, b, c: a * b + c,
    "fdim": lambda a, b: np.where(a <= b, 0.0, a - b),
    "pow": np.power,
    "nearbyint": np.rint,
    "round": _away,
    "erf": _torchs(torch.erf),
    "erfc": _torchs(torch.erfc),
    "erfinv": _torchs(torch.erfinv),
    "lgamma": _torchs(torch.lgamma),
    "j0": _torchs(torch.special.bessel_j0),
    "j1": _torchs(torch.special.bessel_j1),
    "fast_sinf": np.sin,
    "fast_cosf": np.cos,
    "fast_tanf": np.tan,
    "fast_tanhf": np.tanh,
    "fast_expf": np.exp,
    "fast_exp10f": lambda x: np.power(10.0, x),
    "fast_logf": np.log,
    "fast_log2f": np.log2,
    "fast_log10f": np.log10,
    "fast_powf": np.power,
    "fast_dividef": np.true_divide,
}  # fmt: skip
LIBRARY: dict[str, Any] = {
    **{name: _floating(function) for name, function in _PLAIN.items()},
    **{
        name: _floating(function, tl.int32)
        for name, function in {
            "isnan": np.isnan,
            "isinf": np.isinf,
            "finitef": np.isfinite,
            "isfinited": np.isfinite,
            "signbit": np.signbit,
        }.items()
    },
    "popc": _bits(lambda bits, width: bits.bit_count()),
    "clz": _bits(lambda bits, width: width - bits.bit_length()),
    "ffs": _bits(lambda bits, width: (bits & -bits).bit_length()),
}

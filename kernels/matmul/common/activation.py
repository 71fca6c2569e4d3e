"""What is applied to a tile of C: relu, gelu, silu. For Triton's kernels and those in Gluon."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def apply_activation(x, ACTIVATION: tl.constexpr, DTYPE: tl.constexpr):
    """``ACTIVATION`` of fp32 values that are then rounded to DTYPE; NaN stays NaN."""
    if ACTIVATION == "relu":
        x = tl.where(x < 0.0, 0.0, x)  # not max: a NaN must stay one
    elif ACTIVATION == "gelu":
        if DTYPE.primitive_bitwidth == 16:
            x = short_gelu(x)
        else:
            x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    elif ACTIVATION == "silu":
        if DTYPE.primitive_bitwidth == 16:
            x = x / (1.0 + tl.exp(-x))
        else:
            # "/" is compiled to what errs by two units in the last place of fp32.
            x = tl.div_rn(x, 1.0 + tl.exp(-x))
    return x


@triton.jit
def apply_on_hopper(x, ACTIVATION: tl.constexpr, DTYPE: tl.constexpr):
    """``apply_activation`` where the instructions are known to be NVIDIA's."""
    if ACTIVATION == "silu" and DTYPE.primitive_bitwidth == 16:
        return short_silu(x)
    return apply_activation(x, ACTIVATION, DTYPE)


@triton.jit
def short_silu(x):
    """x / (1 + exp(-x)) in six instructions, to be rounded to 16 bits.

    "/" and ``exp`` take six more to scale what is beyond normal numbers. Here numerator and
    denominator are 2**-8 of themselves: 2**-8 + 2**(-8 - x log2(e)) and its reciprocal are normal
    for as long as the result is, down to x = -92, where "/" gives zeros from -88.8 on. The relative
    error is at most 3e-7 for |x| < 1 and 4e-6 far below, where it is the exponent's and as large
    with "/". Infinity stays, minus infinity gives NaN as with torch.
    """
    scaled = _approximate(x * -1.4426950408889634 - 8.0, "ex2")
    return x * 0.00390625 * _approximate(scaled + 0.00390625, "rcp")


@triton.jit
def _approximate(x, FUNCTION: tl.constexpr):
    """2**x (ex2) or 1 / x (rcp)."""
    ASM: tl.constexpr = FUNCTION + ".approx.ftz.f32 $0, $1;"
    return tl.inline_asm_elementwise(ASM, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def short_gelu(x):
    """x times the normal distribution's integral Phi(x), to be rounded to 16 bits.

    With t = |x|, gelu is relu(x) - t Phi(-t): nothing cancels where x is negative. log2 Phi(-t) is
    smooth enough for one polynomial, so that a value costs 14 instructions and one exponential, no
    branch and no division. The error function branches, and unrolled over a tile it is more code
    than the instruction cache holds.

    The coefficients are a minimax fit on [0, 14.5], made by tools/kernels/fitted_gelu.py. In fp32
    the relative error is at most 9.5e-6 for |x| < 5.8, a fiftieth of fp16's rounding, and 9e-5
    beyond, where fp16 holds zeros and bf16's rounding is 20 times that, down to x = -12.9, where
    results stop being normal numbers. From t = 14.5 on Phi(-t) counts as the zero it is in fp32.
    Infinity stays, minus infinity gives NaN as with torch.
    """
    t = tl.minimum(tl.abs(x), 14.5)
    log2_phi = -2.29166774e-09 * t + 1.61913789e-07
    log2_phi = log2_phi * t - 5.02707553e-06
    log2_phi = log2_phi * t + 9.09371593e-05
    log2_phi = log2_phi * t - 0.001075687
    log2_phi = log2_phi * t + 0.00890750438
    log2_phi = log2_phi * t - 0.0545505099
    log2_phi = log2_phi * t - 0.458048344
    log2_phi = log2_phi * t - 1.15135515
    log2_phi = log2_phi * t - 0.999992669
    # The half sum is relu, but NaN of minus infinity.
    return 0.5 * x + 0.5 * tl.abs(x) - t * tl.exp2(log2_phi)

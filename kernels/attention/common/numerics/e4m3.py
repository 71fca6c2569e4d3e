"""e4m3 to and from other types by its bits, for hardware that has no instruction for its flavour.

Both flavours have a sign, four bits of exponent and three of mantissa. ``float8_e4m3fn`` (OCP) has
bias 7, reaches 448 and has NaN at the largest code of each sign; ``float8_e4m3fnuz`` has bias 8,
reaches 240 and has one NaN where minus zero would be. In fp16 the same bits mean 2^-8 (fnuz: 2^-7)
of the value, subnormal numbers included: fp16 has one exponent bit and seven mantissa bits more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from kernels.runtime.targets import Target

DTYPES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz)
E5M2 = (torch.float8_e5m2, torch.float8_e5m2fnuz)


def way(dtype: torch.dtype, target: Target) -> str:
    """How a kernel on ``target`` reads ``dtype``: as it is (""), by the hardware's own conversion
    ("native"), or by its bits ("fn", "fnuz")."""
    if dtype not in DTYPES:
        return ""
    if dtype in target.fp8_dtypes and target.backend != "interpreter":
        return "native"
    return "fn" if dtype == torch.float8_e4m3fn else "fnuz"


@triton.jit
def widened(b_x, FNUZ: tl.constexpr):
    """fp16 of e4m3 bits in uint8: exact."""
    b_bits = b_x.to(tl.uint16)
    b_half = (((b_bits & 0x80) << 8) | ((b_bits & 0x7F) << 7)).to(tl.float16, bitcast=True)
    if FNUZ:
        return tl.where(b_bits == 0x80, float("nan"), b_half * 128.0).to(tl.float16)
    else:
        return tl.where((b_bits & 0x7F) == 0x7F, float("nan"), b_half * 256.0).to(tl.float16)


@triton.jit
def in_fp16(b_x):
    """Rows as fp16, and the power of two each was divided by: its largest value lies between 1 and
    2, so that none is too large, and what fp16 rounds away is below 2^-24 of it."""
    b_x = b_x.to(tl.float32)
    b_power = tl.max(tl.abs(b_x), 1).to(tl.int32, bitcast=True) >> 23
    b_power = tl.minimum(tl.maximum(b_power, 1), 253)
    b_inverse = ((254 - b_power) << 23).to(tl.float32, bitcast=True)
    b_size = (b_power << 23).to(tl.float32, bitcast=True)
    return (b_x * b_inverse[:, None]).to(tl.float16), b_size


# Bytes 0 and 2, then 1 and 3: of two elements of 16 bits the lower, then the upper bytes.
_BOTH = tl.constexpr("""{
.reg .b32 sorted;
.reg .b16 lower, upper;
prmt.b32 sorted, $2, 0, 0x3120;
mov.b32 {lower, upper}, sorted;
cvt.rn.f16x2.e4m3x2 $0, lower;
cvt.rn.f16x2.e4m3x2 $1, upper;
}""")


@triton.jit
def both_widened(b_x, FP8: tl.constexpr):
    """fp16 of the lower and of the upper bytes of integers of 16 bits, FP8 being how (``way``).

    "native" is CUDA's alone: three instructions for four values, which Triton does not find."""
    if FP8 == "native":
        return tl.inline_asm_elementwise(
            _BOTH, "=r,=r,r", [b_x], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:
        b_low = (b_x & 0xFF).to(tl.uint8)
        b_high = (b_x.to(tl.uint16) >> 8).to(tl.uint8)
        return widened(b_low, FP8 == "fnuz"), widened(b_high, FP8 == "fnuz")


@triton.jit
def narrowed(b_x, FNUZ: tl.constexpr):
    """e4m3 bits in uint8 of fp32, to nearest even; what is too large becomes the largest."""
    b_bits = b_x.to(tl.uint32, bitcast=True)
    b_size = (b_bits & 0x7FFFFFFF).to(tl.float32, bitcast=True)
    b_size = tl.minimum(b_size, 240.0 if FNUZ else 448.0)
    b_power = (b_size.to(tl.uint32, bitcast=True) >> 23).to(tl.int32)
    # Of numbers 2^p to 2^(p+1) the last of three mantissa bits is 2^(p-3): added to 1.5 * 2^23
    # times that, a number is rounded there. Subnormal ones all have the smallest p.
    b_power = tl.maximum(b_power, 120 if FNUZ else 121) + 20
    b_large = ((b_power << 23) | 0x400000).to(tl.float32, bitcast=True)
    b_size = (b_size + b_large) - b_large
    b_half = (b_size * (0.0078125 if FNUZ else 0.00390625)).to(tl.float16)
    b_code = b_half.to(tl.uint16, bitcast=True) >> 7
    b_sign = ((b_bits >> 24) & 0x80).to(tl.uint16)
    if FNUZ:
        b_sign = tl.where(b_code == 0, 0, b_sign).to(tl.uint16)
    b_nan = tl.full(b_code.shape, 0x80 if FNUZ else 0x7F, tl.uint16)
    return tl.where(b_x != b_x, b_nan, b_code | b_sign).to(tl.uint8)

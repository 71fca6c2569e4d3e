"""bf16, e4m3 and fused products of Triton's interpreter, mended to be what the hardware's are.

Triton 3.6 to 3.9 keep bf16 as raw integers: products multiply the bits, which makes results 1e9
times too large, and casts from fp32 truncate instead of rounding to nearest even. Casts to e4m3
lose the carry (1.97 becomes 1) and truncate below the normal range, e4m3's NaN is not known, nor a
cast to fnuz. torch's casts serve instead. fma rounds the product, too: of fp32 it is exact in fp64.
Imported where Triton interprets alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from triton.runtime import interpreter

np = interpreter.np  # as Triton has it: the package itself asks for torch and triton alone
FLOAT8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e4b8: torch.float8_e4m3fnuz}


def mend() -> None:
    """Mends it for every kernel of this process; where it is mended already, nothing."""
    builder = interpreter.InterpreterBuilder
    if builder.create_dot.__module__ != interpreter.__name__:
        return
    plain_dot, plain_fma = builder.create_dot, builder.create_fma
    plain_cast, plain_convert = builder.cast_impl, builder.create_fp_to_fp

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain_dot(self, _widened(a), _widened(b), *rest)

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if source.dtype.scalar == tl.float32 and kind.scalar == tl.bfloat16:
            wide = np.ascontiguousarray(source.data, dtype=np.float32)
            rounded = torch.from_numpy(wide).to(torch.bfloat16).view(torch.int16).numpy()
            return interpreter.TensorHandle(rounded.view(np.uint16), tl.bfloat16)
        return plain_cast(self, _widened(source), kind)

    def create_fp_to_fp(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        if source.dtype.scalar in FLOAT8:
            return cast_impl(self, _widened(source), kind)
        if kind.scalar in FLOAT8:
            wide = np.ascontiguousarray(_widened(source).data, dtype=np.float32)
            rounded = torch.from_numpy(wide).to(FLOAT8[kind.scalar]).view(torch.uint8).numpy()
            return interpreter.TensorHandle(rounded, kind.scalar)
        return plain_convert(self, source, kind, rounding)

    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if z.dtype.scalar != tl.float32:
            return plain_fma(self, x, y, z)
        fused = np.multiply(x.data, y.data, dtype=np.float64) + z.data
        return interpreter.TensorHandle(fused.astype(np.float32), tl.float32)

    plain_patch = interpreter._patch_lang_core

    def patch_lang_core(lang: Any, *rest: Any) -> None:
        plain_patch(lang, *rest)
        plain_to_ir = lang.dtype.to_ir

        def to_ir(self: Any, builder: Any) -> Any:
            return self if self == tl.float8e4b8 else plain_to_ir(self, builder)

        lang.dtype.to_ir = to_ir

    interpreter._patch_lang_core = patch_lang_core
    builder.create_fp_to_fp = create_fp_to_fp
    builder.create_dot = create_dot
    builder.create_fma = create_fma
    builder.cast_impl = cast_impl
    for name in ("create_fp_ext", "create_fp_trunc", "create_fp_to_si", "create_si_to_fp"):
        setattr(builder, name, cast_impl)


def _widened(handle: Any) -> Any:
    """bf16 and e4m3 as fp32, which holds them exactly; of another type ``handle`` itself."""
    kind = handle.dtype.scalar
    if kind in FLOAT8:
        bits = torch.from_numpy(np.ascontiguousarray(handle.data, dtype=np.uint8))
        return interpreter.TensorHandle(bits.view(FLOAT8[kind]).float().numpy(), tl.float32)
    if kind != tl.bfloat16:
        return handle
    bits = handle.data.view(np.uint16).astype(np.uint32) << 16
    return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

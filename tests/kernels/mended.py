"""Triton's interpreter mended where it is slow, differs between processors, or is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch


def mend_interpreter() -> None:
    spare_the_interpreter()
    mend_functions()
    mend_small_floats()


def mend_functions() -> None:
    """Exponentials and logarithms of fp32 rounded once. numpy's are off by up to four units in
    the last place, and by others on another processor, which no bar of a kernel's own allows for.
    """
    import numpy as np
    from triton.runtime import interpreter

    def rounded_once(function: Any) -> Any:
        def create(self: Any, argument: Any) -> Any:
            with np.errstate(divide="ignore"):
                found = function(argument.data, dtype=np.float64)
            return interpreter.TensorHandle(
                found.astype(argument.data.dtype), argument.dtype.scalar
            )

        return create

    for name in ("exp", "exp2", "log", "log2"):
        setattr(interpreter.InterpreterBuilder, f"create_{name}", rounded_once(getattr(np, name)))


def spare_the_interpreter() -> None:
    """Leave out what it does in vain, most of its time: the values are the same.

    It computes every integer sum and product a second time, in 64 bits, for an assertion that
    without its ``debug`` nobody makes. It patches the language again at every call of a function
    by a kernel whose launch has patched it. And it looks numpy's types up in a table it makes anew.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder
    assert not builder.options.debug
    builder.options = replace(builder.options, sanitize_overflow=False)
    plain_patch, plain_dtype = interpreter._patch_lang, interpreter._get_np_dtype
    modules, patched = (("tl", tl), ("tl.core", tl.core)), set[str]()
    dtypes: dict[str, Any] = {}

    def patch_lang(function: Any) -> Any:
        if tl.core.is_builtin(tl.load):
            patched.clear()  # a launch begins
        seen = function.__globals__.values()
        languages = [name for name, one in modules if any(one is value for value in seen)]
        if patched.issuperset(languages):
            return interpreter._LangPatchScope()
        patched.update(languages)
        return plain_patch(function)

    def get_np_dtype(kind: Any) -> Any:
        if kind.name not in dtypes:
            dtypes[kind.name] = plain_dtype(kind)
        return dtypes[kind.name]

    interpreter._patch_lang = patch_lang
    interpreter._get_np_dtype = get_np_dtype


def mend_small_floats() -> None:
    """Make the interpreter's bf16 and e4m3 what the hardware's are.

    It keeps bf16 as raw uint16: dot products multiply the bits, and casts from fp32 truncate
    instead of rounding to nearest even. Without this, errors of any bf16 kernel reach 1e9. Its
    casts to e4m3 lose the carry (1.97 becomes 1) and truncate below the normal range, it does not
    know e4m3's NaN, nor a cast to fnuz: torch's casts serve instead.
    """
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    plain_dot, plain_cast, plain_convert = (
        builder.create_dot,
        builder.cast_impl,
        builder.create_fp_to_fp,
    )
    float8 = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e4b8: torch.float8_e4m3fnuz}

    def widen(handle: Any) -> Any:
        if handle.dtype.scalar in float8:
            bits = torch.from_numpy(np.ascontiguousarray(handle.data, dtype=np.uint8))
            wide = bits.view(float8[handle.dtype.scalar]).float().numpy()
            return interpreter.TensorHandle(wide, tl.float32)
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        bits = handle.data.view(np.uint16).astype(np.uint32) << 16
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain_dot(self, widen(a), widen(b), *rest)

    def cast_impl(self: Any, source: Any, kind: Any) -> Any:
        if source.dtype.scalar == tl.float32 and kind.scalar == tl.bfloat16:
            wide = np.ascontiguousarray(source.data, dtype=np.float32)
            rounded = torch.from_numpy(wide).to(torch.bfloat16).view(torch.int16).numpy()
            return interpreter.TensorHandle(rounded.view(np.uint16), tl.bfloat16)
        return plain_cast(self, widen(source), kind)

    def create_fp_to_fp(self: Any, source: Any, kind: Any, rounding: Any) -> Any:
        if source.dtype.scalar in float8:
            return cast_impl(self, widen(source), kind)
        if kind.scalar in float8:
            wide = np.ascontiguousarray(widen(source).data, dtype=np.float32)
            rounded = torch.from_numpy(wide).to(float8[kind.scalar]).view(torch.uint8).numpy()
            return interpreter.TensorHandle(rounded, kind.scalar)
        return plain_convert(self, source, kind, rounding)

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
    builder.cast_impl = cast_impl
    for name in ("create_fp_ext", "create_fp_trunc", "create_fp_to_si", "create_si_to_fp"):
        setattr(builder, name, cast_impl)

"""Runs kernels in Triton's interpreter, in a process of its own, and measures their errors.

Triton decides at import whether it interprets, so the process that runs the other tests cannot.
Everything here that takes a case runs in that worker; ``Worker.run`` hands the result back.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import torch


@dataclass(frozen=True)
class Errors:
    """Errors against fp64 of a kernel and of the plain formula PyTorch computes in its dtype."""

    max_error: float
    max_excess: float
    rms: float
    plain_max_error: float
    plain_rms: float
    count: int
    # The largest error by its bar: above 1 is beyond it.
    share: float = 0.0

    def check(self, what: str) -> None:
        """Maximum within 2x the plain formula's plus one unit in the last place, RMS within 1.1x.

        Below a thousand values the RMS of two roundings of the same truth scatters by itself: only
        there the bar widens, by one over the square root of their count.
        """
        if not self.count:
            return
        bar = 1.1 if self.count >= 1000 else 1.1 + 1.0 / math.sqrt(self.count)
        assert self.max_excess <= 0.0, f"{what}: maximum error beyond the bar: {self}"
        assert self.rms <= bar * self.plain_rms, f"{what}: RMS error above {bar:.2f}x: {self}"


def measure(got: torch.Tensor, plain: torch.Tensor, truth: torch.Tensor) -> Errors:
    """Compare where the truth is finite; elsewhere the kernel must give the same value."""
    assert got.shape == truth.shape, f"expected shape {truth.shape}, got {got.shape}"
    finite = torch.isfinite(truth)
    assert torch.equal(got[~finite].double(), truth[~finite]), "infinities differ"
    if not finite.any():
        return Errors(0.0, 0.0, 0.0, 0.0, 0.0, 0)
    value, plain_value, true = got[finite].double(), plain[finite].double(), truth[finite]
    error, plain_error = (value - true).abs(), (plain_value - true).abs()
    info = torch.finfo(got.dtype)
    ulp = info.eps * torch.exp2(torch.floor(torch.log2(true.abs().clamp_min(info.tiny))))
    bar = 2.0 * plain_error.max() + ulp
    return Errors(
        # NaN compares false with everything: a NaN the kernel left behind fails the bar.
        max_error=float(error.max()),
        max_excess=float((error - bar).max()),
        rms=float(error.square().mean().sqrt()),
        plain_max_error=float(plain_error.max()),
        plain_rms=float(plain_error.square().mean().sqrt()),
        count=int(finite.sum()),
        share=float((error / bar).max()),
    )


def strided(shape: tuple[int, ...], view: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random values of ``shape`` in memory order ``view``.

    ``contiguous``; ``transposed`` swaps axes 1 and 2 in memory; ``padded`` leaves gaps of NaN
    after each row that a kernel must not read; ``skipping`` takes every second element, so that
    no axis has stride 1.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator).to(dtype)
    if view == "transposed":
        first, second = (1, 2) if len(shape) > 2 else (0, 1)
        return drawn.transpose(first, second).contiguous().transpose(first, second)
    if view == "padded":
        room = torch.full((*shape[:-1], shape[-1] + 3), float("nan"), dtype=dtype)
        room[..., : shape[-1]] = drawn
        return room[..., : shape[-1]]
    if view == "skipping":
        room = torch.full((*shape[:-1], 2 * shape[-1]), float("nan"), dtype=dtype)
        room[..., ::2] = drawn
        return room[..., ::2]
    assert view == "contiguous", view
    return drawn


class Worker:
    """One process in which Triton interprets; functions given to ``run`` are pickled by name."""

    def __init__(self) -> None:
        before = os.environ.get("TRITON_INTERPRET")
        os.environ["TRITON_INTERPRET"] = "1"
        try:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), initializer=_prepare)
            self._pool.submit(_answer).result()
        finally:
            if before is None:
                del os.environ["TRITON_INTERPRET"]
            else:
                os.environ["TRITON_INTERPRET"] = before

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self._pool.submit(function, *arguments).result()

    def close(self) -> None:
        self._pool.shutdown()


def _answer() -> None:
    """The pool starts its process on the first task."""


def _prepare() -> None:
    torch.set_num_threads(1)
    # torch.empty then gives NaN: what a kernel fails to write shows.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    spare_the_interpreter()
    mend_small_floats()


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

"""Triton's interpreter mended where it is slow or differs between processors; where it is wrong
``kernels`` mends it (kernels/runtime/interpreter.py)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any


def mend_interpreter() -> None:
    from tests.kernels.short_ways import take_short_ways

    spare_the_interpreter()
    spare_its_types()
    mend_functions()
    take_short_ways()


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
    spoken: dict[Any, list[str]] = {}

    def patch_lang(function: Any) -> Any:
        if tl.core.is_builtin(tl.load):
            patched.clear()  # a launch begins
        if function not in spoken:
            seen = function.__globals__.values()
            spoken[function] = [name for name, one in modules if any(one is it for it in seen)]
        languages = spoken[function]
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


def spare_its_types() -> None:
    """Types and shapes of blocks are made once: anew with every value, they take more time than the
    values do. None of them is ever changed, and those of one shape need not be compared."""
    from triton.language import core, semantic

    from tests.kernels.short_ways import SHAPES

    plain_type, plain_unwrap = core.block_type.__init__, core._unwrap_if_constexpr
    plain_equal, plain_broadcast = core.dtype.__eq__, semantic.TritonSemantic.broadcast_impl_value
    types: dict[tuple[Any, ...], dict[str, Any]] = {}
    numels: dict[tuple[int, ...], Any] = {}
    as_they_are = (int, float, str, bool, type(None), core.dtype)

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is core.constexpr:
            return value.value
        return value if kind in as_they_are else plain_unwrap(value)

    def make_type(self: Any, element_ty: Any, shape: Any) -> None:
        if type(element_ty) is not core.dtype:  # pointers know more than their name
            plain_type(self, element_ty, shape)
            return
        key = (element_ty.name, *map(unwrap, shape))
        if key not in types:
            plain_type(self, element_ty, shape)
            types[key] = dict(self.__dict__)
        self.__dict__.update(types[key])

    def make_tensor(self: Any, handle: Any, type: Any) -> None:
        sizes = tuple(type.shape) if type.is_block() else ()
        if sizes not in numels:
            numels[sizes] = core.constexpr(math.prod(sizes))
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.numel, self.shape = numels[sizes], SHAPES.of(sizes)

    def equal(self: Any, other: Any) -> bool:
        return self is other or plain_equal(self, other)

    def broadcast(self: Any, left: Any, right: Any) -> Any:
        return (left, right) if left.shape is right.shape else plain_broadcast(self, left, right)

    core._unwrap_if_constexpr = unwrap
    core.block_type.__init__ = make_type
    core.tensor.__init__ = make_tensor
    core.dtype.__eq__ = equal
    semantic.TritonSemantic.broadcast_impl_value = broadcast

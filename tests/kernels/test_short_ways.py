"""What takes a short way through the interpreter is, bit for bit, what the long way gives."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.kernels.interpreted import Worker

FLOATS, WHOLE = ("fp16", "fp32", "fp64"), ("int32", "int64", "uint32", "int8")
SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (4, 1), (8,))
OFFSETS = ("int32", "int64")
NUMBERS = (0, -0.0, 3, -3, 0.3, 1e300, math.inf, 2**31, 2**40)


def _operands() -> dict[str, list[Any]]:
    """By type, tensors of each shape as the interpreter has them."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle, _get_np_dtype

    kinds = {one.name: one for one in (tl.float16, tl.float32, tl.float64, tl.int32, tl.int64)}
    kinds |= {one.name: one for one in (tl.uint32, tl.int8, tl.int1, tl.bfloat16)}
    kinds["pointer"] = tl.pointer_type(tl.float32)
    drawn = np.random.default_rng(0)
    found: dict[str, list[Any]] = {}
    for name, kind in kinds.items():
        for sizes in SHAPES:
            values = drawn.normal(0, 40, sizes or (1,))
            values.flat[0] = -0.0 if name in FLOATS else 0
            if (name not in FLOATS and name not in WHOLE) or name.startswith("u"):
                values = np.abs(values)
            data = values.astype(_get_np_dtype(kind))
            of = tl.core.block_type(kind, list(sizes)) if sizes else kind
            found.setdefault(name, []).append(tl.tensor(TensorHandle(data, kind), of))
    return found


def _told(found: Any) -> tuple[Any, ...]:
    data = found.handle.data
    shape = tuple(one.value for one in found.shape)
    kinds = (str(found.handle.dtype), str(found.type), str(found.dtype), shape, found.numel.value)
    return (data.tobytes(), data.dtype.str, data.shape, *kinds)


def compared() -> tuple[dict[str, int], list[str]]:
    """How often each method took its short way, and where that gave another result."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    from kernels.device.products import add_product  # any function that Triton interprets
    from tests.kernels import short_ways

    semantic = interpreter.interpreter_semantic
    by_type, taken, wrong = _operands(), {}, []
    tensors = [one for several in by_type.values() for one in several]
    # With its own type and as an offset, a tensor meets every shape; with others, its own.
    meet = {
        id(own): [
            other
            for other in tensors
            if own.shape is other.shape
            or own.dtype == other.dtype
            or (other.dtype.name in OFFSETS and own.dtype.name not in FLOATS)
        ]
        for own in tensors
    }
    numbers = [*NUMBERS, tl.constexpr(5)]
    slices: list[Any] = [(slice(None), None), (None, slice(None)), (None, slice(None), None)]
    targets: list[Any] = [tl.float16, tl.float32, tl.float64, tl.int32, tl.int64, tl.bfloat16]
    both = {f"__{name}__" for name in short_ways.BINARY}
    both |= {f"__r{name}__" for name in short_ways.BINARY}
    scope = interpreter._patch_lang(add_product.fn)
    try:
        for name, shorter in {**short_ways.methods(), **short_ways.FUNCTIONS}.items():
            plain = _unpatched(scope, name)
            calls = [0]

            def counted(*given: Any, plain: Any = plain, calls: Any = calls, **named: Any) -> Any:
                calls[0] += 1
                return plain(*given, **named)

            short = shorter(counted)
            given: list[tuple[Any, ...]]
            if name == "__neg__":
                given = [(own,) for own in tensors]
            elif name == "__getitem__":
                given = [(own, one) for own in tensors for one in slices]
            elif name == "to":
                given = [(own, one) for own in tensors for one in targets]
            elif name == "where":
                alike = [(own, one) for own in tensors for one in tensors if one.shape is own.shape]
                alike += [(own, one) for own in tensors for one in numbers]
                chosen = [*by_type["int1"], by_type["int32"][1]]
                given = [(one, *two) for one in chosen for two in alike]
            else:
                given = [(own, one) for own in tensors for one in numbers]
                if name in both:
                    given += [(own, one) for own in tensors for one in meet[id(own)]]
            for arguments in given:
                before = calls[0]
                outcomes = []
                with np.errstate(all="ignore"):
                    for way in (plain, short):
                        try:
                            outcomes.append(_told(way(*arguments, _semantic=semantic)))
                        except Exception as error:
                            outcomes.append((type(error).__name__, str(error)))
                taken[name] = taken.get(name, 0) + (calls[0] == before)
                if outcomes[0] != outcomes[1]:
                    wrong.append(f"{name} of {arguments}: {outcomes}")
    finally:
        scope.restore()
    return taken, wrong


def _unpatched(scope: Any, name: str) -> Any:
    import triton.language as tl

    owner = tl.tensor if hasattr(tl.tensor, name) else tl
    (plain,) = {old for where, of, old in scope._changes if where is owner and of == name}
    return plain


@pytest.fixture(scope="module")
def found(interpreter: Worker) -> tuple[dict[str, int], list[str]]:
    result: tuple[dict[str, int], list[str]] = interpreter.run(compared)
    return result


def test_short_ways_give_the_same(found: tuple[dict[str, int], list[str]]) -> None:
    _, wrong = found
    assert not wrong, "\n".join(wrong[:20])


def test_every_short_way_is_taken(found: tuple[dict[str, int], list[str]]) -> None:
    taken, _ = found
    assert len(taken) > 30 and min(taken.values()) > 0, taken

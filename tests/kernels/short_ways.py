"""Short ways through Triton's interpreter for what kernels do most: the values stay the same.

For every operation it checks types, makes constants and broadcasts in a dozen calls before numpy
is asked once, which broadcasts by itself. Here operands that need no conversion go to numpy at
once; all others take the way they took before. ``test_short_ways`` compares both, bit for bit.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import TensorHandle

Operation = Callable[..., Any]
# Types whose arrays hold their values: bf16 and fp8 lie in integers.
FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
SIGNED = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64}
UNSIGNED = {"uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64}
WHOLE = SIGNED | UNSIGNED
NUMBERS = FLOATS | WHOLE
OFFSETS = {"int32", "int64"}
# A number of Python's is an int32 or an fp32 before it is compared: no other type is the same.
COMPARED = {"fp32": np.float32, "int32": np.int32, "int64": np.int64}
LOWEST, HIGHEST = -(2**31), 2**31
SMALLEST, LARGEST = 2.0**-126, (2 - 2**-23) * 2.0**127

_tensor, _dtype, _pointer = tl.tensor, tl.core.dtype, tl.core.pointer_type
_semantic = interpreter.interpreter_semantic
_NOTHING = slice(None)


class Shapes:
    """Each shape is one object, so that two of them are compared by their identity."""

    def __init__(self) -> None:
        self._of: dict[tuple[int, ...], Any] = {}
        # What is looked up by identity is kept, so that no other object takes its place.
        self._joint: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        self._taken: dict[tuple[int, tuple[bool, ...]], tuple[Any, Any]] = {}

    def of(self, sizes: tuple[int, ...]) -> Any:
        if sizes not in self._of:
            self._of[sizes] = tl.core.tuple([tl.constexpr(one) for one in sizes])
        return self._of[sizes]

    def joint(self, left: Any, right: Any) -> Any:
        """The shape of both broadcast, ``None`` where they do not fit."""
        if left is right:
            return left
        key = (id(left), id(right))
        if key not in self._joint:
            sizes = [tuple(one.value for one in shape) for shape in (left, right)]
            try:
                found = self.of(np.broadcast_shapes(*sizes))
            except ValueError:
                found = None
            self._joint[key] = (left, right, found)
        return self._joint[key][2]

    def taken(self, shape: Any, added: tuple[bool, ...]) -> Any:
        """The shape with an axis of 1 at each place where ``added`` says so."""
        key = (id(shape), added)
        if key not in self._taken:
            sizes = [one.value for one in shape]
            for place, new in enumerate(added):
                if new:
                    sizes.insert(place, 1)
            self._taken[key] = (shape, self.of(tuple(sizes)))
        return self._taken[key][1]

    def type(self, kind: Any, shape: Any) -> tuple[Any, Any, Any]:
        """A shape, the type of its blocks, or of a scalar where it has no axes, and its size."""
        known = kind.__dict__.setdefault("of_shape", {})  # pointers know more than their name
        if id(shape) not in known:
            sizes = [one.value for one in shape]
            of = tl.core.block_type(kind, sizes) if sizes else kind
            known[id(shape)] = (shape, of, tl.constexpr(math.prod(sizes)))
        found: tuple[Any, Any, Any] = known[id(shape)]
        return found


SHAPES = Shapes()


def made(data: Any, stored: Any, kind: Any, shape: Any) -> Any:
    """A tensor, as its constructor makes it; ``stored`` is the type that its handle names."""
    handle = object.__new__(TensorHandle)
    handle.data, handle.dtype, handle.attr = data, stored, {}
    found = object.__new__(_tensor)
    found.handle, found.dtype = handle, kind
    found.shape, found.type, found.numel = SHAPES.type(kind, shape)
    return found


def _same(left: Any, right: Any) -> bool:
    """Whether both are of one type that is no pointer's."""
    return left is right or (type(left) is _dtype is type(right) and left.name == right.name)


def _number(value: Any, name: str, kinds: dict[str, Any]) -> Any:
    """A number of Python's as the array that Triton makes of it next to a tensor of this type,
    ``None`` where that would change the tensor's type."""
    kind = type(value)
    if name in FLOATS:
        # Other numbers are fp64: they change what an fp32 is compared in.
        size = abs(value) if kind is float else 0.0
        if kind is int or (
            kind is float and (SMALLEST <= size <= LARGEST or size in (0.0, math.inf))
        ):
            return np.array([value or 0], dtype=kinds[name])  # of -0.0 it makes 0.0
    elif kind is int and (LOWEST if name in SIGNED else 0) <= value < HIGHEST and name in WHOLE:
        info = np.iinfo(kinds[name])
        return np.array([value], dtype=kinds[name]) if info.min <= value <= info.max else None
    return None


def binary(
    operate: Operation, kinds: dict[str, Any], compares: bool = False, numbers: Any = None
) -> Callable[[Operation], tuple[Operation, Operation]]:
    """Short ways of an operation of two tensors of one type, or a tensor and a number.

    Args:
        operate: numpy's.
        kinds: The types that it may be applied to as they are.
        compares: It gives truth values.
        numbers: The types that a number may be combined with; those of ``kinds`` otherwise.

    Returns:
        Takes the long way, gives the short one and that with the operands in the other order.
    """
    with_numbers = kinds if numbers is None else numbers

    def of(plain: Operation, reflected: bool) -> Operation:
        def way(self: Any, other: Any, **_: Any) -> Any:
            kind = self.dtype
            name = kind.name
            if name in kinds:
                own = self.handle.data
                if type(other) is _tensor:
                    theirs, others = other.handle.data, other.dtype
                    if reflected:  # only for numbers Python tries this order
                        fits, stored = False, None
                    elif others is kind or _same(kind, others):
                        fits, stored = own.dtype == theirs.dtype, self.handle.dtype
                    else:  # numpy widens as Triton does
                        fits = name in SIGNED and type(others) is _dtype and others.name in SIGNED
                        if fits and others.int_bitwidth > kind.int_bitwidth:
                            kind = others
                        stored = kind
                    shape = SHAPES.joint(self.shape, other.shape) if fits else None
                    if shape is not None:
                        data = operate(own, theirs)
                        return made(data, stored, tl.int1 if compares else kind, shape)
                elif name in with_numbers:
                    value = other.value if type(other) is tl.constexpr else other
                    theirs = _number(value, name, kinds)
                    if theirs is not None and theirs.dtype == own.dtype:
                        data = operate(theirs, own) if reflected else operate(own, theirs)
                        result = tl.int1 if compares else kind
                        return made(data, self.handle.dtype, result, self.shape)
            return plain(self, other, _semantic=_semantic)

        return way

    return lambda plain: (of(plain, False), of(plain, True))


def whole_quotient(left: Any, right: Any) -> Any:
    """As the interpreter divides integers: towards zero."""
    return (left - np.fmod(left, right)) // right


TRUTHS = {"int1": np.bool_}
BITS = WHOLE | TRUTHS
DIVIDED = {name: NUMBERS[name] for name in ("fp32", "fp64")}
BINARY = {
    "add": binary(np.add, NUMBERS),
    "sub": binary(np.subtract, NUMBERS),
    "mul": binary(np.multiply, NUMBERS),
    "truediv": binary(np.divide, DIVIDED),
    "floordiv": binary(whole_quotient, SIGNED),
    "mod": binary(np.fmod, SIGNED),
    "and": binary(np.bitwise_and, BITS, numbers=WHOLE),
    "or": binary(np.bitwise_or, BITS, numbers=WHOLE),
    "xor": binary(np.bitwise_xor, BITS, numbers=WHOLE),
    "lt": binary(np.less, NUMBERS, compares=True, numbers=COMPARED),
    "le": binary(np.less_equal, NUMBERS, compares=True, numbers=COMPARED),
    "gt": binary(np.greater, NUMBERS, compares=True, numbers=COMPARED),
    "ge": binary(np.greater_equal, NUMBERS, compares=True, numbers=COMPARED),
    "eq": binary(np.equal, NUMBERS, compares=True, numbers=COMPARED),
    "ne": binary(np.not_equal, NUMBERS, compares=True, numbers=COMPARED),
}


def negated(plain: Operation) -> Operation:
    def negate(self: Any, **_: Any) -> Any:
        kind, own = self.dtype, self.handle.data
        if kind.name in NUMBERS and own.dtype == NUMBERS[kind.name]:
            # As Triton does it: of zero no negative zero comes.
            return made(own.dtype.type(0) - own, self.handle.dtype, kind, self.shape)
        return plain(self, _semantic=_semantic)

    return negate


def also_pointers(plain: Operation) -> Operation:
    """Sums, also of pointers and signed offsets."""
    numbers = BINARY["add"](plain)[0]

    def add(self: Any, other: Any, **_: Any) -> Any:
        kind = self.dtype
        if type(kind) is not _pointer:
            return numbers(self, other)
        if type(other) is _tensor and type(other.dtype) is _dtype and other.dtype.name in OFFSETS:
            shape = SHAPES.joint(self.shape, other.shape)
            if shape is not None:
                size = max(1, kind.element_ty.primitive_bitwidth // 8)
                data = self.handle.data + size * other.handle.data.astype(np.uint64)
                return made(data, self.handle.dtype, kind, shape)
        return plain(self, other, _semantic=_semantic)

    return add


def taking(plain: Operation) -> Operation:
    """``x[:, None]`` and the like, of blocks."""

    def take(self: Any, slices: Any, **_: Any) -> Any:
        axes = type(slices) is tuple and len(self.shape)
        if axes and all(one is None or one == _NOTHING for one in slices):
            shape = SHAPES.taken(self.shape, tuple(one is None for one in slices))
            handle = self.handle
            return made(handle.data[slices], handle.dtype.scalar, self.dtype, shape)
        return plain(self, slices, _semantic=_semantic)

    return take


def casting(plain: Operation) -> Operation:
    """Casts between numbers, but those that round twice or to other types."""

    def to(self: Any, dtype: Any, *rest: Any, **named: Any) -> Any:
        wanted = dtype.value if type(dtype) is tl.constexpr else dtype
        named.pop("_semantic", None)
        if type(wanted) is _dtype and not rest and not named:
            kind = self.dtype
            if _same(kind, wanted):
                return self
            before, after = kind.name, wanted.name
            if before in NUMBERS and after in NUMBERS and (before != "fp16" or after == "fp32"):
                data = self.handle.data.astype(NUMBERS[after])
                return made(data, wanted, wanted, self.shape)
        return plain(self, dtype, *rest, **named, _semantic=_semantic)

    return to


def shifting(plain: Operation) -> Operation:
    """Unsigned ones to the right, by a number below their width."""

    def shift(self: Any, other: Any, **_: Any) -> Any:
        value = other.value if type(other) is tl.constexpr else other
        name, own = self.dtype.name, self.handle.data
        fits = type(value) is int and 0 <= value < 8 * own.itemsize
        if fits and name in UNSIGNED and own.dtype == UNSIGNED[name]:
            data = np.right_shift(own, own.dtype.type(value))
            return made(data, self.handle.dtype, self.dtype, self.shape)
        return plain(self, other, _semantic=_semantic)

    return shift


def choosing(plain: Operation) -> Operation:
    """``where`` of two tensors of one type, or a tensor and a number."""

    def where(condition: Any, x: Any, y: Any, **_: Any) -> Any:
        if type(condition) is _tensor is type(x) and condition.dtype.name == "int1":
            kind, chosen = x.dtype, condition.handle.data
            own, name = x.handle.data, kind.name
            theirs = shape = None
            if name in NUMBERS and type(y) is _tensor:
                if _same(kind, y.dtype):
                    theirs, stored, shape = y.handle.data, y.handle.dtype, y.shape
            elif name in NUMBERS:
                value = y.value if type(y) is tl.constexpr else y
                theirs, stored, shape = _number(value, name, NUMBERS), kind, SHAPES.of(())
            if theirs is not None and own.dtype == theirs.dtype and chosen.dtype == np.bool_:
                shape = SHAPES.joint(x.shape, shape)
                shape = None if shape is None else SHAPES.joint(condition.shape, shape)
                if shape is not None:
                    return made(np.where(chosen, own, theirs), stored, kind, shape)
        return plain(condition, x, y, _semantic=_semantic)

    return where


def methods() -> dict[str, Callable[[Operation], Operation]]:
    """What makes the short way of each method of a tensor out of its long one."""
    found: dict[str, Callable[[Operation], Operation]] = {}
    for name, ways in BINARY.items():
        found[f"__{name}__"] = lambda plain, ways=ways: ways(plain)[0]
        found[f"__r{name}__"] = lambda plain, ways=ways: ways(plain)[1]
    return found | {
        "__add__": also_pointers,
        "__neg__": negated,
        "__rshift__": shifting,
        "__getitem__": taking,
        "to": casting,
    }


FUNCTIONS = {"where": choosing}


def take_short_ways() -> None:
    """Have every launch of this process take them."""
    plain_patch = interpreter._patch_attr
    assert plain_patch.__module__ == interpreter.__name__, "they are taken already"
    checked = tl.core.builtin(operator.add).__code__
    of_tensors = methods()
    known: dict[tuple[bool, str, Operation], Operation] = {}

    def long_way(member: Any) -> Operation:
        # That it was given a semantic need not be checked.
        plain = member.__wrapped__ if getattr(member, "__code__", None) is checked else member

        def way(*arguments: Any, **named: Any) -> Any:
            named["_semantic"] = _semantic
            return plain(*arguments, **named)

        return way

    def patch(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        key = (owner is _tensor, name, member)
        if key not in known:
            way = long_way(member)
            shorter = of_tensors if key[0] else FUNCTIONS
            known[key] = shorter[name](way) if name in shorter else way
        scope.set_attr(owner, name, known[key])

    plain_cast, scalar = type(_semantic).cast, SHAPES.of(())

    def cast(self: Any, input: Any, dst_ty: Any, *rest: Any) -> Any:
        if input.dtype is dst_ty:
            return input
        return plain_cast(self, input, dst_ty, *rest)

    type(_semantic).cast = cast
    plain_to_tensor = type(_semantic).to_tensor

    def to_tensor(self: Any, x: Any, check_type: bool = True) -> Any:
        kind = type(x)
        if kind is _tensor:
            return x
        if kind is int and LOWEST <= x < HIGHEST:
            return made(np.array([x], dtype=np.int32), tl.int32, tl.int32, scalar)
        return plain_to_tensor(self, x, check_type)

    type(_semantic).to_tensor = to_tensor
    interpreter._patch_attr = patch

"""The interpreter's arithmetic and addresses are those of Triton and of the card."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
import triton.language as tl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor
from triton.language.semantic import TritonSemantic

from kernels.device.hopper_rings import layout
from warpwatch.simulator.errors import MisuseError
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer, Storage
from warpwatch.simulator.values import ptx
from warpwatch.simulator.values.blocks import Block, block_of
from warpwatch.simulator.values.elements import KEPT, OF_TORCH, decode, encode, meeting
from warpwatch.simulator.words import language, reductions, standard

INTEGERS = (tl.int1, tl.int8, tl.int16, tl.int32, tl.int64)
UNSIGNED = (tl.uint8, tl.uint16, tl.uint32, tl.uint64)
FLOATS = (tl.float16, tl.bfloat16, tl.float32, tl.float64)
NARROW = (tl.float8e4nv, tl.float8e5)


def of(values: Any, kind: tl.dtype = tl.int32) -> Block:
    return Block(np.asarray(values, KEPT[kind.name]), kind)


def listed(block: Block) -> list[Any]:
    return block.data.tolist()


# Types.


@pytest.mark.parametrize("divides", [False, True])
def test_types_meet_as_tritons_do(divides: bool) -> None:
    kinds = (*INTEGERS, *UNSIGNED, *FLOATS)
    pairs = [*product(kinds, kinds)] + [*product(NARROW, (*NARROW, *FLOATS))] * (not divides)
    for a, b in pairs:
        try:
            want = TritonSemantic.computation_type_impl(
                TritonSemantic.__new__(TritonSemantic), a, False, b, False, divides
            )
        except TypeError:
            continue
        assert meeting(a, b, divides) == want, (a, b)


@pytest.mark.parametrize("kind", [*INTEGERS[2:], *UNSIGNED[2:], *FLOATS], ids=str)
@pytest.mark.parametrize("number", [True, 3, 2.5], ids=repr)
def test_numbers_meet_blocks_as_tritons_do(kind: tl.dtype, number: float) -> None:
    semantic = TritonSemantic.__new__(TritonSemantic)
    alone = {bool: tl.int1, int: tl.int32, float: tl.float32}[type(number)]
    want = semantic.computation_type_impl(kind, False, alone, True, False)
    for found in (of([1, 2], kind) * number, number * of([1, 2], kind)):
        assert found.dtype == want
        assert listed(found) == [number, 2 * number]
    larger = standard.maximum(of([1, 5], kind), number)
    assert larger.dtype == want and listed(larger) == [max(1, number), 5]


def test_what_triton_makes_of_a_number_alone() -> None:
    found = [block_of(one).dtype for one in (True, -(2**31), 2**40, 0.1)]
    assert found == [tl.int1, tl.int32, tl.int64, tl.float32]
    assert block_of(0.1).data == np.float32(0.1)


# Integers.


def test_integers_wrap() -> None:
    assert listed(of([2**31 - 1]) + 1) == [-(2**31)]
    assert listed(of([0], tl.uint32) - 1) == [2**32 - 1]
    assert listed(of([-1], tl.int64) * of([2**40], tl.int64)) == [-(2**40)]
    assert listed(of([2**40 + 5], tl.int64).to(tl.int32)) == [5]
    assert listed(of([-1]).to(tl.uint8)) == [255] and listed(of([200], tl.uint8).to(tl.int8)) == [
        -56
    ]
    assert listed(of([-1], tl.int8).to(tl.uint32)) == [2**32 - 1]  # its sign first


def test_quotients_are_cut_towards_zero() -> None:
    for a, b in product((-7, -6, -1, 0, 1, 7), (-3, -2, 2, 3)):
        assert listed(of([a]) // b) == [math.trunc(a / b)], (a, b)
        assert listed(of([a]) % b) == [int(math.fmod(a, b))], (a, b)
        assert listed(a // of([b])) == [math.trunc(a / b)]
    assert listed(of([2**32 - 1], tl.uint32) // 2) == [2**31 - 1]
    assert listed(of([7]) // 0) == [-1] and listed(of([7]) % 0) == [7]  # no trap
    with pytest.raises(MisuseError):
        of([7.0], tl.float32) // 2


def test_shifts_keep_the_sign_where_there_is_one() -> None:
    assert listed(of([-8]) >> 1) == [-4] and listed(of([-8]) << 1) == [-16]
    assert listed(of([2**32 - 8], tl.uint32) >> 1) == [2**31 - 4]
    assert listed(of([1]) << 31) == [-(2**31)]
    assert listed(~of([5]) & 0xFF) == [250] and listed(of([5]) ^ 1 | 8) == [12]
    assert not bool(~block_of(True))


# Floating point.


def test_division_is_of_fp32_and_of_integers_too() -> None:
    found = of([1], tl.int32) / 3
    assert found.dtype == tl.float32 and listed(found) == [np.float32(1) / np.float32(3)]
    for kind in (tl.float16, tl.bfloat16):
        assert (of([1.0], kind) / of([3.0], kind)).dtype == tl.float32
    assert listed(of([1.0, -1.0, 0.0], tl.float32) / 0.0)[:2] == [math.inf, -math.inf]


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_16_bits_are_rounded_to_nearest_even(kind: torch.dtype) -> None:
    bits = torch.arange(1 << 15, dtype=torch.int32).to(torch.int16)  # the positive ones
    exact = bits.view(kind).float()
    below = exact[exact.isfinite()][:-1]
    above = exact[exact.isfinite()][1:]
    middle = (below.double() + above.double()).div(2).float()
    near = torch.stack([middle.nextafter(below), middle, middle.nextafter(above)]).flatten()
    more = torch.tensor([math.inf, -math.inf, 0.0, -0.0, 3.4e38, -3.4e38, 65519.9, 65520.0])
    for values in (near, -near, more, exact[~exact.isnan()]):
        found = encode(values.numpy(), OF_TORCH[kind]).view(np.int16)
        assert np.array_equal(found, values.to(kind).view(torch.int16).numpy())
    nan = encode(np.asarray([math.nan, -math.nan], np.float32), OF_TORCH[kind])
    assert np.isnan(decode(nan, OF_TORCH[kind])).all()


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_casts_to_fp8_saturate_and_keep_nan(kind: torch.dtype) -> None:
    dtype, most = OF_TORCH[kind], torch.finfo(kind).max
    every = torch.arange(256, dtype=torch.uint8).view(kind).float()
    finite = every[every.isfinite()].unique()
    assert np.array_equal(
        decode(encode(finite.numpy(), dtype), dtype), finite.numpy()
    )  # there and back
    middle = (finite[1:] + finite[:-1]) / 2
    even = torch.tensor(encode(middle.numpy(), dtype)) & 1
    assert not even.any()  # ties
    for side in (finite[1:], finite[:-1]):
        near = middle.nextafter(side)
        assert np.array_equal(decode(encode(near.numpy(), dtype), dtype), side.numpy())
    beyond = np.asarray([most * 1.2, math.inf, -1e30, -math.inf], np.float32)
    assert decode(encode(beyond, dtype), dtype).tolist() == [most, most, -most, -most]
    assert np.isnan(decode(encode(np.asarray([math.nan], np.float32), dtype), dtype)).all()


def test_values_narrower_than_fp32_are_rounded_after_every_operation() -> None:
    one, tiny = of([1.0], tl.bfloat16), of([2.0**-9], tl.bfloat16)
    assert listed((one + tiny) - one) == [0.0]
    assert listed(one.to(tl.float32) + tiny) == [1 + 2.0**-9]
    assert listed(of([1.0], tl.float16) + of([2.0**-11], tl.float16)) == [1.0]
    assert listed(of([0.1], tl.float32) * of([0.1], tl.float32)) == [
        np.float32(0.1) * np.float32(0.1)
    ]


def test_casts_to_integers_cut_and_saturate() -> None:
    given = of([1.9, -1.9, 3e9, -3e9, math.inf, math.nan], tl.float32)
    assert listed(given.to(tl.int32)) == [1, -1, 2**31 - 1, -(2**31), 2**31 - 1, 0]
    assert listed(of([3e9, -1.0], tl.float32).to(tl.uint32)) == [3000000000, 0]
    assert listed(of([0.5, 0.0], tl.float32).to(tl.int1)) == [True, False]


def test_bits_are_kept_where_they_are_looked_at_otherwise() -> None:
    assert listed(of([1.0], tl.float32).to(tl.int32, bitcast=True)) == [0x3F800000]
    assert listed(of([0x3F80], tl.int16).to(tl.bfloat16, bitcast=True)) == [1.0]
    assert listed(of([0x38], tl.uint8).to(tl.float8e4nv, bitcast=True)) == [1.0]


def test_nan_is_passed_over_or_on() -> None:
    a, b = of([math.nan, 1.0, math.nan], tl.float32), of([2.0, math.nan, math.nan], tl.float32)
    assert listed(standard.maximum(a, b))[:2] == [2.0, 1.0]
    assert np.isnan(standard.minimum(a, b, tl.PropagateNan.ALL).data).all()
    assert listed(a == a) == [False, True, False] and listed(a != a) == [True, False, True]
    assert listed(a < b) == [False] * 3 and listed(a >= b) == [False] * 3


def test_functions_are_rounded_once() -> None:
    x = np.linspace(-4, 4, 999, dtype=np.float32)
    for name, exact in (("exp2", torch.exp2), ("exp", torch.exp), ("erf", torch.erf)):
        found = getattr(language.LANGUAGE, name)(Block(x, tl.float32)).data
        assert found.dtype == np.float32
        assert np.array_equal(found, exact(torch.tensor(x).double()).float().numpy()), name


def test_where_and_reductions() -> None:
    chosen = standard.where(of([True, False], tl.int1), of([1, 2], tl.int32), 0.5)
    assert chosen.dtype == tl.float32 and listed(chosen) == [1.0, 0.5]
    assert listed(reductions.total(of([[1, 2], [3, 4]], tl.int8), 0)) == [4, 6]
    assert reductions.total(of([[100] * 4], tl.int8), 1).dtype == tl.int32
    assert listed(reductions.most(of([[1.0, math.nan], [4.0, 3.0]], tl.float32), 1)) == [1.0, 4.0]
    with pytest.raises(MisuseError):
        reductions.total(of([1, 2, 3]), 0)


# Memory.


def test_masked_lanes_touch_nothing() -> None:
    room = torch.arange(8.0)
    storage = Storage(room[2:])
    first = Pointer((storage,), storage.first, tl.float32)
    at = first + standard.arange(0, 8)
    inside = standard.arange(0, 8) < 6
    assert listed(at.load(inside, 0.0)) == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 0.0, 0.0]
    assert np.isnan(at.load(inside).data[6:]).all()  # nobody says what they are
    at.store(of([9.0] * 8, tl.float32), standard.arange(0, 8) < 2)
    assert room.tolist() == [0.0, 1.0, 9.0, 9.0, 4.0, 5.0, 6.0, 7.0]
    with pytest.raises(MisuseError, match="of a tensor's memory"):
        at.load()
    with pytest.raises(MisuseError, match="of a tensor's memory"):
        (first - 3).store(1.0)


def described(x: torch.Tensor, sizes: list[int], strides: list[int], block: tuple[int, ...]) -> Any:
    return Descriptor.of_host(
        TensorDescriptor(x, sizes, strides, list(block), layout(block, x.dtype))
    )


@pytest.mark.parametrize("at", [(0, 0), (-3, 0), (5, -16), (8, 24), (100, 0), (-64, 8)])
def test_a_box_is_zero_outside(at: tuple[int, int]) -> None:
    room = torch.full((12, 40), math.nan).half()
    room[1:11, :27] = torch.randn(10, 27).half()
    x = room[1:11]
    box = described(x, [10, 27], [40, 1], (8, 16))
    want = torch.zeros(8, 16).half()
    for i, j in product(range(8), range(16)):
        if 0 <= at[0] + i < 10 and 0 <= at[1] + j < 27:
            want[i, j] = x[at[0] + i, at[1] + j]
    assert np.array_equal(box.read(at), want.numpy())
    before = room.clone()
    box.write(at, np.full((8, 16), 7.0, np.float16))
    changed = (room != before) & ~(room.isnan() & before.isnan())
    assert int(changed.sum()) == int((want != 0).sum())
    assert room[:1].isnan().all() and room[:, 27:].isnan().all() and room[11:].isnan().all()


def test_addresses_are_taken_modulo_2_to_the_64() -> None:
    """Rows from the last one up: a stride that is negative, seen without a sign."""
    x = torch.arange(64.0).half().view(4, 16)
    box = described(x[3:], [4, 16], [2**63 - 16, 1], (4, 16))
    assert np.array_equal(box.read((0, 0)), x.flip(0).numpy())
    with pytest.raises(MisuseError, match="of a tensor's memory"):
        described(x[2:], [4, 16], [2**63 - 16, 1], (4, 16)).read((0, 0))


def test_a_box_that_is_added_is_rounded_as_memory_is() -> None:
    x = torch.tensor([[1.0] * 8, [2.0] * 8]).bfloat16()
    box = described(x, [2, 8], [8, 1], (2, 8))
    box.write((1, 0), encode(np.full((2, 8), 2.0**-9, np.float32), tl.bfloat16), adds=True)
    box.write((0, 0), encode(np.full((2, 8), 0.5, np.float32), tl.bfloat16), adds=True)
    assert x.tolist() == [[1.5] * 8, [2.5] * 8]


# PTX.


def executed(asm: str, **given: Any) -> dict[str, np.ndarray]:
    registers: dict[str, np.ndarray] = {
        name: np.atleast_1d(np.asarray(value, np.float32)).view(np.uint32)
        if isinstance(value, float | list)
        else np.asarray([value], np.uint32)
        for name, value in given.items()
    }
    ptx.execute(None, asm, registers)
    return registers


def result(asm: str, **given: Any) -> Any:
    return executed(asm, **given)["d"]


def of_bits(bits: np.ndarray) -> list[float]:
    return bits.astype(np.uint32).view(np.float32).tolist()


@pytest.mark.parametrize(
    ("asm", "given", "want"),
    [
        ("shl.b32 d, a, 4;", {"a": 0x12345678}, 0x23456780),
        ("shl.b32 d, a, 32;", {"a": 0x12345678}, 0),  # it is clamped
        ("and.b32 d, a, 0xff00;", {"a": 0x12345678}, 0x5600),
        ("mov.b32 d, {l, h};", {"l": 0x1111, "h": 0x2222}, 0x22221111),
        ("mov.b32 {l, h}, a; mov.b32 d, {h, l};", {"a": 0x22221111}, 0x11112222),
        ("prmt.b32 d, a, b, 0x7531;", {"a": 0x33221100, "b": 0x77665544}, 0x77553311),
        ("prmt.b32 d, a, b, 0x0426;", {"a": 0x33221100, "b": 0x77665544}, 0x00442266),
        ("cvt.rn.bf16x2.f32 d, a, b;", {"a": 1.0, "b": -2.0}, 0x3F80C000),  # the first one high
        ("cvt.rn.f16x2.f32 d, a, b;", {"a": 1.0, "b": 1e6}, 0x3C007C00),
        ("cvt.rn.satfinite.e4m3x2.f32 d, a, b;", {"a": 1.0, "b": -1e6}, 0x38FE),
        ("cvt.rn.satfinite.e4m3x2.f32 d, a, b;", {"a": math.nan, "b": 0.0}, 0x7F00),
        ("cvt.rni.s32.f32 d, a;", {"a": 2.5}, 2),
        ("cvt.rni.s32.f32 d, a;", {"a": -3.5}, 2**32 - 4),
        ("cvt.rni.s32.f32 d, a;", {"a": 1e20}, 2**31 - 1),
        ("cvt.rni.s32.f32 d, a;", {"a": math.nan}, 0),
        ("mul.rn.f32 d, a, 0f40000000;", {"a": 1.5}, 0x40400000),
        ("setp.lt.f32 p, a, b; selp.f32 d, a, b, p;", {"a": math.nan, "b": 2.0}, 0x40000000),
        ("setp.lt.f32 p, a, b; selp.f32 d, a, b, p;", {"a": 1.0, "b": 2.0}, 0x3F800000),
    ],
)
def test_an_instruction_gives_the_bits_of_the_cards(
    asm: str, given: dict[str, Any], want: int
) -> None:
    assert result(asm, **given).tolist() == [want]


def test_floating_point_of_ptx() -> None:
    assert of_bits(result("max.f32 d, a, b;", a=math.nan, b=-1.0)) == [-1.0]
    assert of_bits(result("min.f32 d, a, b;", a=3.0, b=-1.0)) == [-1.0]
    assert of_bits(result("abs.f32 d, a;", a=-3.0)) == [3.0]
    assert of_bits(result("cvt.rmi.f32.f32 d, a;", a=-1.25)) == [-2.0]
    exact = 1.0 + 2.0**-23
    assert of_bits(result("fma.rn.f32 d, a, a, b;", a=exact, b=-1.0 - 2.0**-22)) == [2.0**-46]
    assert of_bits(result("sub.rn.f32 d, a, b;", a=1.0, b=2.0**-25)) == [1.0]
    half = np.asarray([0x3E00], np.uint32)
    registers = {"a": half}
    ptx.execute(None, "cvt.f32.f16 d, a;", registers)
    assert of_bits(registers["d"]) == [1.5]


def test_approximations_take_denormals_for_zero() -> None:
    assert of_bits(result("ex2.approx.ftz.f32 d, a;", a=[3.0, -126.0, -127.0, -math.inf])) == [
        8.0,
        2.0**-126,
        0.0,
        0.0,
    ]
    assert of_bits(result("lg2.approx.ftz.f32 d, a;", a=[8.0, 2.0**-127, 0.0])) == [
        3.0,
        -math.inf,
        -math.inf,
    ]
    assert np.isnan(of_bits(result("lg2.approx.ftz.f32 d, a;", a=-1.0))).all()


def test_neighbours_share_a_register() -> None:
    x = of([1.0, 2.0, 3.0, 4.0], tl.float32)
    args: Any = (None, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,r,r")
    found = ptx.run(*args, [x], tl.bfloat16, 2)
    assert found.dtype == tl.bfloat16 and listed(found) == [1.0, 2.0, 3.0, 4.0]
    with pytest.raises(MisuseError, match="do not come in 4s"):
        ptx.run(*args, [of([1.0] * 6, tl.float32)], tl.bfloat16, 4)
    with pytest.raises(MisuseError, match="is not known"):
        executed("bfind.u32 d, a;", a=1)

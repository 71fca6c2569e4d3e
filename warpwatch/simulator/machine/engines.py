"""What works beside the threads of a partition: the matrix unit, the copy engine, barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton.language as tl

from warpwatch.simulator.errors import MisuseError, here
from warpwatch.simulator.machine.barriers import Barrier
from warpwatch.simulator.machine.clusters import parts_of
from warpwatch.simulator.machine.global_memory import Descriptor, Pointer
from warpwatch.simulator.machine.order import Program
from warpwatch.simulator.machine.races import Partition, Product
from warpwatch.simulator.machine.shared_memory import Shared, barrier_at
from warpwatch.simulator.values.blocks import Block
from warpwatch.simulator.values.elements import computed, decode, encode
from warpwatch.simulator.values.layouts import Shape, Type

TOO_EARLY = "product used before it was waited for"

running: list[Program] = []  # the one program that runs


def program() -> Program:
    return running[-1]


class Running:
    """A product that was not waited for: its values are nobody's yet."""

    def __init__(self, product: Product, shape: tuple[int, ...]) -> None:
        self._product, self.shape, self.dtype = product, shape, tl.float32

    @property
    def type(self) -> Type:
        return Type(self.dtype, self.shape)

    def __getattr__(self, name: str) -> Any:
        raise MisuseError(f"{name} of a product that was not waited for", TOO_EARLY)

    def _early(self, other: Any = None) -> Any:
        raise MisuseError("arithmetic of a product that was not waited for", TOO_EARLY)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _early
    __neg__ = __getitem__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _early


class Result(Block):
    """A product's values: whoever looks at them is told if it read what it must not."""

    __slots__ = ("product", "size")

    def __init__(self, product: Product, size: tuple[int, ...]) -> None:
        self.product, self.size, self.dtype = product, size, tl.float32

    @property
    def shape(self) -> Shape:
        return Shape(self.size)

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]  # nobody sets a product's values
        self.product.use(program().unused)
        return self.product.value


def _operand(x: Any, product: Product) -> np.ndarray:
    if isinstance(x, Running):
        raise MisuseError("a product that was not waited for is an operand of another", TOO_EARLY)
    if isinstance(x, Shared):
        for each, (_, cells, region) in zip((product, *product.twins), x.parts, strict=True):
            each.reads(cells, region)
        values = decode(x.raw, x.dtype)
    else:
        values = x.data
    if x.dtype == tl.float32:  # the unit drops the bits that tf32 has not
        values = (np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)).view(
            np.float32
        )
    return np.asarray(values, np.float32)


def must_be_alike(a: Any, b: Any) -> None:
    """Operands of a product have one type."""
    if a.dtype != b.dtype:
        raise MisuseError(f"expected operands of one type, got {a.dtype} and {b.dtype}")


def must_fit(a: Sequence[int], b: Sequence[int], acc: Sequence[int]) -> None:
    """The shapes of a product are (m, k), (k, n) and (m, n)."""
    if a[-1] != b[0] or tuple(acc) != (a[0], b[1]):
        raise MisuseError(f"shapes do not fit: {list(a)} @ {list(b)} + {list(acc)}")


def warpgroup_mma(
    a: Any,
    b: Any,
    acc: Any,
    *,
    use_acc: Any = True,
    precision: None = None,
    max_num_imprecise_acc: None = None,
    is_async: bool = False,
) -> Any:
    must_be_alike(a, b)
    must_fit(a.shape, b.shape, acc.shape)
    product, *product.twins = (Product(one) for one in program().now.ctas)
    left, right = _operand(a, product), _operand(b, product)
    product.value = computed(np.matmul, left, right)
    if bool(use_acc):
        more = acc._product.value if isinstance(acc, Running) else acc.data
        product.before += [acc._product] if isinstance(acc, Running) else []
        product.value = computed(np.add, product.value, more, product.value)
    for one in (product, *product.twins):
        one.who.products.append(one)
        program().unused.append(one)
    if (log := program().log) is not None:
        log.multiplies(program().now, product)
    running = Running(product, product.value.shape)
    return running if is_async else warpgroup_mma_wait(0, deps=[running])


def warpgroup_mma_wait(num_outstanding: int = 0, deps: Any = None) -> Any:
    """All products but the youngest ``num_outstanding`` are done."""
    who = program().now
    ended = []
    for each in who.ctas:
        while len(each.products) > int(num_outstanding):
            done = each.products.pop(0)
            done.waited = each.clock
            if each is who:
                ended.append(done)
    if (log := program().log) is not None:
        log.awaits(who, "products", ended)
    if not deps:
        raise MisuseError("warpgroup_mma_wait wants deps")
    found = []
    for one in deps:
        if isinstance(one, Running) and one._product.waited is not None:
            one = Result(one._product, one.shape)
        found.append(one)
    return found[0] if len(found) == 1 else tuple(found)


# The copy engine and its barriers.


def async_copy_global_to_shared(
    desc: Descriptor,
    at: Any,
    barrier: Shared,
    to: Shared,
    pred: Any = True,
    multicast: bool = False,
) -> None:
    if not bool(pred):
        return
    if to.dtype != desc.dtype or to.numel != desc.numel:
        raise MisuseError(
            f"expected {desc.dtype} of {desc.block_shape}, got {to.dtype} of {to.shape}"
        )
    _arrives(desc.read(at), barrier, to, multicast)


def _arrives(raw: np.ndarray, barrier: Shared, to: Shared, multicast: bool = False) -> None:
    told, split = barrier_at(barrier).barriers(), to.cells.split
    for cta, cells, region in to.parts:
        # Where several CTAs get the same, one of them may have it copied for all.
        who = program().now.ctas[split.lead(cta) if multicast and split else cta]
        at = told[barrier.cells.split.lead(cta) if split else cta]
        if program().strict and not at.fenced:
            raise MisuseError(
                f"{at.name} is used without fence_async_shared behind its init", "missing fence"
            )
        knows(who, at)
        cells.writes(region, who, program().unused, (at.somebody, at.phases + 1))
        if (log := program().log) is not None and cta == 0:
            log.copies_in(at, who, cells.what)
    to.put(raw)
    for cta in range(program().ctas):
        told[barrier.cells.split.lead(cta) if split else cta].copied(raw.nbytes // _pieces(to))
    program().let_others()


def _pieces(view: Shared) -> int:
    return 1 if view.cells.split is None else int(view.cells.split.pieces)


def knows(who: Partition, barrier: Barrier) -> None:
    """Raise if a partition signals another CTA's barrier before it knows that there is one."""
    if program().ctas > 1 and barrier.made is not None:
        maker, when = barrier.made
        if when > who.known[maker]:
            raise MisuseError(
                f"{who.name} signals {barrier.name}, not knowing that "
                f"{who.name_of(maker)} has initialised it",
                "missing wait for a cluster",
                (("signals", here()), ("initialised", barrier.site)),
            )


def _to_global(desc: Descriptor, at: Any, source: Shared, adds: bool) -> None:
    who = program().now
    # What lies behind the tensor's end is not copied, and need not have been written.
    window, at_used = desc.window(at), source.at
    used: Any = desc.box(at)[1] if window is None else window.parts
    if window.whole if window else used.all():
        whole = source.region
    else:
        at_used = source.at.reshape(desc.block_shape)[used].copy()
        whole = source.cells.region(at_used)
    for cta, cells, region in parts_of(source.cells, at_used, whole):
        cells.starts_copying(region, who.ctas[cta])
        who.ctas[cta].copies.append((cells, region))
    if (log := program().log) is not None:
        log.copies_out(who, who.copies[-1], source.cells.what)
    desc.write(at, np.ascontiguousarray(source.raw), adds, window)


def async_copy_shared_to_global(desc: Descriptor, at: Any, source: Shared) -> None:
    _to_global(desc, at, source, adds=False)


def add_to_global(desc: Descriptor, at: Any, source: Shared) -> None:
    _to_global(desc, at, source, adds=True)


def store_wait(pendings: int, read_only: bool = True) -> None:
    who = program().now
    ended = []
    for one in who.ctas:
        while len(one.copies) > int(pendings):
            done = one.copies.pop(0)
            done[0].stops_copying(done[1], one)
            if one is who:
                ended.append(done)
    if (log := program().log) is not None:
        log.awaits(who, "copies out", ended)


def init_barrier(barrier: Shared, count: int) -> None:
    name = f"barrier {{}} of {barrier.cells.what.split(' (')[0]}"
    for key in barrier_at(barrier).keys:
        of = "" if program().ctas == 1 else f" of CTA {key[2]}"
        program().new_barrier(key, int(count), name.format(key[1]) + of)


def wait(barrier: Shared, phase: Any, pred: Any = True, deps: Any = ()) -> None:
    if bool(pred):
        program().wait(barrier_at(barrier).waiting(), int(phase))


def expect(barrier: Shared, bytes_per_cta: int = 0, pred: Any = True, bytes: int = 0) -> None:
    if bool(pred):
        size = int(bytes_per_cta or bytes)
        for who, one in barrier_at(barrier).waiting():
            # Who shares a barrier announces what all of them get.
            one.arrive(who, expected=size * (program().ctas // _pieces(barrier)))
        program().let_others()


def arrive(barrier: Shared, *, count: int = 1, pred: Any = True) -> None:
    if bool(pred):
        for who, one in zip(program().now.ctas, barrier_at(barrier).barriers(), strict=True):
            one.arrive(who, int(count))
        program().let_others()


# Copies to shared memory that threads ask for themselves, past their registers.


def copy_past_registers(to: Shared, pointer: Pointer, mask: Any = None, **hints: Any) -> None:
    """What is masked is not defined, as of a load without ``other``."""
    found = pointer.load(mask)
    if to.dtype != found.dtype or to.shape != list(found.shape):
        raise MisuseError(
            f"expected {to.dtype} of {to.shape}, got {found.dtype} of {list(found.shape)}"
        )
    for cta, cells, region in to.parts:
        who = program().now.ctas[cta]
        cells.writes(region, who, program().unused)
        cells.has_not_arrived(region)
        who.asked.append((cells, region))
    to.put(encode(found.data, found.dtype))


def commit_group() -> None:
    for who in program().now.ctas:
        who.groups.append(who.asked)
        who.asked = []


def wait_group(num_outstanding: int = 0) -> None:
    """All groups but the youngest ``num_outstanding`` have arrived."""
    for who in program().now.ctas:
        while len(who.groups) > int(num_outstanding):
            for cells, region in who.groups.pop(0):
                cells.has_arrived(region, who)


def arrive_when_copied(barrier: Shared, increment_count: bool = True) -> None:
    """Arrive at a barrier when all copies that a partition asked for have come."""
    for who, told in zip(program().now.ctas, barrier_at(barrier).barriers(), strict=True):
        for group in (*who.groups, who.asked):
            for cells, region in group:
                cells.arrives_with(region, told.somebody, told.phases + 1)
        who.groups, who.asked = [], []
        if increment_count:
            told.count += 1
        told.arrive(who)
    program().let_others()


def invalidate(barrier: Shared) -> None:
    """The memory of a barrier is free again."""
    for key, told in zip(barrier_at(barrier).keys, barrier_at(barrier).barriers(), strict=True):
        if told.bytes:
            raise MisuseError(
                f"{told.name} is invalidated while a copy to it runs", "barrier misused"
            )
        program().forget(key)


# Rows of a tensor by their numbers.


def async_gather(
    desc: Descriptor,
    x_offsets: Any,
    y_offset: Any,
    barrier: Shared,
    result: Shared,
    pred: Any = True,
) -> None:
    """Copy rows by their numbers to shared memory."""
    if bool(pred):
        _arrives(desc.taken(*desc.rows(x_offsets, y_offset)), barrier, result)


def async_scatter(desc: Descriptor, x_offsets: Any, y_offset: Any, src: Shared) -> None:
    """Copy rows of shared memory to those with these numbers."""
    who = program().now
    place, used = desc.rows(x_offsets, y_offset)
    for cta, cells, region in src.parts:
        cells.starts_copying(region, who.ctas[cta])
        who.ctas[cta].copies.append((cells, region))
    desc.put(place, used, np.ascontiguousarray(src.raw).reshape(used.shape))

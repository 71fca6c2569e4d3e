"""What the operations of Triton's GPU dialect ask of the hardware: products, memory traffic."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from .ir import Function, Op, Region, Shaped, shaped
from .recording import Argument, DescriptorArgument, TensorArgument

_DOTS = {"tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma"}
_SCALED = {"tt.dot_scaled", "ttng.tc_gen5_mma_scaled"}
_SPECIAL = {
    "math.exp",
    "math.exp2",
    "math.log",
    "math.log2",
    "math.sqrt",
    "math.rsqrt",
    "math.sin",
    "math.cos",
    "arith.divf",
}
# The last word of an operation's name says what it does to global memory.
_LOADS = {
    "load",
    "descriptor_load",
    "descriptor_gather",
    "async_copy_global_to_local",
    "async_tma_copy_global_to_local",
    "async_tma_gather",
    "buffer_load",
    "buffer_load_to_local",
}
_STORES = {
    "store",
    "descriptor_store",
    "descriptor_scatter",
    "descriptor_reduce",
    "async_tma_copy_local_to_global",
    "async_tma_reduce",
    "async_tma_scatter",
    "buffer_store",
    "atomic_rmw",
    "atomic_cas",
    "buffer_atomic_rmw",
}
_ATOMICS = {
    "atomic_rmw",
    "atomic_cas",
    "buffer_atomic_rmw",
    "buffer_atomic_cas",
    "descriptor_reduce",
    "async_tma_reduce",
}
_DTYPES = {"f16": "fp16", "bf16": "bf16", "f32": "tf32", "f64": "fp64", "i8": "int8"}


@dataclass
class RegionWork:
    """One run of a region, the regions inside left out. ``flops`` by dtype; ``loads`` and
    ``stores`` are bytes by the kernel argument they go to (``""`` where that is not clear);
    ``copied_by_tma`` are the bytes of them that go straight to or from shared memory, ``fetched``
    those that asynchronous copies and TMA take from L2 past the first cache; ``atomics`` the
    elements of memory that are read, changed and written as one."""

    flops: Counter[str] = field(default_factory=Counter)
    special: int = 0
    loads: Counter[str] = field(default_factory=Counter)
    stores: Counter[str] = field(default_factory=Counter)
    copied_by_tma: int = 0
    fetched: int = 0
    atomics: int = 0

    @property
    def global_bytes(self) -> int:
        return self.loads.total() + self.stores.total()


def of_function(function: Function) -> dict[Region, RegionWork]:
    """The work of every region of a kernel."""
    found: dict[Region, RegionWork] = {}
    origins = {name: frozenset({name[1:]}) for name in function.arguments}
    _visit(function.body, found, origins)
    return found


def stored_arguments(function: Function) -> frozenset[str] | None:
    """The arguments whose memory a kernel stores to; ``None`` where it may be any of them."""
    origins = {name: frozenset({name[1:]}) for name in function.arguments}
    found: set[str] = set()
    for op in function.body.walk():
        _hand_on(op, origins)
        if op.name.split(".")[-1] not in _STORES:
            continue
        known = [origins[_base(value)] for value in op.values if _base(value) in origins]
        if not known:
            return None
        found.update(*known)
    return frozenset(found)


def _visit(
    region: Region, found: dict[Region, RegionWork], origins: dict[str, frozenset[str]]
) -> None:
    work = found.setdefault(region, RegionWork())
    for op in region.ops:
        _add(op, work, origins)
        _hand_on(op, origins)
        if op.name in ("tt.reduce", "tt.scan", "tt.map_elementwise"):
            continue  # their regions combine two elements
        for inner in op.regions:
            _visit(inner, found, origins)


def _hand_on(op: Op, origins: dict[str, frozenset[str]]) -> None:
    """Which argument a pointer or descriptor comes from goes with it through every operation.
    Another region may have had values of the same names before."""
    for name, start in re.findall(r"(%[\w$.-]+) = (%[\w$.#-]+)", op.rest):
        _comes_from(name, origins.get(_base(start)), origins)
    if op.name.endswith("tensormap_create") and len(op.values) > 1:
        # A descriptor made on the device: written to scratch memory, and read from there.
        place, tensor = op.values[:2]
        _comes_from(_base(place), origins.get(_base(tensor)), origins)
    for region in op.regions:
        handed = re.match(r"\((?P<values>%[^)]*)\)", op.rest)
        if region.parameters and handed:
            values = handed["values"].split(", ")
            for name, value in zip(region.parameters, values, strict=False):
                _comes_from(name, origins.get(_base(value)), origins)
    carries = "tt.ptr" in op.rest or "tensordesc" in op.rest or op.name.startswith("scf.")
    kind = op.name.split(".")[-1]
    union: frozenset[str] = frozenset()
    # A value that was loaded is no pointer any more.
    if carries and kind not in _LOADS and kind not in _STORES:
        union = union.union(*(origins.get(_base(value), union) for value in op.values))
    for result in op.results:
        _comes_from(_base(result), union, origins)


def _comes_from(
    name: str, origin: frozenset[str] | None, origins: dict[str, frozenset[str]]
) -> None:
    if origin:
        origins[name] = origin
    else:
        origins.pop(name, None)


def _base(value: str) -> str:
    return value.split("#")[0]


def _add(op: Op, work: RegionWork, origins: Mapping[str, frozenset[str]]) -> None:
    types = shaped(op.rest)
    if op.name in _SCALED and types:
        dtype, flops = _scaled_product(op, types)
        work.flops[dtype] += flops
    elif op.name in _DOTS and len(types) >= 2:
        a, b = types[0], types[1]
        batch = a.shape[0] if len(a.shape) == 3 else 1
        flops = 2 * batch * a.shape[-2] * a.shape[-1] * b.shape[-1]
        work.flops[_dtype(a)] += flops
    elif op.name in _SPECIAL and types:
        work.special += types[-1].elements
    kind = op.name.split(".")[-1]
    if (kind not in _LOADS and kind not in _STORES) or not op.values:
        return
    if kind in _ATOMICS:
        work.atomics += _updated(op, types)
    direction = work.loads if kind in _LOADS else work.stores
    nbytes = _moved_bytes(op, types)
    if not nbytes:
        return  # a scalar
    for value in op.values:
        known = origins.get(_base(value))
        if known:
            for name in known:
                direction[name] += nbytes // len(known)
            break
    else:
        direction[""] += nbytes
    if "tma" in kind or kind.startswith("descriptor_"):
        work.copied_by_tma += nbytes
    if kind in _LOADS and ("async" in kind or kind.startswith("descriptor_")):
        work.fetched += nbytes


def _scaled_product(op: Op, types: list[Shaped]) -> tuple[str, int]:
    """The dtype and the flops of a product whose operands have scales, which may be fp4 in pairs.
    Its text names operands, scales and result in an order of its own."""
    result = types[-1] if "->" in op.rest else types[2]
    formats = dict(re.findall(r"\b(lhs|rhs) = (\w+)", op.rest))
    narrow = formats.get("lhs") == "e2m1"
    # Two fp4 values of K share a byte, unless a flag says that two of M do.
    pairs = 2 if narrow and "lhs_k_pack = false" not in op.rest else 1
    flops = 2 * result.elements * types[0].shape[-1] * pairs
    return ("fp4" if set(formats.values()) == {"e2m1"} else "fp8"), flops


def _moved_bytes(op: Op, types: list[Shaped]) -> int:
    """What a memory operation moves. Its text may also name offsets, masks and barriers."""
    pointed = [one for one in types if one.element.startswith("!tt.ptr")]
    filled = shaped(op.rest.rsplit("->", 1)[1]) if "->" in op.rest else []
    return max((one.nbytes for one in pointed or filled or types), default=0)


def _updated(op: Op, types: list[Shaped]) -> int:
    """The elements an atomic operation updates: of pointers, or of the tile in shared memory."""
    pointed = [one for one in types if one.element.startswith("!tt.ptr")]
    tiles = [one for one in types if one.element not in ("i1", "i32", "i64")]
    return max((one.elements for one in pointed or tiles or types), default=1)


def _dtype(operand: Shaped) -> str:
    if operand.element.startswith("f8"):
        return "fp8"
    return _DTYPES.get(operand.element, "fp16")


def dram_bytes(
    works: Mapping[Region, RegionWork],
    runs: Mapping[Region, float],
    arguments: Mapping[str, Argument],
) -> float:
    """Least traffic with device memory: what is loaded and stored of each argument, but no byte
    of it more than once in each direction."""
    loads: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for region, work in works.items():
        for total, one in ((loads, work.loads), (stores, work.stores)):
            for name, nbytes in one.items():
                total[name] += int(nbytes * runs.get(region, 0.0))
    traffic = 0.0
    for one in (loads, stores):
        for name, nbytes in one.items():
            limit = _extent(arguments.get(name))
            traffic += nbytes if limit is None else min(nbytes, limit)
    return traffic


def _extent(argument: object) -> int | None:
    if isinstance(argument, TensorArgument):
        return argument.nbytes or None
    if isinstance(argument, DescriptorArgument):
        return argument.base.nbytes or None
    return None

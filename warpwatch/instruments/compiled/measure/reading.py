"""Everything that is read of one launch: its code, its place on the device, its bound."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from warpwatch import devices
from warpwatch.devices import Device
from warpwatch.instruments.compiled.bound.bound import Bound, bound
from warpwatch.instruments.compiled.bound.source import of_launch
from warpwatch.instruments.compiled.formats import elf
from warpwatch.instruments.compiled.formats.code import CLASSES, Program
from warpwatch.instruments.compiled.formats.recording import Kernel, Launch
from warpwatch.instruments.compiled.machine_code import amdgcn, identity, sass, unwritten_registers
from warpwatch.instruments.compiled.machine_code.occupancy import Occupancy, occupancy
from warpwatch.instruments.compiled.schedule.prediction import Prediction, model, predict

# Of Triton's first stage, which is the source's.
_PRODUCT = re.compile(r"tt\.dot(?:_scaled)? [^\n]*? : tensor<(?:\d+x)+(?P<dtype>\w+)>")
_DTYPES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "i8": "int8"}
_ADVISORY = re.compile(r"\((?P<code>C\d{4})\)\s*:?\s*(?P<text>[^\n]*)")


@dataclass(frozen=True)
class Code:
    """What the machine code of one kernel says, wherever it is launched. Registers are a
    thread's; on AMD vector and accumulation registers together."""

    hash: str
    program: Program = field(repr=False)
    registers: int
    stack_bytes: int
    spilled_bytes: int
    code_bytes: int
    tensor_level: int
    async_copy_level: int
    advisories: tuple[str, ...]

    def evidence(self) -> dict[str, object]:
        """What of it explains values, as JSON."""
        return {
            "code": self.hash,
            "registers": self.registers,
            "stack_bytes": self.stack_bytes,
            "spilled_bytes": self.spilled_bytes,
            "code_bytes": self.code_bytes,
            "tensor_core_level": self.tensor_level,
            "async_copy_level": self.async_copy_level,
            "advisories": list(self.advisories),
            "unknown_instructions": list(self.program.unknown),
            "instructions": _counts(self.program),
            "hot_loops": [_counts(self.program, loop.indices) for loop in self.program.hot_loops],
        }


@dataclass(frozen=True)
class Reading:
    """One launch read. ``multiplies`` says whether its source has matrix products at all;
    ``prediction`` is there for the targets that have one. ``plain_products`` says that products
    which the matrix units could do are left to other units, with cause and remedy."""

    launch: Launch
    code: Code
    occupancy: Occupancy
    bound: Bound
    prediction: Prediction | None = None
    plain_products: str = ""

    @property
    def advisories(self) -> tuple[str, ...]:
        """What its code is advised of, and that it leaves the matrix units idle."""
        return (*self.code.advisories, *filter(None, [self.plain_products]))

    @property
    def multiplies(self) -> bool:
        return self.bound.asked_flops > 0

    def evidence(self) -> dict[str, object]:
        """What explains the values, as JSON."""
        kernel, bounded = self.launch.kernel, self.bound
        return {
            "kernel": kernel.name,
            "grid": list(self.launch.grid),
            "num_warps": kernel.num_warps,
            "num_stages": kernel.num_stages,
            "num_ctas": kernel.num_ctas,
            "constants": {
                name: value
                for name, value in self.launch.arguments.items()
                if self.launch.signature.get(name) == "constexpr"
                and (value is None or isinstance(value, bool | int | float | str))
            },
            **self.code.evidence(),
            "advisories": list(self.advisories),
            "plain_products": bool(self.plain_products),
            "shared_bytes": kernel.shared_bytes,
            "compile_seconds": round(kernel.compile_seconds, 3),
            "multiplies": self.multiplies,
            "atomics": round(bounded.atomics),
            "occupancy": {
                "blocks": self.occupancy.blocks,
                "limited_by": self.occupancy.limited_by,
                "limits": self.occupancy.limits,
                "waves": round(self.occupancy.waves, 3),
                "last_wave_fill": round(self.occupancy.last_wave_fill, 3),
            },
            "bound": {
                "us": bounded.us,
                "limited_by": bounded.limited_by,
                "units_us": dict(bounded.units_us),
                "tensor_utilization": bounded.utilization,
                "repeated_products": round(bounded.repeated, 3),
                "loop_iterations": list(bounded.iterations),
                "notes": list(bounded.notes),
            },
        }


def times(readings: Sequence[Reading]) -> dict[str, object]:
    """The predictions of a call's launches, and of which model they are, as JSON; none where one
    launch has none."""
    found = [one.prediction for one in readings if one.prediction is not None]
    if len(found) < len(readings):
        return {"predicted": []}
    return {
        "model": model(),
        "predicted": [
            {
                "clocks": round(one.clocks),
                "us": round(one.us, 3),
                "limited_by": one.limited_by,
                "sure": one.sure,
                "parts": {name: round(part) for name, part in one.parts.items() if round(part)},
                "idle": round(one.idle),
                "checked": one.checked,
            }
            for one in found
        ],
    }


def _counts(program: Program, indices: frozenset[int] | None = None) -> dict[str, int]:
    found = program.count(indices)
    return {kind: found[kind] for kind in CLASSES if found[kind]}


def read(launches: tuple[Launch, ...]) -> tuple[Reading, ...]:
    """Read launches; the code of a kernel that is launched again is read once."""
    codes = read_codes([launch.kernel for launch in launches])
    found = []
    for launch, code in zip(launches, codes, strict=True):
        kernel = launch.kernel
        device = devices.load(kernel.target.device)
        occupied = occupancy(launch, device, code.registers)
        source = of_launch(launch)
        found.append(
            Reading(
                launch=launch,
                code=code,
                occupancy=occupied,
                bound=bound(launch, code.program, device, occupied.blocks, source),
                prediction=predict(launch, code.program, source, device, occupied.blocks),
                plain_products=plain_products(kernel, code.program, device),
            )
        )
    return tuple(found)


def plain_products(kernel: Kernel, program: Program, device: Device) -> str:
    """Say whether products that the device has matrix units for are computed without them.

    Args:
        kernel: Whose code it is. Its source says the dtypes: later stages may convert them first.
        program: Its machine code.
        device: The card of its target.

    Returns:
        One sentence with the cause and the remedy; empty where the units are used, or where nothing
        of the source is for them.
    """
    if program.tensor_level:
        return ""
    plain = 2 * device.fp32_fma_per_clock
    rates = {}
    for product in _PRODUCT.finditer(kernel.texts.get("ttir", "")):
        dtype = _DTYPES.get(product["dtype"], "fp8" if product["dtype"].startswith("f8") else "")
        if dtype == "fp32" and "inputPrecision = tf32" in product[0]:
            dtype = "tf32"
        rates[dtype] = device.flop_per_clock.get(dtype, 0.0) / plain
    faster = {dtype: rate for dtype, rate in rates.items() if 1 < rate < math.inf}
    if not faster:
        return ""
    dtype = max(faster, key=lambda one: faster[one])
    triton, target = kernel.triton_version, kernel.target
    return (
        f"triton {triton} multiplies {dtype} by plain arithmetic on {target.name}, whose matrix "
        f"units are {faster[dtype]:.0f} times as fast: {target.remedy(triton)}"
    )


def read_code(kernel: Kernel) -> Code:
    """Disassemble and read one kernel."""
    return read_codes([kernel])[0]


def read_codes(kernels: Sequence[Kernel]) -> list[Code]:
    """The same of several: their disassembler is started once."""
    distinct = list({id(one): one for one in kernels}.values())
    on_nvidia = [one for one in distinct if one.target.backend == "cuda"]
    texts = sass.disassemble_all([one.binary for one in on_nvidia])
    listed = {id(one): text for one, text in zip(on_nvidia, texts, strict=True)}
    codes = {id(one): _read_code(one, listed.get(id(one), "")) for one in distinct}
    return [codes[id(one)] for one in kernels]


def _read_code(kernel: Kernel, listed: str) -> Code:
    """``listed`` is the machine code as text, on NVIDIA."""
    container = elf.read(kernel.binary)
    advice = advisories(kernel.log)
    if kernel.target.backend == "cuda":
        program = sass.read(listed)
        registers, stack = container.registers or 0, container.stack_bytes or 0
        spilled = sass.spilled_bytes(program)
        advice += unwritten_registers.advisories(program)
    else:
        text = kernel.texts["amdgcn"]
        program = amdgcn.read(text)
        resources = amdgcn.resources(text)
        registers, stack = resources.vector_registers, resources.scratch_bytes
        spilled = amdgcn.spilled_bytes(text)
    return Code(
        hash=identity.code_hash(kernel),
        program=program,
        registers=registers,
        stack_bytes=stack,
        spilled_bytes=spilled,
        code_bytes=container.code_bytes,
        tensor_level=program.tensor_level,
        async_copy_level=async_copy_level(program),
        advisories=advice,
    )


def async_copy_level(program: Program) -> int:
    """How tiles come into shared memory: 2 by TMA or AMD's TDM, 1 by asynchronous copies, 0 through
    registers."""
    level = 0
    for one in program.instructions:
        if one.opcode.startswith(("UTMALDG", "UBLKCP", "tensor_load_to_lds")):
            return 2
        direct = one.opcode.startswith("buffer_load") and one.operands.endswith(" lds")
        direct |= one.opcode.startswith("global_load_async_to_lds")
        if one.opcode.startswith("LDGSTS") or direct:
            level = 1
    return level


def advisories(log: str) -> tuple[str, ...]:
    """What ptxas advises against (C7515: wgmma is serialised, for one), once each."""
    found = {f"{match['code']}: {match['text'].strip()}": None for match in _ADVISORY.finditer(log)}
    return tuple(found)


def by_kernel(readings: tuple[Reading, ...]) -> Mapping[str, Reading]:
    """One reading for each distinct code."""
    return {reading.code.hash: reading for reading in readings}

"""Assembles a benchmark and reads its machine code back: needs no card."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from warpwatch.devices import Device
from warpwatch.instruments.compiled.formats.code import Instruction, Program
from warpwatch.instruments.compiled.machine_code import sass
from warpwatch.instruments.compiled.schedule import controls, issue, pipes

from .programs import ptx
from .programs.benchmark import Benchmark

_MOST_SECONDS = 60
_CLOCK = "SR_CLOCK"
# Clocks of a load; what no place is named for, the first cache holds.
_PLACES = {"L2": pipes.FROM_L2, "memory": pipes.FROM_MEMORY, "stream": pipes.FROM_MEMORY}


def target_of(architecture: int) -> str:
    """Name an architecture as the assembler does.

    Args:
        architecture: Such as 90.

    Returns:
        Such as ``sm_90a``: with what only this architecture has.
    """
    return f"sm_{architecture}{'a' if architecture >= 90 else ''}"


def assemble(text: str, architecture: int) -> bytes:
    """Assemble PTX with the assembler in Triton's wheel.

    Args:
        text: The module.
        architecture: Such as 90.

    Returns:
        The cubin.

    Raises:
        ValueError: The assembler refused it; the message holds what it said.
    """
    from triton import knobs

    newer = architecture >= 100 and hasattr(knobs.nvidia, "ptxas_blackwell")
    assembler = knobs.nvidia.ptxas_blackwell if newer else knobs.nvidia.ptxas
    with tempfile.TemporaryDirectory(prefix="microbenchmark-") as folder:
        source, cubin = Path(folder, "one.ptx"), Path(folder, "one.cubin")
        source.write_text(text, encoding="utf-8")
        command = [assembler.path, f"-arch={target_of(architecture)}", str(source), "-o", cubin]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS)
        if done.returncode:
            raise ValueError(f"ptxas refused it: {(done.stdout + done.stderr).strip()[-600:]}")
        return cubin.read_bytes()


@dataclass(frozen=True)
class Region:
    """The instructions between two reads of the clock.

    Attributes:
        instructions: Those that are timed.
        controls: What the assembler wrote into each for the scheduler.
    """

    instructions: tuple[Instruction, ...]
    controls: tuple[controls.Control, ...]

    @property
    def is_straight(self) -> bool:
        """Whether nothing jumps."""
        return all(one.flow == "next" for one in self.instructions)

    def opcodes(self) -> Counter[str]:
        """Count its instructions.

        Returns:
            The number of each opcode.
        """
        return Counter(one.opcode for one in self.instructions)

    def simulated(self, device: Device, warps: int, from_memory: int) -> float:
        """Run it through the model of time.

        Args:
            device: The card.
            warps: Of the block.
            from_memory: Clocks of a load of device memory.

        Returns:
            Clocks.
        """
        steps = [
            pipes.step(one, control, device, from_memory)
            for one, control in zip(self.instructions, self.controls, strict=True)
        ]
        each = max(1, warps // pipes.SCHEDULERS)
        run = [issue.Warp(steps, 1, 0, warps) for _ in range(each)]
        issue.clocks(run)
        # Until the clock is read again, not until all that was begun has ended.
        return max(pipes.fetched(len(steps)), *(warp.ends[0] for warp in run))


@dataclass(frozen=True)
class Assembled:
    """A benchmark in machine code.

    Attributes:
        benchmark: Its program.
        cubin: With a kernel for each number of steps.
    """

    benchmark: Benchmark
    cubin: bytes

    @cached_property
    def regions(self) -> dict[int, Region]:
        """The timed instructions of the kernel of each number of steps."""
        texts = sass.disassemble(self.cubin)
        program = sass.read(texts)
        every = list(zip(program.instructions, controls.of_cubin(self.cubin), strict=True))
        found = _regions(program)
        sizes = sorted(found, key=lambda one: one.stop - one.start)
        return {
            count: Region(tuple(every[at][0] for at in place), tuple(every[at][1] for at in place))
            for count, place in zip(sorted(self.benchmark.counts), sizes, strict=True)
        }

    def simulated(self, device: Device) -> float | None:
        """Read the benchmark's value from the model of time.

        Args:
            device: The card.

        Returns:
            The value; ``None`` where the model follows no such code.
        """
        if not all(region.is_straight for region in self.regions.values()):
            return None
        warps = self.benchmark.warps
        far = _PLACES.get(self.benchmark.data, pipes.FROM_FIRST_CACHE)
        clocks = {n: one.simulated(device, warps, far) for n, one in self.regions.items()}
        try:
            return self.benchmark.value(clocks)
        except ValueError:
            return None


def _regions(program: Program) -> list[range]:
    """From after each first read of the clock to the second."""
    reads = [i for i, one in enumerate(program.instructions) if _CLOCK in one.operands]
    return [range(a + 1, b) for a, b in zip(reads[::2], reads[1::2], strict=True)]


def build(benchmark: Benchmark, architecture: int) -> Assembled:
    """Assemble a benchmark.

    Args:
        benchmark: Its program.
        architecture: Such as 90.

    Returns:
        Its machine code.

    Raises:
        ValueError: The assembler refused it.
    """
    counts, target = benchmark.counts, target_of(architecture)
    text = ptx.module(benchmark.code, counts, benchmark.threads, target)
    return Assembled(benchmark, assemble(text, architecture))

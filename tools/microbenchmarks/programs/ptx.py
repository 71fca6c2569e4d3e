"""The program around the instructions that are timed.

A kernel runs rounds. Each reads the clock, runs ``count`` steps of a benchmark and reads the clock
again; the last round is kept, so the code is in the instruction cache. Every benchmark is assembled
for a number of steps and for twice as many: the difference is free of what surrounds the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

# What a benchmark may use: registers of each type, by their first letter.
_REGISTERS = {"r": "b32", "f": "f32", "d": "b64", "e": "f64", "p": "pred"}
_MOST = {"r": 256, "f": 256, "d": 96, "e": 64, "p": 8}
# A wait gives up after so many tries: a hang would cost the session of a card.
MOST_TRIES = 200_000
SINK = "st.volatile.shared.b32 [sink], {};"


@dataclass(frozen=True)
class Body:
    """The parts of a kernel, each in lines of PTX.

    Attributes:
        steps: What is timed.
        before: Once, before the first round.
        tied: After the clock was read; it makes the steps depend on it through ``tie``, which is 0.
        consumed: Before the clock is read again, so that no step is removed or comes later.
        after: At the end of a round.
        outside: Variables of the kernel's own.
    """

    steps: Sequence[str]
    before: Sequence[str] = ()
    tied: Sequence[str] = ()
    consumed: Sequence[str] = ()
    after: Sequence[str] = ()
    outside: Sequence[str] = ()


Code = Callable[[int], Body]


def module(code: Code, counts: Sequence[int], threads: int, target: str) -> str:
    """Write a module with a kernel for each count.

    Args:
        code: Makes the parts of a kernel with so many steps.
        counts: The numbers of steps; each kernel's name is ``steps_`` and its number.
        threads: Of its block.
        target: As the assembler names it, such as ``sm_90a``.

    Returns:
        The text in PTX.
    """
    version = "8.4" if target.startswith(("sm_8", "sm_90")) else "8.6"
    head = f".version {version}\n.target {target}\n.address_size 64\n"
    bodies = [code(count) for count in counts]
    outside = "\n".join(dict.fromkeys(line for body in bodies for line in body.outside))
    kernels = [_kernel(body, n, threads) for body, n in zip(bodies, counts, strict=True)]
    return f"{head}\n{outside}\n" + "\n".join(kernels)


def _kernel(body: Body, count: int, threads: int) -> str:
    registers = "\n".join(
        f"  .reg .{kind} {letter}<{_MOST[letter]}>;" for letter, kind in _REGISTERS.items()
    )
    meet = "  bar.sync 0;" if threads > 1 else ""
    return f"""
.visible .entry steps_{count}(.param .u64 out_, .param .u64 data_, .param .u32 rounds_,
                              .param .u32 zero_)
.maxntid {threads}, 1, 1
{{
{registers}
  .reg .b64 start, finish, out, data, data0, place;
  .reg .b32 tid, warp, lane, zero, tie, rounds, round, tries, basis, basis0;
  .reg .f32 ftie;
  .reg .pred again, first, more, done;
  .shared .align 16 .b8 sink[16];
  ld.param.u64 out, [out_];
  ld.param.u64 data0, [data_];
  cvta.to.global.u64 out, out;
  cvta.to.global.u64 data, data0;
  ld.param.u32 rounds, [rounds_];
  ld.param.u32 zero, [zero_];
  mov.u32 tid, %tid.x;
  shr.u32 warp, tid, 5;
  and.b32 lane, tid, 31;
  mov.u32 round, 0;
  mov.u32 tries, 0;
{_lines(body.before)}
ROUND:
  .pragma "nounroll";
{meet}
  mov.u64 start, %clock64;
  cvt.u32.u64 tie, start;
  and.b32 tie, tie, zero;
  mov.b32 ftie, tie;
{_lines(body.tied)}
{_lines(body.steps)}
{_lines(body.consumed)}
  mov.u64 finish, %clock64;
{_lines(body.after)}
  add.u32 round, round, 1;
  setp.lt.u32 again, round, rounds;
  @again bra ROUND;
  setp.eq.u32 first, lane, 0;
  mul.wide.u32 place, warp, 16;
  add.u64 place, place, out;
  @first st.global.u64 [place], start;
  @first st.global.u64 [place+8], finish;
  ret;
}}
"""


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def waited(number: int, barrier: str, parity: int) -> list[str]:
    """Write a wait for a phase of an mbarrier, which ends the kernel after too many tries.

    Args:
        number: Of the wait: labels differ by it.
        barrier: The register with its address.
        parity: Of the phase.

    Returns:
        Lines.
    """
    return [
        f"WAIT{number}:",
        f"mbarrier.try_wait.parity.shared.b64 done, [{barrier}], {parity};",
        f"@done bra DONE{number};",
        "add.u32 tries, tries, 1;",
        f"setp.gt.u32 more, tries, {MOST_TRIES};",
        "@more exit;",
        f"bra WAIT{number};",
        f"DONE{number}:",
    ]

"""An eager training step of a GPT with our attention, torch's and FlashAttention-4's, interleaved.

    python -m tools.kernels.speed.training_step [--rows N] [--tokens N] [--runs N] [--plot FILE]

The model is that of ``examples/gpt.py``, with 8 layers of width 1,024. A step is the forward pass
in bf16 autocast, the loss, the gradients and AdamW. Its time is the host's, from its start until
the card is done, so a call that costs the host more than the card shows. A model takes ten steps,
then the next one does: as in training, a step finds memory as the one before left it. The last row
adds q, k and v instead, which is the least that a step can take. Exits 1 where losses differ. The
plot has the times of all steps, of each in the order of their length. The model is imported where
it is used: without a GPU it makes Triton interpret all that its process launches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from examples import gpt

WARM, SAME = 10, 0.02  # steps before any is timed; how far the mean of losses may be from ours
TOGETHER = 10  # steps of one model
OURS, TORCH, FA4, NONE = "ours", "SDPA", "FlashAttention-4", "q + k + v"


def attentions() -> dict[str, gpt.Attention]:
    """Those that can be imported here, ours first."""
    from examples import gpt

    found: dict[str, gpt.Attention] = {OURS: gpt.in_bf16, TORCH: gpt.by_torch}
    if find_spec("flash_attn") and find_spec("flash_attn.cute"):
        flash_attn_func: Any = import_module("flash_attn.cute").flash_attn_func

        def by_flash_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            out: Any = flash_attn_func(q, k, v, causal=True)
            result: torch.Tensor = out[0] if isinstance(out, tuple) else out
            return result

        found[FA4] = by_flash_attention
    found[NONE] = lambda q, k, v: q + k + v
    return found


@dataclass(frozen=True)
class Taken:
    """Milliseconds of a step, one of each turn, and the losses."""

    ms: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def noise(self) -> float:
        """Half the interquartile range over the median."""
        low, _, high = statistics.quantiles(self.ms, n=4)
        return (high - low) / 2 / self.median


def compared(size: gpt.Size, device: str, runs: Mapping[str, gpt.Attention]) -> dict[str, Taken]:
    """Train each for ``size.steps`` steps, ``TOGETHER`` at a time: the same start and batches.

    Args:
        size: Of the model, and how many steps are timed.
        device: ``cuda`` or ``cpu``.
        runs: Attentions by name.

    Returns:
        The times and losses of each.
    """
    from examples import gpt

    data, steps = gpt.text(), {}
    for name, attention in runs.items():
        torch.manual_seed(0)
        steps[name] = _step(gpt.Gpt(size, attention).to(device), size.rate, device)
    draw = torch.Generator().manual_seed(1)
    ms: dict[str, list[float]] = {name: [] for name in runs}
    losses: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(-(-(WARM + size.steps) // TOGETHER)):
        batches = []
        for _ in range(TOGETHER):
            starts = torch.randint(len(data) - size.tokens - 1, (size.rows,), generator=draw)
            rows = torch.stack([data[i : i + size.tokens + 1] for i in starts])
            batches.append(rows.to(device))
        for at in range(len(names)):
            name = names[(at + turn) % len(names)]
            for rows in batches:
                _wait(device)
                began = time.perf_counter()
                loss = steps[name](rows)
                _wait(device)
                ms[name].append(1e3 * (time.perf_counter() - began))
                losses[name].append(float(loss))
    ms = {name: taken[WARM : WARM + size.steps] for name, taken in ms.items()}
    return {name: Taken(tuple(ms[name]), tuple(losses[name])) for name in names}


def _step(model: gpt.Gpt, rate: float, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.95))

    def step(rows: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            scores = model(rows[:, :-1])
        loss = functional.cross_entropy(scores.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def lines(found: Mapping[str, Taken]) -> list[str]:
    """A line for each, with our time over its time and the ratio's standard error.

    The ratio is the median of those of steps, a turn apart at most. The
    standard error of a median of normal values is 1.2533 sigma / sqrt(n), and sigma is the
    interquartile range over 1.349.
    """
    from examples.gpt import mean_of_last

    ours, found_lines = next(iter(found.values())), []
    for name, one in found.items():
        ratios = [a / b for a, b in zip(ours.ms, one.ms, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        error = 1.2533 * (high - low) / 1.349 / len(ratios) ** 0.5
        found_lines.append(
            f"{name:<20} {one.median:8.2f} ms +- {100 * one.noise:4.1f} %, {len(one.ms)} steps; "
            f"ours over it {middle:.3f} +- {error:.3f}; loss {one.losses[0]:.3f} -> "
            f"{mean_of_last(one.losses):.3f}"
        )
    return found_lines


def drawn(found: Mapping[str, Taken]) -> str:
    """An SVG with the times of steps, of each in the order of their length."""
    from examples.gpt import plot

    times = {name: sorted(one.ms) for name, one in found.items() if name != NONE}
    return plot(times, "Milliseconds of a step")


def apart(found: Mapping[str, Taken]) -> list[str]:
    """Names of those whose last losses are not those of the first one."""
    from examples.gpt import mean_of_last

    ends = {name: mean_of_last(one.losses) for name, one in found.items() if name != NONE}
    first = next(iter(ends.values()))
    return [name for name, end in ends.items() if not abs(end / first - 1.0) <= SAME]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.kernels.speed.training_step",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=1, help="sequences a step (1)")
    parser.add_argument("--tokens", type=int, default=512, help="of a sequence (512)")
    parser.add_argument("--runs", type=int, default=300, help="steps that are timed (300)")
    parser.add_argument("--plot", metavar="FILE", help="write the times of steps as an SVG")
    asked = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        parser.error("no GPU that torch can use")
    from examples import gpt

    size = gpt.Size(8, 1024, 16, asked.tokens, asked.rows, asked.runs, 3e-4)
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}", flush=True)
    found = compared(size, "cuda", attentions())
    print("\n".join(lines(found)))
    if asked.plot:
        Path(asked.plot).write_text(drawn(found), encoding="utf-8")
    if FA4 not in found:
        print(f"{FA4} is not there: pip install --pre flash-attn-4")
    for name in apart(found):
        print(f"the losses with {name} are others than with ours")
    return 1 if apart(found) else 0


if __name__ == "__main__":
    sys.exit(main())

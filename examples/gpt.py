"""A small GPT trained in mixed precision, its attention three ways, the loss curves as an SVG.

    python examples/gpt.py                 # a GPU: 8 layers of 512, 1024 tokens; none: a tiny one
    python examples/gpt.py --steps 20 --plot curves.svg

The same model, start and batches, with attention by PyTorch in fp32 (no autocast at all), by
flash_attention in bf16, and by flash_attention with a forward pass in fp8. It learns the bytes of
stories that a seed draws: where somebody put something, and after a while a question whose answer
only attention finds. The text is the same on every machine, so a commit's losses can be had again.
Without a GPU Triton's interpreter computes the kernels, which is slow, and the model is tiny.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton decides at its import

import kernels  # noqa: E402
from kernels.runtime import targets  # noqa: E402

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Size:
    """What is trained: ``rows`` sequences of ``tokens`` a step."""

    layers: int
    width: int
    heads: int
    tokens: int
    rows: int
    steps: int
    rate: float


REAL = Size(layers=8, width=512, heads=8, tokens=1024, rows=8, steps=300, rate=6e-4)
TINY = Size(layers=1, width=32, heads=2, tokens=64, rows=2, steps=60, rate=1e-2)


def by_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k, v = (one.transpose(1, 2) for one in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def in_bf16(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = kernels.flash_attention(q, k, v, causal=True)
    assert isinstance(out, torch.Tensor)
    return out


class Fp8Forward(torch.autograd.Function):
    """Attention of q, k and v rounded to e4m3, one scale a head; its gradients in bf16.

    The gradients are those of the rounded tensors, handed on as if nothing had been rounded. The
    scales are powers of two: then bf16 holds the rounded tensors exactly.
    """

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        small, scales = zip(*map(_quantised, (q, k, v)), strict=True)
        names = ("q_scale", "k_scale", "v_scale")
        out, lse = kernels.flash_attention(
            *small, causal=True, return_lse=True, **dict(zip(names, scales, strict=True))
        )
        wide = [one.bfloat16() * scale[:, None] for one, scale in zip(small, scales, strict=True)]
        ctx.save_for_backward(*(one.bfloat16() for one in wide), out, lse)
        return out

    @staticmethod
    def backward(ctx: Any, *dout: torch.Tensor) -> tuple[torch.Tensor, ...]:
        saved: tuple[Any, ...] = ctx.saved_tensors
        return kernels.flash_attention_backward(dout[0].bfloat16(), *saved, causal=True)


def _quantised(one: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In e4m3, and the scale of every head: the least power of two under which all values fit."""
    dtype = targets.current().fp8_dtypes[0]
    largest = one.detach().abs().amax((0, 1, 3)).float().clamp_min(2.0**-60)
    _, exponent = torch.frexp(largest / torch.finfo(dtype).max)
    scale = torch.ldexp(torch.ones_like(largest), exponent)
    return (one / scale[:, None]).to(dtype), scale


def in_fp8(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out = Fp8Forward.apply(q.bfloat16(), k.bfloat16(), v.bfloat16())
    assert isinstance(out, torch.Tensor)
    return out


class Block(nn.Module):
    def __init__(self, size: Size, attention: Attention) -> None:
        super().__init__()
        self.heads, self.attention = size.heads, attention
        self.before, self.between = nn.LayerNorm(size.width), nn.LayerNorm(size.width)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, tokens, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(rows, tokens, 3, self.heads, -1).unbind(2)
        x = x + self.out(self.attention(q, k, v).reshape(rows, tokens, width))
        fed: torch.Tensor = self.down(functional.gelu(self.up(self.between(x))))
        return x + fed


class Gpt(nn.Module):
    """Predicts the next byte."""

    def __init__(self, size: Size, attention: Attention) -> None:
        super().__init__()
        self.bytes = nn.Embedding(256, size.width)
        self.places = nn.Embedding(size.tokens, size.width)
        self.blocks = nn.Sequential(*(Block(size, attention) for _ in range(size.layers)))
        self.last = nn.LayerNorm(size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        hidden = self.last(self.blocks(self.bytes(x) + self.places(places)))
        return functional.linear(hidden, self.bytes.weight * self.bytes.weight.shape[1] ** -0.5)


WHO = ("Ada", "Boris", "Chen", "Dina", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun")
WHAT = ("lamp", "kettle", "map", "violin", "ladder", "mirror", "basket", "drum", "kite", "clock")
KIND = ("red", "blue", "green", "old", "small", "broken", "wooden", "silver")
WHERE = ("attic", "cellar", "garden", "kitchen", "garage", "hall", "library", "shed")


def text(stories: int = 4000) -> torch.Tensor:
    """Bytes of ``stories`` of four sentences and two questions, 250 bytes each in the mean."""
    drawn = random.Random(5)

    def one(names: Sequence[str]) -> str:
        # Of all that random has, random() alone is promised to draw the same in every Python.
        return names[int(drawn.random() * len(names))]

    parts = []
    for _ in range(stories):
        places: dict[str, str] = {}
        while len(places) < 4:
            places[f"{one(KIND)} {one(WHAT)}"] = one(WHERE)
        for thing, place in places.items():
            parts.append(f"{one(WHO)} put the {thing} into the {place}. ")
        for thing in (one(list(places)), one(list(places))):
            parts.append(f"Where is the {thing}? In the {places[thing]}. ")
        parts.append("\n")
    return torch.frombuffer(bytearray("".join(parts).encode()), dtype=torch.uint8).long()


def train(
    size: Size, attention: Attention, data: torch.Tensor, device: str, *, mixed: bool
) -> list[float]:
    """The loss of every step."""
    torch.manual_seed(0)
    model = Gpt(size, attention).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate, betas=(0.9, 0.95))
    draw = torch.Generator().manual_seed(1)
    losses = []
    for step in range(size.steps):
        starts = torch.randint(len(data) - size.tokens - 1, (size.rows,), generator=draw)
        rows = torch.stack([data[i : i + size.tokens + 1] for i in starts]).to(device)
        for group in optimizer.param_groups:
            group["lr"] = size.rate * min(1.0, (step + 1) / (0.1 * size.steps))
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            scores = model(rows[:, :-1])
        loss = functional.cross_entropy(scores.float().flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def compare(size: Size, device: str, say: Callable[[str], None]) -> dict[str, list[float]]:
    """Loss curves by name; without fp8 where the hardware has none."""
    runs: dict[str, tuple[Attention, bool]] = {
        "fp32, PyTorch's attention": (by_torch, False),
        "bf16 flash_attention": (in_bf16, True),
    }
    if targets.current().fp8_dtypes:
        runs["fp8 forward, bf16 backward"] = (in_fp8, True)
    else:
        say(f"{targets.current().name} has no fp8: two curves")
    data, curves = text(), {}
    for name, (attention, mixed) in runs.items():
        curves[name] = train(size, attention, data, device, mixed=mixed)
        say(f"{name:28s} loss {curves[name][0]:.3f} -> {mean_of_last(curves[name]):.3f}")
    return curves


def mean_of_last(losses: Sequence[float]) -> float:
    """Over the last tenth: single batches scatter."""
    last = losses[-max(1, len(losses) // 10) :]
    return sum(last) / len(last)


WIDTH, HEIGHT, LEFT, TOP = 760, 420, 56, 44
COLOURS = ("#555", "#1668b8", "#c2410c")
DASHES = ("", "7 4", "2 3")


def plot(curves: dict[str, list[float]], title: str = "Loss (nats a byte)") -> str:
    """Lines over steps, told apart by dashes as well as by colour."""
    highest = max(max(losses) for losses in curves.values())
    lowest = min(min(losses) for losses in curves.values())
    steps = max(len(losses) for losses in curves.values())
    across, down = (WIDTH - LEFT - 20) / max(1, steps - 1), (HEIGHT - TOP - 40)
    span = (highest - lowest) or 1.0

    def y(loss: float) -> float:
        return TOP + down * (highest - loss) / span

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="15">{title} over {steps} steps</text>',
    ]
    for tick in range(5):
        loss = lowest + span * tick / 4
        parts += [
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" '
            'stroke="#ddd"/>',
            f'<text x="{LEFT - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:.2f}</text>',
        ]
    for number, (name, losses) in enumerate(curves.items()):
        points = " ".join(f"{LEFT + i * across:.1f},{y(loss):.1f}" for i, loss in enumerate(losses))
        line = f'fill="none" stroke="{COLOURS[number]}" stroke-dasharray="{DASHES[number]}"'
        at = LEFT + 10 + 230 * number
        parts += [
            f'<polyline points="{points}" {line} stroke-width="1.5"/>',
            f'<polyline points="{at},{HEIGHT - 14} {at + 28},{HEIGHT - 14}" {line}/>',
            f'<text x="{at + 34}" y="{HEIGHT - 10}">{name}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, help="default 300, without a GPU 60")
    parser.add_argument("--plot", default="gpt.svg", help="default gpt.svg")
    args = parser.parse_args(argv)
    size, device = (REAL, "cuda") if torch.cuda.is_available() else (TINY, "cpu")
    if args.steps is not None:
        if args.steps < 1:
            print(f"error: --steps: expected 1 or more, got {args.steps}", file=sys.stderr)
            return 2
        size = Size(**{**vars(size), "steps": args.steps})
    curves = compare(size, device, lambda line: print(line, flush=True))
    if not all(math.isfinite(loss) for losses in curves.values() for loss in losses):
        print("error: a loss is not finite", file=sys.stderr)
        return 1
    Path(args.plot).write_text(plot(curves), encoding="utf-8")
    print(f"plot: {args.plot}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

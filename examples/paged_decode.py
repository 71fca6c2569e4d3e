"""Decoding with a paged cache: sequences come and go, and pages with them.

    python examples/paged_decode.py
    python examples/paged_decode.py --sequences 64 --slots 16 --prompt 8192 --new 128

A model of one attention layer with random weights continues prompts of unlike lengths, taking the
likeliest token each time. Few slots decode together; a sequence that is done gives its pages back,
and the next prompt takes the slot and whatever pages are free. Keys and values are written by
``flash_attention_kvcache`` itself, a prompt in chunks, then token by token. At the end the last
token of each sequence is scored again without a cache, by PyTorch alone, and the largest difference
of a score is printed; one that is too large is an error.

With a GPU the sizes are those of one layer of Llama-3 8B in bf16; without one they are tiny, in
fp32, and Triton interprets the kernels.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Triton asks when it is imported
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import kernels

VOCABULARY = 256


@dataclass(frozen=True)
class Sizes:
    """``slots`` sequences decode together; a page holds ``page`` keys; a prompt is read ``chunk``
    tokens at a time and has between half of ``prompt`` tokens and all."""

    heads: int
    kv_heads: int
    head_dim: int
    page: int
    slots: int
    sequences: int
    prompt: int
    new: int
    chunk: int
    dtype: torch.dtype

    @property
    def pages_a_sequence(self) -> int:
        return math.ceil((self.prompt + self.new) / self.page)


TINY = Sizes(4, 2, 16, 16, 2, 3, 40, 3, 16, torch.float32)
LLAMA_8B = Sizes(32, 8, 128, 64, 16, 32, 4096, 64, 512, torch.bfloat16)


@dataclass
class Decoded:
    """The first ``prompt`` of ``tokens`` were given; by ``scores`` the last was chosen."""

    tokens: list[int]
    prompt: int
    scores: torch.Tensor | None = None

    @property
    def made(self) -> int:
        return len(self.tokens) - self.prompt


class Cache:
    """Pages of keys and values, which sequence has which, and how many keys each holds."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        self.page = sizes.page
        pages = sizes.slots * sizes.pages_a_sequence
        cached = (pages, sizes.page, sizes.kv_heads, sizes.head_dim)
        self.k = torch.empty(cached, dtype=sizes.dtype, device=device)
        self.v = torch.empty_like(self.k)
        self.free = list(range(pages))
        self.owned: list[list[int]] = [[] for _ in range(sizes.slots)]
        pages_of = (sizes.slots, sizes.pages_a_sequence)
        self.table = torch.zeros(pages_of, dtype=torch.int32, device=device)
        self.lengths = torch.zeros(sizes.slots, dtype=torch.int32, device=device)

    def make_room(self, slot: int, keys: int) -> None:
        """Pages enough for ``keys`` keys in all."""
        owned = self.owned[slot]
        while len(owned) * self.page < keys:
            owned.append(self.free.pop())
            self.table[slot, len(owned) - 1] = owned[-1]

    def give_back(self, slot: int) -> None:
        self.free += self.owned[slot]
        self.owned[slot] = []
        self.lengths[slot] = 0


class Model:
    """One attention layer between an embedding and its transpose, and nothing around it: scores
    depend on what attention reads alone."""

    def __init__(self, sizes: Sizes, device: str) -> None:
        generator = torch.Generator().manual_seed(0)
        width = sizes.heads * sizes.head_dim

        def weight(rows: int, columns: int) -> torch.Tensor:
            drawn = torch.randn(rows, columns, generator=generator) / math.sqrt(rows)
            return drawn.to(device, sizes.dtype)

        self.sizes = sizes
        self.embedding = weight(width, VOCABULARY).t().contiguous() * math.sqrt(width)
        self.q = weight(width, width)
        self.k = weight(width, sizes.kv_heads * sizes.head_dim)
        self.v = weight(width, sizes.kv_heads * sizes.head_dim)
        self.out = weight(width, width)
        positions = torch.arange(sizes.pages_a_sequence * sizes.page)
        rates = 1e4 ** -(torch.arange(0, sizes.head_dim, 2) / sizes.head_dim)
        angles = (positions[:, None] * rates).to(device)
        self.cos, self.sin = angles.cos(), angles.sin()

    def projected(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Queries, keys and values of ``tokens`` (batch, seqlen)."""
        hidden = self.embedding[tokens]
        heads = (hidden @ one for one in (self.q, self.k, self.v))
        return tuple(one.unflatten(-1, (-1, self.sizes.head_dim)) for one in heads)

    def scored(self, attended: torch.Tensor) -> torch.Tensor:
        """Scores (batch, vocabulary) of what may come after the last token."""
        last = attended[:, -1].flatten(-2) @ self.out
        return (last @ self.embedding.t()).float()

    def step(self, tokens: torch.Tensor, cache: Cache, slots: slice) -> torch.Tensor:
        """Append ``tokens`` (batch, seqlen) to the sequences in ``slots``, and score what comes."""
        q, k, v = self.projected(tokens)
        attended = kernels.flash_attention_kvcache(
            q,
            cache.k,
            cache.v,
            k,
            v,
            rotary_cos=self.cos,
            rotary_sin=self.sin,
            rotary_interleaved=False,
            cache_seqlens=cache.lengths[slots],
            block_table=cache.table[slots],
            causal=True,
        )
        assert isinstance(attended, torch.Tensor)
        cache.lengths[slots] += tokens.shape[1]
        return self.scored(attended)

    def without_cache(self, tokens: torch.Tensor) -> torch.Tensor:
        """The same scores from all tokens of a sequence at once, by PyTorch alone."""
        q, k, v = self.projected(tokens[None])
        q, k, v = (one.transpose(1, 2) for one in (self.turned(q), self.turned(k), v))
        attended = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )
        return self.scored(attended.transpose(1, 2))

    def turned(self, rows: torch.Tensor) -> torch.Tensor:
        cos, sin = (one[: rows.shape[1], None] for one in (self.cos, self.sin))
        x, y = rows.float().chunk(2, -1)
        return torch.cat((x * cos - y * sin, y * cos + x * sin), -1).to(rows.dtype)


def decode(model: Model, sizes: Sizes, device: str) -> tuple[list[Decoded], float]:
    """Every sequence with its new tokens, and the seconds a step of all slots took."""
    generator = torch.Generator().manual_seed(1)
    cache = Cache(sizes, device)
    waiting = []
    for _ in range(sizes.sequences):
        length = int(torch.randint(sizes.prompt // 2, sizes.prompt + 1, (), generator=generator))
        prompt = torch.randint(VOCABULARY, (length,), generator=generator).tolist()
        waiting.append(Decoded(prompt, length))
    every = list(waiting)
    active: dict[int, Decoded | None] = dict.fromkeys(range(sizes.slots))
    seconds, steps = 0.0, 0
    while waiting or any(active.values()):
        for slot, sequence in active.items():
            if sequence is None and waiting:
                active[slot] = taken = waiting.pop()
                read_prompt(model, cache, slot, taken)
        if device == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        tokens = []
        for slot, sequence in active.items():
            tokens.append(sequence.tokens[-1] if sequence else 0)
            # A slot without a sequence decodes into its one page, and nobody looks at it.
            cache.make_room(slot, len(sequence.tokens) if sequence else 1)
        scores = model.step(torch.tensor(tokens, device=device)[:, None], cache, slice(None))
        for slot, token in enumerate(scores.argmax(1).tolist()):
            if (sequence := active[slot]) is not None:
                sequence.tokens.append(token)
                sequence.scores = scores[slot]
        seconds, steps = seconds + time.perf_counter() - began, steps + 1
        for slot, sequence in active.items():
            if sequence is None or sequence.made == sizes.new:
                cache.give_back(slot)
                active[slot] = None
    return every, seconds / steps


def read_prompt(model: Model, cache: Cache, slot: int, sequence: Decoded) -> None:
    """The prompt but for its last token, which the first step appends."""
    tokens = sequence.tokens[:-1]
    cache.make_room(slot, len(tokens))
    for first in range(0, len(tokens), model.sizes.chunk):
        chunk = torch.tensor(tokens[first : first + model.sizes.chunk], device=cache.k.device)
        model.step(chunk[None], cache, slice(slot, slot + 1))


def difference(model: Model, sequence: Decoded) -> float:
    """The largest of the last token's scores, as a share of the largest score."""
    assert sequence.scores is not None
    tokens = torch.tensor(sequence.tokens[:-1], device=sequence.scores.device)
    want = model.without_cache(tokens)[0]
    return float((sequence.scores - want).abs().max() / want.abs().max())


def main(arguments: Sequence[str] | None = None) -> int:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = LLAMA_8B if device == "cuda" else TINY
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for size in fields(Sizes):
        if size.name != "dtype":
            default = getattr(sizes, size.name)
            name = f"--{size.name.replace('_', '-')}"
            parser.add_argument(name, type=int, default=default, help=f"default {default}")
    sizes = replace(sizes, **vars(parser.parse_args(arguments)))
    with torch.no_grad():
        model = Model(sizes, device)
        every, seconds = decode(model, sizes, device)
        worst = max(difference(model, one) for one in every)
    for one in every:
        print(f"{one.prompt:5} tokens, then {one.tokens[one.prompt :]}")
    print(f"{seconds * 1e6:.0f} us a step of {sizes.slots} slots on {device}")
    allowed = 8 * torch.finfo(sizes.dtype).eps
    print(f"largest difference from no cache: {worst:.1e} of the score, {allowed:.1e} allowed")
    return 0 if worst <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Runs kernels in Triton's interpreter, in a process of its own, and measures their errors.

Triton decides at import whether it interprets, so the process that runs the other tests cannot.
Everything here that takes a case runs in that worker; ``Worker.run`` hands the result back.
"""

from __future__ import annotations

import io
import math
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from tests.kernels.mended import mend_interpreter
from warpwatch.config.end_with_parent import end_with


@dataclass(frozen=True)
class Errors:
    """Errors against fp64 of a kernel and of the plain formula PyTorch computes in its dtype."""

    max_error: float
    max_excess: float
    rms: float
    plain_max_error: float
    plain_rms: float
    count: int
    # The largest error by its bar: above 1 is beyond it.
    share: float = 0.0

    def check(self, what: str) -> None:
        """Maximum within 2x the plain formula's plus one unit in the last place, RMS within 1.1x.

        Below a thousand values the RMS of two roundings of the same truth scatters by itself: only
        there the bar widens, by one over the square root of their count.
        """
        bar = self._rms_bar()
        assert self.max_excess <= 0.0, f"{what}: maximum error beyond the bar: {self}"
        assert self.rms <= bar * self.plain_rms, f"{what}: RMS error above {bar:.2f}x: {self}"

    def within(self) -> bool:
        return self.max_excess <= 0.0 and self.rms <= self._rms_bar() * self.plain_rms

    def far_beyond(self) -> bool:
        """No other draw brings it back."""
        largest, rms = 4.0 * self.plain_max_error, 3.0 * self._rms_bar() * self.plain_rms
        return not self.within() and not (self.max_excess <= largest and self.rms <= rms)

    def _rms_bar(self) -> float:
        return 1.1 if self.count >= 1000 else 1.1 + 1.0 / math.sqrt(max(self.count, 1))


def measure(got: torch.Tensor, plain: torch.Tensor, truth: torch.Tensor) -> Errors:
    """Compare where the truth is finite; elsewhere the kernel must give the same value."""
    assert got.shape == truth.shape, f"expected shape {truth.shape}, got {got.shape}"
    finite = torch.isfinite(truth)
    assert torch.equal(got[~finite].double(), truth[~finite]), "infinities differ"
    if not finite.any():
        return Errors(0.0, 0.0, 0.0, 0.0, 0.0, 0)
    value, plain_value, true = got[finite].double(), plain[finite].double(), truth[finite]
    error, plain_error = (value - true).abs(), (plain_value - true).abs()
    info = torch.finfo(got.dtype)
    ulp = info.eps * torch.exp2(torch.floor(torch.log2(true.abs().clamp_min(info.tiny))))
    bar = 2.0 * plain_error.max() + ulp
    return Errors(
        # NaN compares false with everything: a NaN the kernel left behind fails the bar.
        max_error=float(error.max()),
        max_excess=float((error - bar).max()),
        rms=float(error.square().mean().sqrt()),
        plain_max_error=float(plain_error.max()),
        plain_rms=float(plain_error.square().mean().sqrt()),
        count=int(finite.sum()),
        share=float((error / bar).max()),
    )


def pool(draws: Sequence[Any]) -> Any:
    """Errors of several draws as those of one of all their values; of containers, item by item."""
    first = draws[0]
    if isinstance(first, dict):
        return {name: pool([one[name] for one in draws]) for name in first}
    if isinstance(first, list | tuple):
        return [pool(each) for each in zip(*draws, strict=True)]
    count = sum(one.count for one in draws)
    plain_max = max(one.plain_max_error for one in draws)

    def most(values: Iterable[float]) -> float:
        return float(torch.tensor(list(values), dtype=torch.float64).max())  # NaN if any is

    def mean(name: str) -> float:
        return math.sqrt(sum(one.count * getattr(one, name) ** 2 for one in draws) / max(count, 1))

    max_error = most(one.max_error for one in draws)
    max_excess = most(one.max_excess + 2.0 * one.plain_max_error for one in draws) - 2.0 * plain_max
    # Each value's unit in the last place is not known any more: without it, if within.
    share = min(1.0, max_error / (2.0 * plain_max or 1.0))
    return Errors(
        max_error=max_error,
        max_excess=max_excess,
        rms=mean("rms"),
        plain_max_error=plain_max,
        plain_rms=mean("plain_rms"),
        count=count,
        share=share if max_excess <= 0.0 else most(one.share for one in draws),
    )


# Standard errors between a pooled ratio and the bar, and the fewest draws they are taken from.
CERTAIN, FEWEST = 3.0, 8


def settled(draws: Sequence[Errors]) -> bool:
    """Whether the ratio of RMS errors of all draws is so far from 1.1, on either side, that further
    draws would not bring it across: by ``CERTAIN`` of its standard errors, which the draws tell by
    leaving out one after the other. A draw is the unit, since its values share their roundings:
    all gradients of few rows what those rows' output lost."""
    if len(draws) < FEWEST:
        return False
    mine, plain = (
        torch.tensor([one.count * getattr(one, name) ** 2 for one in draws], dtype=torch.float64)
        for name in ("rms", "plain_rms")
    )
    without = ((mine.sum() - mine) / (plain.sum() - plain)).sqrt()
    error = (len(draws) - 1) ** 0.5 * without.std(correction=0)
    return bool((mine.sum() / plain.sum()).sqrt().sub(1.1).abs() >= CERTAIN * error)


MOST_DRAWS = 32


def judge(drawn: Callable[[int], dict[str, Errors]], draws: int = 1) -> None:
    """Each tensor of ``drawn(0)``, ``drawn(1)``, ... keeps its bar over so many ``draws``, pooled.

    The ratio of two RMS errors scatters from draw to draw and from one processor to another: where
    fp32 is compared with fp32 the few largest weights decide, and some tensors have few values. So
    what seems beyond a bar is drawn again, until its ratio is ``settled`` and a thousand values are
    compared, and judged by all its draws together: not by the first that happen to be within.
    """
    taken = [drawn(draw) for draw in range(draws)]
    pooled = pool(taken)
    doubtful = {name for name, one in pooled.items() if not one.within()}
    still = set(doubtful)
    while still and len(taken) < MOST_DRAWS:
        if any(pooled[name].far_beyond() for name in still):
            break
        taken.append(drawn(len(taken)))
        pooled = pool(taken)
        still -= {
            name
            for name in still
            if pooled[name].count >= 1000 and settled([one[name] for one in taken])
        }
    for name in sorted(doubtful):
        pooled[name].check(name)


_PlainGenerator = torch.Generator


class _Generator(_PlainGenerator):
    """Its seeds are others inside :func:`numbers`."""

    moved = 0

    def manual_seed(self, seed: int) -> torch.Generator:
        return super().manual_seed(seed + _Generator.moved)


@contextmanager
def numbers(seed: int) -> Iterator[None]:
    """Inside, generators that are seeded draw numbers of this ``seed``; of 0, those of outside."""
    _Generator.moved = 1_000_003 * seed
    # Cases make generators of their own; torch's types do not foresee another class in its place.
    torch.Generator = _Generator  # type: ignore[misc]
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.Generator = _PlainGenerator  # type: ignore[misc]


def strided(shape: tuple[int, ...], view: str, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Random values of ``shape`` in memory order ``view``.

    ``contiguous``; ``transposed`` swaps axes 1 and 2 in memory; ``padded`` leaves gaps of NaN
    after each row that a kernel must not read; ``skipping`` takes every second element, so that
    no axis has stride 1.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(shape, generator=generator).to(dtype)
    if view == "transposed":
        first, second = (1, 2) if len(shape) > 2 else (0, 1)
        return drawn.transpose(first, second).contiguous().transpose(first, second)
    if view == "padded":
        room = torch.full((*shape[:-1], shape[-1] + 3), float("nan"), dtype=dtype)
        room[..., : shape[-1]] = drawn
        return room[..., : shape[-1]]
    if view == "skipping":
        room = torch.full((*shape[:-1], 2 * shape[-1]), float("nan"), dtype=dtype)
        room[..., ::2] = drawn
        return room[..., ::2]
    assert view == "contiguous", view
    return drawn


class Worker:
    """One process in which Triton interprets; functions given to ``run`` are pickled by name."""

    def __init__(self) -> None:
        # numpy's products are small here: threads of their own only wait for one another.
        wanted = {"TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            self._pool = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=_prepare, initargs=(os.getpid(),)
            )
            self._pool.submit(_answer).result()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Whatever ran before, its random numbers are the same."""
        return self.draw(0, function, *arguments)

    def draw(self, draw: int, function: Callable[..., Any], *arguments: Any) -> Any:
        """As ``run``, with other numbers of each ``draw``."""
        return self._pool.submit(_of_draw, draw, function, *arguments).result()

    def check(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        names: Sequence[str] = (),
        draws: int = 1,
    ) -> None:
        """The errors that ``function`` gives, by name or in the order of ``names``, keep their bars
        over so many draws of its numbers, pooled; ``judge`` tells how."""

        def drawn(draw: int) -> dict[str, Errors]:
            found = self.draw(draw, function, *arguments)
            if isinstance(found, dict):
                return found
            found = [found] if isinstance(found, Errors) else found
            assert len(found) in (0, len(names)), f"expected {names}, got {len(found)} errors"
            return dict(zip(names, found, strict=False))

        judge(drawn, draws)

    def close(self) -> None:
        self._pool.shutdown()


def program(file: str, *arguments: str) -> tuple[int, str]:
    """Run a program with these arguments; its exit code and all that it prints."""
    words, before = io.StringIO(), (list(sys.argv), list(sys.path))
    sys.argv[:] = [file, *arguments]
    code: Any = 0
    try:
        with redirect_stdout(words):
            runpy.run_path(file, run_name="__main__")
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv[:], sys.path[:] = before
    return int(code or 0), words.getvalue()


def _of_draw(draw: int, function: Callable[..., Any], *arguments: Any) -> Any:
    with numbers(draw):
        return function(*arguments)


def _answer() -> None:
    """The pool starts its process on the first task."""


def _prepare(parent: int) -> None:
    # It holds both ends of the pipe it is asked by: of a parent that was killed it would not hear.
    end_with(parent)
    prepare()


def prepare() -> None:
    """What holds where cases run."""
    torch.set_num_threads(1)
    # torch.empty then gives NaN: what a kernel fails to write shows.
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    mend_interpreter()

"""Words of plain Triton and of libdevice compute what torch does, or are refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.language import math as tmath
from triton.language.extra import libdevice
from triton.language.extra.cuda.libdevice import tanh as cuda_tanh
from triton.language.standard import cumsum as by_name

from warpwatch.simulator.session.check import Findings, check

N = 16


@triton.jit
def elementwise(x, y, WORD: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    if WORD == "exp2":
        w = tl.math.exp2(v)
    elif WORD == "exp2 of a module":
        w = tmath.exp2(v)
    elif WORD == "tanh":
        w = libdevice.tanh(v)
    elif WORD == "tanh by name":
        w = cuda_tanh(v)
    elif WORD == "tanh from tl":
        w = tl.extra.cuda.libdevice.tanh(v)
    elif WORD == "pow":
        w = libdevice.pow(v, 3.0)
    elif WORD == "erfinv":
        w = libdevice.erfinv(v / 2)
    elif WORD == "cumsum":
        w = tl.cumsum(v)
    elif WORD == "cumsum by name":
        w = by_name(v, 0, reverse=True)
    elif WORD == "cumprod":
        w = tl.cumprod(v, 0)
    elif WORD == "softmax":
        w = tl.softmax(v)
    elif WORD == "flip":
        w = tl.flip(v)
    elif WORD == "sort":
        w = tl.sort(v, descending=True)
    elif WORD == "sum of a tensor":
        w = v / v.sum(0)
    elif WORD == "squeezed":
        w = tl.squeeze(tl.unsqueeze(v, 0), 0)
    tl.store(y + at, w)


@triton.jit
def of_rows(x, y, WORD: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    if WORD == "argmax":
        tl.store(y, tl.argmax(v, 0))
    elif WORD == "argmin":
        tl.store(y, tl.argmin(v, 0))
    elif WORD == "topk":
        tl.store(y + tl.arange(0, 4), tl.topk(v, 4))
    elif WORD == "interleave":
        tl.store(y + tl.arange(0, 2 * N), tl.interleave(v, -v))
    elif WORD == "popc":
        tl.store(y + at, libdevice.popc(at))


@triton.jit
def refused(x, WORD: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    v = tl.load(x + at)
    if WORD == "libdevice.erfcx":
        v = libdevice.erfcx(v)
    if WORD == "tl.histogram":
        v = tl.histogram(at, N)
    if WORD == "tl.cat":
        v = tl.cat(at, at, can_reorder=True)
    if WORD == "tl.dot_scaled":
        v = tl.dot_scaled(v, None, "bf16", v, None, "bf16")
    if WORD == "tl.no_such_word":
        v = tl.no_such_word(v)
    if WORD == "tl.math.no_such_word":
        v = tl.math.no_such_word(v)
    tl.store(x + at, v)


ELEMENTWISE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp2": torch.exp2,
    "exp2 of a module": torch.exp2,
    "tanh": torch.tanh,
    "tanh by name": torch.tanh,
    "tanh from tl": torch.tanh,
    "pow": lambda x: x**3,
    "erfinv": lambda x: torch.erfinv(x / 2),
    "cumsum": lambda x: x.cumsum(0),
    "cumsum by name": lambda x: x.flip(0).cumsum(0).flip(0),
    "cumprod": lambda x: x.cumprod(0),
    "softmax": lambda x: x.softmax(0),
    "flip": lambda x: x.flip(0),
    "sort": lambda x: x.sort(descending=True).values,
    "sum of a tensor": lambda x: x / x.sum(),
    "squeezed": lambda x: x,
}
OF_ROWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "argmax": lambda x: x.argmax().reshape(1),
    "argmin": lambda x: x.argmin().reshape(1),
    "topk": lambda x: x.topk(4).values,
    "interleave": lambda x: torch.stack([x, -x], 1).reshape(-1),
    "popc": lambda x: torch.tensor([one.bit_count() for one in range(N)]),
}
REFUSED = (
    "libdevice.erfcx", "tl.histogram", "tl.cat", "tl.dot_scaled", "tl.no_such_word",
    "tl.math.no_such_word",
)  # fmt: skip


def judged(kernel: Any, wanted: Callable[[torch.Tensor], torch.Tensor], word: str) -> Findings:
    def host() -> None:
        x = torch.rand(N, device="cuda")
        want = wanted(x)
        y = torch.empty(want.shape, device="cuda")
        kernel[(1,)](x, y, WORD=word, N=N)
        torch.testing.assert_close(y, want.float())

    return check(host, [0])


@pytest.mark.parametrize("word", ELEMENTWISE)
def test_a_word_of_all_elements_is_torchs(word: str) -> None:
    found = judged(elementwise, ELEMENTWISE[word], word)
    assert not found.reports, found.reports[0].lines()


@pytest.mark.parametrize("word", OF_ROWS)
def test_a_word_that_changes_the_shape_is_torchs(word: str) -> None:
    found = judged(of_rows, OF_ROWS[word], word)
    assert not found.reports, found.reports[0].lines()


@pytest.mark.parametrize("word", REFUSED)
def test_an_unknown_word_is_refused_by_its_name(word: str) -> None:
    found = check(lambda: refused[(1,)](torch.rand(N, device="cuda"), WORD=word, N=N), [0, 1])
    (told,) = found.unknown
    assert told.message == f"{word} is not known to the simulator"
    lines, first = inspect.getsourcelines(refused.fn)
    (line,) = (first + i for i, text in enumerate(lines) if f"v = {word}(" in text)
    assert [(site.file, site.line) for _, site in told.sites] == [(__file__, line)]


def test_every_function_of_libdevice_computes_or_is_refused() -> None:
    """None passes as a stub that returns nothing."""
    from warpwatch.simulator.errors import Fault
    from warpwatch.simulator.session.interpreter import translate
    from warpwatch.simulator.values.blocks import block_of

    names = [
        name
        for name, one in vars(libdevice).items()
        if inspect.isfunction(one) and one.__module__ == libdevice.__name__
    ]
    assert len(names) > 150
    known = 0
    for name in names:
        given = len(inspect.signature(getattr(libdevice, name)).parameters)
        for value in (0.5, 1):
            try:
                found = translate(getattr(libdevice, name))(*[block_of(value)] * given)
            except Fault:
                continue
            known += 1
            assert found is not None, name
    assert known > 50
    assert Path(libdevice.__file__).name == "libdevice.py"

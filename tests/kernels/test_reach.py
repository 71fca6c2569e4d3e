"""Views whose rows lie so far apart that a tile of them spans more than 32 bits count."""

from __future__ import annotations

import mmap
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

import kernels
from kernels.attention.common.addressing import near_bias
from tests.gpu import far_rows
from tests.kernels.interpreted import Worker

NO_RESERVE = 0x4000  # Linux's MAP_NORESERVE, which Python names from 3.13 on
ROWS, APART = 60, 40_000_000
FURTHER = 150_000_000  # beyond reach of the 16 rows of a matmul's tile


def far(tensor: torch.Tensor, axis: int = 1, apart: int = APART) -> torch.Tensor:
    """The same values, one entry along the axes before ``axis``, those along it ``apart``; memory
    not touched is not there."""
    size = ((tensor.shape[axis] - 1) * apart + tensor.stride(axis)) * tensor.element_size()
    room = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    strides = (*(0,) * axis, apart, *tensor.stride()[axis + 1 :])
    return (
        torch.frombuffer(room, dtype=tensor.dtype).as_strided(tensor.shape, strides).copy_(tensor)
    )


def run(kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Results of far views beside those of near ones."""
    q, k, v, dout = (torch.randn(1, ROWS, 2, 16, dtype=torch.float16) for _ in range(4))
    found = []
    for place in (far, torch.clone):
        a, b, c, d = (place(one) for one in (q, k, v, dout))
        if kind == "packed":
            ends = torch.tensor([0, 20, ROWS], dtype=torch.int32)
            given = (a[0], b[0], c[0], ends, ends, 40, 40)
            found.append([kernels.flash_attention_varlen(*given)])
        elif kind == "packed fp8":
            ends = torch.tensor([0, 20, ROWS], dtype=torch.int32)
            low = [place(one.to(torch.float8_e4m3fn))[0] for one in (q, k, v)]
            found.append([kernels.flash_attention_varlen(*low, ends, ends, 40, 40)])
        elif kind == "fp8":
            low = [place(one.to(torch.float8_e4m3fn)) for one in (q, k, v)]
            found.append([kernels.flash_attention(*low)])
        elif kind == "bias":
            bias = torch.arange(ROWS * ROWS).view(1, 1, ROWS, ROWS).half() % 7
            bias = bias if place is torch.clone else far(bias, 2, FURTHER)
            found.append([kernels.flash_attention(q, k, v, bias=bias)])
        else:
            out, lse = kernels.flash_attention(a, b, c, softcap=9.0, return_lse=True)
            gradients = kernels.flash_attention_backward(d, a, b, c, place(out), lse)
            found.append([out, lse, *gradients])
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("kind", ["both passes", "packed", "packed fp8", "fp8", "bias"])
def test_rows_may_lie_any_distance_apart(interpreter: Worker, kind: str) -> None:
    for got, wanted in interpreter.run(run, kind):
        assert torch.equal(got, wanted) and not got.isnan().any()


def run_cache(page: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    q, new = torch.randn(1, 1, 2, 16).half(), torch.randn(1, 1, 2, 16).half()
    k, v = (torch.randn(1, ROWS, 2, 16).half() for _ in range(2))
    if page:
        k, v = k[:, :page], v[:, :page]
    found = []
    for place in (lambda one: far(one, 1, FURTHER), torch.clone):
        caches = place(k), place(v)
        table = torch.zeros(1, 1, dtype=torch.int32) if page else None
        out = kernels.flash_attention_kvcache(
            q, *caches, new, new, cache_seqlens=k.shape[1] - 1, block_table=table
        )
        # In columns as far apart as rows are.
        turned = [place(one.transpose(1, 3).contiguous()).transpose(1, 3) for one in (k, v)]
        other = kernels.flash_attention_kvcache(
            q, *turned, new, new, cache_seqlens=k.shape[1] - 1, block_table=table
        )
        found.append([out, other, *(one.contiguous() for one in (*caches, *turned))])
    return list(zip(*found, strict=True))


@pytest.mark.parametrize("page", [0, 16])
def test_keys_of_a_cache_may_lie_any_distance_apart(interpreter: Worker, page: int) -> None:
    for got, wanted in interpreter.run(run_cache, page):
        assert torch.equal(got, wanted) and not got.isnan().any()


def run_products(kind: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """With each tensor in turn far, of one kind of product."""
    a, b, residual = torch.randn(24, 40).half(), torch.randn(40, 24).half(), torch.randn(24, 24)
    residual, scale = residual.half(), torch.rand(24)
    offsets = torch.tensor([0, 20, 24], dtype=torch.int32)

    def product(which: str) -> list[torch.Tensor]:
        def placed(name: str, one: torch.Tensor) -> torch.Tensor:
            return far(one, one.dim() - 2, FURTHER) if name == which else one.clone()

        if kind == "fp8":
            low = (placed("a", a.to(torch.float8_e4m3fn)), placed("b", b.to(torch.float8_e4m3fn)))
            given = {"residual": placed("residual", residual), "out_dtype": torch.float16}
            out = placed("out", torch.zeros_like(residual))
            return [kernels.matmul(*low, a_scale=scale, out=out, **given).contiguous()]
        if kind == "grouped":
            x, y = placed("a", a).requires_grad_(), placed("b", b[None]).expand(2, -1, -1)
            y.requires_grad_()
            out = kernels.grouped_matmul(x, y, offsets)
            found = [out, *torch.autograd.grad(out, (x, y), placed("out", residual))]
            return [one.detach().contiguous() for one in found]
        if kind == "one row":
            x, y = placed("a", b[:, :1].clone()).t(), placed("b", a).t()
            z, out = (placed(n, residual[:, :1].clone()).t() for n in ("residual", "out"))
            return [kernels.matmul(x, y, residual=z, out=out).contiguous()]
        x, y, z = placed("a", a), placed("b", b), placed("residual", residual)
        given = [one.requires_grad_() for one in (x, y, z)]
        out = kernels.matmul(x, y, residual=z, activation="relu")
        found = [out, *torch.autograd.grad(out, given, placed("out", residual))]
        with torch.no_grad():
            out = placed("out", torch.zeros_like(residual))
            kernels.matmul(x, y, residual=z, activation="relu", out=out)
        return [one.detach().contiguous() for one in (*found, out)]

    near = product("")
    return [
        pair
        for which in ("a", "b", "residual", "out")
        for pair in zip(product(which), near, strict=True)
    ]


@pytest.mark.parametrize("kind", ["plain", "one row", "fp8", "grouped"])
def test_rows_of_products_may_lie_any_distance_apart(interpreter: Worker, kind: str) -> None:
    for got, wanted in interpreter.run(run_products, kind):
        assert torch.allclose(got, wanted, rtol=2e-3, atol=2e-3)


def run_scales(which: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Of so many blocks of K that their scales span more than a tile's worth of 32 bits."""
    a, b = (torch.randn(8, 40 * 128).to(torch.float8_e4m3fn) for _ in range(2))
    scales = {"a_scale": torch.rand(40, 8), "b_scale": torch.rand(40, 1)}

    def product(place: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        placed = scales | {which: place(scales[which])}
        by_rows = placed | {"a_scale": placed["a_scale"].t()}
        return kernels.matmul(a, b.t(), out_dtype=torch.float32, **by_rows)

    return [(product(lambda one: far(one, 0, 60_000_000)), product(torch.clone))]


@pytest.mark.parametrize("which", ["a_scale", "b_scale"])
def test_scales_of_blocks_may_lie_any_distance_apart(interpreter: Worker, which: str) -> None:
    for got, wanted in interpreter.run(run_scales, which):
        assert torch.equal(got, wanted) and not got.isnan().any()


def run_scales_of_heads() -> list[tuple[torch.Tensor, torch.Tensor]]:
    q = torch.randn(1, 16, ROWS, 32).to(torch.float8_e4m3fn)
    scale = torch.rand(ROWS)
    return [
        (
            kernels.flash_attention(q, q, q, **{name: far(scale, 0, APART)}),
            kernels.flash_attention(q, q, q, **{name: scale}),
        )
        for name in ("q_scale", "k_scale", "v_scale")
    ]


def test_scales_of_heads_may_lie_any_distance_apart(interpreter: Worker) -> None:
    for got, wanted in interpreter.run(run_scales_of_heads):
        assert torch.equal(got, wanted) and not got.isnan().any()


def run_decoding(which: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Outputs and caches, where new keys are appended, with the argument ``which`` far."""
    heads, pages, seen = 16, 16, 250
    q, new = (torch.randn(1, 2, heads, 16).half() for _ in range(2))
    k, v = (torch.randn(pages, 16, heads, 16) for _ in range(2))
    given = {"k_scale": torch.rand(heads) + 0.5, "v_scale": torch.rand(heads) + 0.5}
    given["alibi_slopes"] = torch.rand(heads)
    given["block_table"] = torch.randperm(pages, dtype=torch.int32)[None]

    def decoded(given: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        low = [one.to(torch.float8_e4m3fn) for one in (k, v)]
        out = kernels.flash_attention_kvcache(q, *low, new, new, cache_seqlens=seen, **given)
        return [out, *(one.float() for one in low)]

    one = given[which]
    apart = far(one, one.dim() - 1, FURTHER)
    return list(zip(decoded(given | {which: apart}), decoded(given), strict=True))


@pytest.mark.parametrize("which", ["k_scale", "v_scale", "alibi_slopes", "block_table"])
def test_what_decoding_has_a_value_a_head_or_page_of_may_lie_any_distance_apart(
    interpreter: Worker, which: str
) -> None:
    for got, wanted in interpreter.run(run_decoding, which):
        assert torch.equal(got, wanted) and not got.isnan().any()


def run_slopes() -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Both passes with slopes of heads that lie far apart."""
    q, k, v, dout = (torch.randn(1, 20, 16, 16).half() for _ in range(4))
    slopes = torch.rand(16)

    def passes(slopes: torch.Tensor) -> list[torch.Tensor]:
        given = [one.clone().requires_grad_() for one in (q, k, v)]
        out = kernels.flash_attention(*given, alibi_slopes=slopes)
        return [out.detach(), *torch.autograd.grad(out, given, dout)]

    return list(zip(passes(far(slopes, 0, FURTHER)), passes(slopes), strict=True))


def test_slopes_of_heads_may_lie_any_distance_apart(interpreter: Worker) -> None:
    for got, wanted in interpreter.run(run_slopes):
        assert torch.equal(got, wanted) and not got.isnan().any()


DIVISOR = 2000


@contextmanager
def sooner() -> Iterator[None]:
    """Inside, kernels take rows for far at distances this much smaller, and as few rows as their
    tiles have here."""
    limits = [
        (module, name, getattr(module, name))
        for place, module in sys.modules.items()
        for name in ("LIMIT", "SMALL")
        if place.startswith("kernels.") and hasattr(module, name)
    ]
    assert len(limits) > 2
    for module, name, value in limits:
        setattr(module, name, value // DIVISOR // 8)
    try:
        yield
    finally:
        for module, name, value in limits:
            setattr(module, name, value)


def run_shrunk(name: str) -> list[str]:
    with sooner():
        return far_rows.problems(name, "cpu", True, DIVISOR)


@pytest.mark.parametrize("name", far_rows.CASES)
def test_what_a_gpu_holds_is_held_here_at_smaller_distances(interpreter: Worker, name: str) -> None:
    assert not interpreter.run(run_shrunk, name)


def test_a_bias_that_no_copy_brings_near_is_refused() -> None:
    scores = (1, 1, 64, 36_000_000)
    for size in (scores, (1, 1, 1, 1)):
        bias = torch.empty(size, device="meta")
        if size == scores:
            with pytest.raises(NotImplementedError, match="pass at most 60 queries at a time"):
                near_bias(bias, scores)
        else:
            assert near_bias(bias, scores) is bias


def test_compiled_strides_are_widened_before_anything_is_multiplied_by_them() -> None:
    from warpwatch.config import targets
    from warpwatch.instruments.compiled.record.call import record

    def call() -> None:
        out = far(torch.empty(64, 64), 0, FURTHER)
        kernels.matmul(torch.empty(64, 16), torch.empty(16, 64), out=out)
        cache = far(torch.empty(1, ROWS, 1, 16).half(), 1, FURTHER)
        kernels.flash_attention_kvcache(torch.empty(1, 1, 1, 16).half(), cache, cache)

    recording = record(call, targets.get("sm_90"))
    assert not recording.failures
    seen = {}
    for launch in recording.launches:
        if launch.arguments.get("FAR") is True:
            body = [one.split(" loc(")[0] for one in launch.kernel.texts["ttir"].splitlines()]
            uses = [one for one in body if re.search(r"%\w*(stride|pitch)", one)]
            seen[launch.kernel.name] = [one for one in uses if "tt.func" not in one]
    assert set(seen) == {"matmul_kernel", "attention_kvcache"}
    for uses in seen.values():
        assert uses and all("arith.extsi" in one for one in uses), uses

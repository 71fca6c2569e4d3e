"""What torch does in a recorded call: bytes counted by hand, operators libraries add, item()."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from warpwatch.config import targets
from warpwatch.instruments.compiled import Recording
from warpwatch.instruments.compiled.record.call import record

H200 = targets.get("sm_90")
ROWS, COLUMNS = 128, 512
FULL = ROWS * COLUMNS * 4  # bytes of x and y below
HALF = FULL // 2


def x_and_y() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(ROWS, COLUMNS, device="cuda"), torch.empty(ROWS, COLUMNS, device="cuda")


Case = tuple[str, Callable[[torch.Tensor, torch.Tensor], Any], int, int]
CASES: list[Case] = [
    # name, what is done, bytes moved, bytes copied
    ("out of place", lambda x, y: x + y, 3 * FULL, 0),
    ("one operand twice", lambda x, y: x + x, 2 * FULL, 0),
    ("in place", lambda x, y: x.add_(y), 3 * FULL, 0),
    ("in place, alone", lambda x, y: x.mul_(2), 2 * FULL, 0),
    ("out=", lambda x, y: torch.add(x, 1, out=y), 2 * FULL, 0),
    ("out= is an input", lambda x, y: torch.add(x, y, out=x), 3 * FULL, 0),
    ("overwritten", lambda x, y: x.zero_(), FULL, 0),
    ("copied into", lambda x, y: x.copy_(y), 2 * FULL, FULL),
    ("converted into", lambda x, y: x.to(torch.bfloat16), FULL + HALF, HALF),
    ("half copied into", lambda x, y: x[:64].copy_(y[64:]), FULL, HALF),
    ("a row for all", lambda x, y: x.add_(y[0]), 2 * FULL + COLUMNS * 4, 0),
    ("a row expanded", lambda x, y: y[:1].expand(ROWS, -1).clone(), COLUMNS * 4 + FULL, FULL),
    ("put together", lambda x, y: torch.cat([x, y]), 4 * FULL, 2 * FULL),
    ("every one in place", lambda x, y: torch._foreach_add_([x, y], 1.0), 4 * FULL, 0),
    ("a view", lambda x, y: x.t()[2:].unsqueeze(0), 0, 0),
    ("views in place", lambda x, y: x.t_().unsqueeze_(0).squeeze_(0), 0, 0),
    ("a reshape that copies", lambda x, y: x.t().reshape(-1), 2 * FULL, FULL),
]


@pytest.mark.parametrize(("name", "call", "moved", "copied"), CASES, ids=[one[0] for one in CASES])
def test_each_operand_is_read_once_and_written_once(
    name: str, call: Callable[[torch.Tensor, torch.Tensor], Any], moved: int, copied: int
) -> None:
    operations = record(lambda pair: call(*pair), H200, inputs=x_and_y).torch_ops
    assert sum(one.bytes_moved for one in operations) == moved
    assert sum(one.copied_bytes for one in operations) == copied


def test_looking_up_and_putting_touch_no_more_than_what_is_handed_over() -> None:
    cache = torch.empty(1 << 16, 64, dtype=torch.float16)
    places = torch.tensor([5, 900, 33], dtype=torch.int64)
    rows, index = 3 * 64 * 2, 3 * 8

    def put() -> None:
        cache[places] = torch.empty(3, 64, dtype=torch.float16, device="cuda")

    (look,) = record(lambda: cache[places], H200).torch_ops
    assert look.bytes_moved == rows + index + rows
    operations = record(put, H200).torch_ops
    assert [one.bytes_moved for one in operations] == [rows + index + rows]


def test_a_reshape_is_one_launch_at_most_and_views_in_place_change_the_shape() -> None:
    shapes: list[tuple[int, ...]] = []

    def call(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        x = pair[0] + 1  # too large to be computed
        shapes.append(tuple(x.t_().unsqueeze_(0).shape))
        return x.reshape(-1)

    operations = record(call, H200, inputs=x_and_y).torch_ops
    assert shapes == [(1, COLUMNS, ROWS)]
    assert [one.name for one in operations if one.launches] == ["aten.add", "aten.clone"]


# Values -------------------------------------------------------------------------------------------


def test_a_value_that_is_computed_is_read_without_a_word() -> None:
    seen: list[object] = []

    def call() -> None:
        lengths = torch.tensor([3, 1, 4, 1], device="cuda").cumsum(0)
        seen.extend([lengths.max().item(), lengths.tolist(), bool((lengths > 8).any())])

    assert record(call, H200).notes == ()
    assert seen == [9, [3, 4, 8, 9], True]


def test_memory_that_grows_is_unknown_where_nobody_wrote() -> None:
    def call() -> None:
        lengths = torch.empty(4, dtype=torch.int64, device="cuda").resize_(1 << 14)
        lengths[:4].zero_()
        assert lengths[3].item() == 0
        lengths[-1].item()

    assert record(lambda: torch.zeros(4, device="cuda")[3].item(), H200).notes == ()
    assert any("item" in note for note in record(call, H200).notes)


def test_a_value_nobody_computed_reads_as_0_and_is_noted() -> None:
    seen: list[object] = []

    def call() -> None:
        experts = torch.empty(4096, 64, device="cuda").argmax(1)
        seen.extend([experts.max().item(), experts[:2].tolist(), experts.nonzero().shape[0]])

    notes = record(call, H200).notes
    assert seen == [0, [0, 0], 0]
    for what in ("item", "tolist", "aten.nonzero"):
        assert any(f"is not computed here ({what})" in note for note in notes), what


# Operators that libraries add ---------------------------------------------------------------------


@triton.jit
def double(x, y, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


def doubled(x: torch.Tensor) -> torch.Tensor:
    assert x.is_cuda
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), N=512)
    return y.clone()


@torch.library.custom_op("recorded::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return doubled(x)


@torch.library.custom_op("recorded::for_gpus", mutates_args=(), device_types="cuda")
def for_gpus(x: torch.Tensor) -> torch.Tensor:
    return doubled(x)


@cache
def triton_op() -> Any:
    """Made where it is used: to make one imports torch's compiler, which every process that
    collects these tests would wait for."""

    @torch.library.triton_op("recorded::wrapped", mutates_args=())
    def wrapped(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 512),)
        torch.library.wrap_triton(double)[grid](x, y, x.numel(), N=512)
        return y.clone()

    return wrapped


def wrapped(x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = triton_op()(x)
    return out


@custom.register_fake
@for_gpus.register_fake
def _like(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


custom.register_autograd(lambda ctx, grad: custom(grad))


def work_of(recording: Recording) -> tuple[list[str], list[str]]:
    assert recording.failures == ()
    return (
        [one.kernel.name for one in recording.launches],
        [one.name for one in recording.torch_ops if one.launches],
    )


@pytest.mark.parametrize("operator", [custom, for_gpus, wrapped])
@pytest.mark.parametrize("count", [1000, 1 << 20])
def test_an_operator_in_python_is_recorded_with_all_it_does(operator: Any, count: int) -> None:
    recording = record(lambda: operator(torch.empty(count, device="cuda")), H200)
    assert work_of(recording) == (["double"], ["aten.clone"])


def test_so_is_its_backward() -> None:
    def call() -> None:
        x = torch.empty(1 << 20, device="cuda", requires_grad=True)
        out = custom(x)
        assert out.requires_grad
        out.backward(torch.empty_like(out))

    launches, _ = work_of(record(call, H200))
    assert launches == ["double", "double"]


LIBRARY = """
import torch
import test_torch_ops_kernel

library = torch.library.Library("{name}", "DEF")
library.define("doubled(Tensor x) -> Tensor")
library.impl("doubled", test_torch_ops_kernel.doubled, "CUDA")
library.impl("doubled", torch.empty_like, "Meta")
"""


def test_so_is_one_given_to_torchs_dispatcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "raw_library.py").write_text(LIBRARY.format(name="recorded_raw"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_torch_ops_kernel", sys.modules[__name__])

    def call() -> None:
        import raw_library  # noqa: F401  (under the driver, as the measured package is)

        torch.ops.recorded_raw.doubled(torch.empty(1 << 20, device="cuda"))

    assert work_of(record(call, H200)) == (["double"], ["aten.clone"])


def test_so_is_what_replaces_an_operator_of_torch_while_it_does() -> None:
    def call() -> None:
        x = torch.empty(1 << 20, device="cuda")
        library = torch.library.Library("aten", "IMPL")
        library.impl("erfinv", doubled, "CUDA")
        torch.erfinv(x)
        library._destroy()
        torch.erfinv(x)

    assert work_of(record(call, H200)) == (["double"], ["aten.clone", "aten.erfinv"])


def test_our_own_operators_are_recorded_where_a_gradient_is_asked_for() -> None:
    import kernels

    def inputs() -> list[torch.Tensor]:
        sizes = (1, 256, 2, 64)
        return [
            torch.empty(sizes, dtype=torch.float16, device="cuda", requires_grad=True)
            for _ in range(3)
        ]

    def attend(made: list[torch.Tensor]) -> None:
        out = kernels.flash_attention(*made)
        out.backward(torch.empty_like(out))

    def multiply(made: list[torch.Tensor]) -> None:
        kernels.matmul(made[0].reshape(512, 64), made[1].reshape(64, 512))

    launches, _ = work_of(record(attend, targets.get("sm_80"), inputs=inputs))
    assert launches[0] == "attention_forward"
    assert sorted(launches[1:]) == [f"attention_backward_{one}" for one in ("kv", "marked", "q")]
    launches, _ = work_of(record(multiply, targets.get("sm_80"), inputs=inputs))
    assert launches == ["matmul_kernel"]

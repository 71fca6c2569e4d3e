"""Calls of a known form are replayed: the same launches, whatever else changes is noticed."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kernels
from kernels.runtime.launch import forget, forms, plan
from kernels.runtime.launch.plan import Plan
from tests.kernels.prepared_calls import (
    CALLS,
    Call,
    decoding,
    drawn,
    gradients,
    launched,
    without_addresses,
)
from warpwatch.config import targets
from warpwatch.instruments.compiled.record import driver
from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

TARGET = targets.get("sm_90")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Any]:
    with driver.active(TARGET) as active, torch_cuda.answered(TARGET):
        yield active


@pytest.fixture(autouse=True)
def forgotten(recorder: Any) -> Iterator[None]:
    forget()
    yield
    assert not recorder.failures
    forget()


def plans() -> int:
    return sum(type(one) is Plan for table in forms._tables.values() for one in table.values())


def test_a_plan_keeps_no_tensor_alive(recorder: Any) -> None:
    a, b = drawn(256, 256), drawn(256, 256)
    for _ in range(3):
        kernels.matmul(a, b)
    assert plans()
    left = weakref.ref(a)
    recorder.launches.clear()
    del a
    gc.collect()
    assert left() is None


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_launch_what_the_first_one_did(recorder: Any, name: str) -> None:
    call = CALLS[name]()
    first = without_addresses(launched(recorder, call))
    assert first
    for _ in range(5):
        assert without_addresses(launched(recorder, call)) == first
    assert plans()
    again = CALLS[name]()  # with tensors elsewhere
    replayed = without_addresses(launched(recorder, again))
    forget()
    assert without_addresses(launched(recorder, again)) == replayed


def test_a_replayed_launch_has_the_addresses_of_its_own_tensors(recorder: Any) -> None:
    a, b, c, d = (drawn(256, 256) for _ in range(4))
    for _ in range(3):
        kernels.matmul(a, b)
    (launch,) = launched(recorder, lambda: kernels.matmul(c, d))
    bases = [one.base.address for one in launch.arguments.values() if hasattr(one, "base")]
    assert bases[:2] == [c.data_ptr(), d.data_ptr()]
    (launch,) = launched(recorder, lambda: kernels.matmul(c, c))
    bases = [one.base.address for one in launch.arguments.values() if hasattr(one, "base")]
    assert bases[:2] == [c.data_ptr()] * 2


@pytest.mark.parametrize("head_dim", [128, 256])
def test_memory_is_given_back_once_no_later_step_needs_it(
    recorder: Any, monkeypatch: pytest.MonkeyPatch, head_dim: int
) -> None:
    """A repeated call holds no more than one as written."""
    made, gone = [], []

    class Launches(list[Any]):
        def append(self, one: Any) -> None:
            gone.append(sum(tensor() is None for tensor in made))

    def noting(*given: Any) -> Callable[..., torch.Tensor]:
        empty = reserve(*given)

        def noted(*args: Any) -> torch.Tensor:
            found = empty(*args)
            made.append(weakref.ref(found))
            return found

        return noted

    reserve = plan._reserve
    monkeypatch.setattr(plan, "_reserve", noting)
    monkeypatch.setattr(recorder, "launches", Launches())
    call = gradients(2, 300, 4, head_dim)
    for _ in range(60):  # forms differ in where gradients happen to lie
        made.clear()
        call()
        if made and any(gone):
            return
    raise AssertionError("no call gave anything back")


def shifted(rows: int, columns: int) -> torch.Tensor:
    """As drawn, but from the second value of its memory on."""
    return drawn(rows * columns + 8)[1 : 1 + rows * columns].view(rows, columns)


CHANGED: dict[str, Callable[[torch.Tensor], Call]] = {
    "strides": lambda a: lambda: kernels.matmul(a, drawn(256, 256).t()),
    "dtype": lambda a: lambda: kernels.matmul(a.bfloat16(), a.bfloat16()),
    "alignment": lambda a: lambda: kernels.matmul(a, shifted(256, 256)),
    "shape": lambda a: lambda: kernels.matmul(a[:128], a),
    "options": lambda a: lambda: kernels.matmul(a, a, activation="relu"),
    "autocast": lambda a: lambda: kernels.matmul(a.float(), a.float()),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_call_notices_what_changed(recorder: Any, what: str) -> None:
    a = drawn(256, 256)
    changed = CHANGED[what](a)
    with torch.autocast("cpu", torch.bfloat16, enabled=what == "autocast"):
        wanted = without_addresses(launched(recorder, changed))
    forget()
    for _ in range(3):
        kernels.matmul(a, a)
        changed() if what == "autocast" else None  # the same form without autocast
    with torch.autocast("cpu", torch.bfloat16, enabled=what == "autocast"):
        assert without_addresses(launched(recorder, changed)) == wanted


def test_a_call_notices_whether_gradients_are_asked_for(recorder: Any) -> None:
    a = drawn(256, 256).requires_grad_()
    for _ in range(4):
        assert kernels.matmul(a, a).requires_grad
        with torch.no_grad():
            assert not kernels.matmul(a, a).requires_grad
        assert not kernels.matmul(a.detach(), a.detach()).requires_grad


def test_gradients_have_none_of_their_own_at_any_call(recorder: Any) -> None:
    given = [drawn(1, 256, 2, 64).requires_grad_() for _ in "qkv"]
    for _ in range(6):
        out = kernels.flash_attention(*given)
        (dq,) = torch.autograd.grad(out.sum(), given[0], create_graph=True)
        with pytest.raises(NotImplementedError, match="differentiated once"):
            torch.autograd.grad(dq.sum(), given[0])
        torch.autograd.grad(kernels.flash_attention(*given).sum(), given)


def lookups() -> int:
    return sum(table.lookups for table in forms._tables.values())


def test_a_call_like_one_of_the_latest_is_recognised_without_its_form(recorder: Any) -> None:
    a, b, c = drawn(256, 256), drawn(256, 256), drawn(128, 256)

    def lowered() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return kernels.matmul(low, low)

    low = a.bfloat16()
    calls: list[Call] = [
        lowered,
        lambda: kernels.matmul(a, b),
        lambda: kernels.matmul(a, a),
        lambda: kernels.matmul(c, b, activation="relu"),
    ]
    for _ in range(3):
        for call in calls:
            call()
    before = lookups()
    for call in calls * 3:
        call()
    assert lookups() == before
    wanted = [without_addresses(launched(recorder, call)) for call in calls]
    forget()
    assert [without_addresses(launched(recorder, call)) for call in calls] == wanted


def test_what_no_form_says_is_no_reason_to_mistake_a_call(recorder: Any) -> None:
    """Values that are equal and of another type, negated views, and modes that watch."""
    a, q = drawn(256, 256), drawn(1, 256, 2, 64)
    for _ in range(4):
        kernels.matmul(a, a, allow_tf32=True)
        kernels.flash_attention(q, q, q, softmax_scale=1.0)
    with pytest.raises((TypeError, ValueError), match="softmax_scale"):
        kernels.flash_attention(q, q, q, softmax_scale=True)
    with pytest.raises(ValueError, match="torch negates"):
        kernels.matmul(torch._neg_view(a), a, allow_tf32=True)
    meta = a.to("meta")
    assert kernels.matmul(meta, meta, allow_tf32=True).is_meta
    mapped = torch.func.vmap(lambda x: kernels.matmul(x, a, allow_tf32=True))(torch.stack([a, a]))
    assert mapped.shape == (2, 256, 256)


def test_tensors_that_are_saved_stay_in_the_hands_of_autograd(recorder: Any) -> None:
    """Writing one in place is noticed, hooks see each, and may give back others."""
    given = [drawn(1, 256, 2, 64).requires_grad_() for _ in "qkv"]
    seen: list[int] = []

    def elsewhere(tensor: torch.Tensor) -> torch.Tensor:
        found = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:].view(tensor.shape)
        return found.copy_(tensor)

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        seen.append(tensor.dim())
        return tensor.detach()

    counts = []
    for i in range(7):
        out = kernels.flash_attention(*given)
        with torch.no_grad():
            given[i % 3].add_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(out.sum(), given)
        seen.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, elsewhere if i % 2 else pack):
            out = kernels.flash_attention(*given)
        counts.append(len(seen))
        assert len(torch.autograd.grad(out, given, out.detach())) == 3
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(out, given, out.detach())
    assert set(counts) == {5}


def test_gradients_of_either_result_are_those_of_the_call_as_written(recorder: Any) -> None:
    given = [drawn(1, 256, 2, 64).requires_grad_() for _ in "qkv"]

    def of_both() -> None:
        out, lse = kernels.flash_attention(*given, return_lse=True)
        torch.autograd.grad(out.sum() + lse.sum(), given)

    def of_one() -> None:
        _out, lse = kernels.flash_attention(*given, return_lse=True)
        torch.autograd.grad(lse, given[0], torch.ones_like(lse))

    for call in (of_both, of_one):
        forget()
        first = without_addresses(launched(recorder, call))
        for _ in range(6):
            assert without_addresses(launched(recorder, call)) == first


def test_the_same_mistake_is_the_same_error_at_every_call(recorder: Any) -> None:
    a, q = drawn(256, 256), drawn(1, 64, 2, 64)
    mistakes: list[Call] = [
        lambda: kernels.matmul(a, a[:9]),
        lambda: kernels.matmul(a, a, out=a),
        lambda: kernels.flash_attention(q, q, q, softmax_scale=True),
        lambda: kernels.flash_attention(q, q, q.to_sparse()),
    ]
    for call in mistakes:
        said = set()
        for _ in range(4):
            with pytest.raises((TypeError, ValueError)) as found:
                call()
            said.add(str(found.value))
        assert len(said) == 1


def test_what_is_written_in_place_is_checked_and_counted_at_every_call(recorder: Any) -> None:
    a, whole = drawn(256, 256), drawn(512, 256)
    out = whole[:256]
    for i in range(5):
        before = out._version
        assert kernels.matmul(a, a, out=out) is out
        assert out._version == before + 1, i
    for _ in range(2):  # of the same form, but where it lies
        with pytest.raises(ValueError, match="memory of its own"):
            kernels.matmul(whole[1:257], a, out=out)


def test_who_watches_triton_sees_every_launch(recorder: Any) -> None:
    from triton import knobs

    a, seen = drawn(256, 256), []
    for _ in range(4):
        kernels.matmul(a, a)
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook = seen.append
        launch = launched(recorder, lambda: kernels.matmul(a, a))
    assert len(launch) == 1
    assert plans()
    from triton.runtime.jit import JITFunction

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", lambda *_, **__: seen.append("run"))
        kernels.matmul(a, a)
    assert seen[-1] == "run"


def test_hooks_of_a_kernel_see_every_launch_whenever_they_come(recorder: Any) -> None:
    from kernels.attention.hopper.forward import kernel

    call, seen = gradients(1, 256, 2, 64), []
    for _ in range(6):
        call()
    hooks = [one.pre_run_hooks for one in vars(kernel).values() if hasattr(one, "pre_run_hooks")]
    for one in hooks:
        one.append(lambda *_, **__: seen.append("run"))
    try:
        call()
    finally:
        for one in hooks:
            one.clear()
    assert seen == ["run"]


def test_another_choice_in_a_module_is_noticed(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernels.matmul.hopper import launch as hopper
    from kernels.matmul.hopper.choose import SMALL, TINY

    a = drawn(256, 256)
    grids = {}
    for name, config in (("small", SMALL), ("tiny", TINY)):
        monkeypatch.setattr(hopper, "choose", lambda *_, config=config: config)
        found = [launched(recorder, lambda: kernels.matmul(a, a))[0] for _ in range(4)]
        (grids[name],) = {one.grid for one in found}
    assert grids["small"] != grids["tiny"]


def test_threads_have_results_of_their_own(recorder: Any) -> None:
    a = drawn(256, 256)
    for _ in range(3):
        kernels.matmul(a, a)
    found: list[torch.Tensor] = []

    def run() -> None:
        for _ in range(50):
            found.append(kernels.matmul(a, a))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len({one.data_ptr() for one in found}) == len(found) == 200


def test_calls_whose_every_form_is_new_keep_no_more_than_so_many(
    recorder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "MOST_FORMS", 4)
    for length in range(100, 112):
        decoding(length)()
    assert all(len(table) <= 4 for table in forms._tables.values())

"""Where a Hopper kernel does not compile, the portable one serves, and it is said once."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import pytest
from triton.runtime.errors import PTXASError

from kernels.runtime import backends
from tests.hopper.recorded import (
    attention,
    backward,
    corrected,
    in_fp8,
    in_tf32,
    packed_in_fp8,
    product,
    product_of_fp8,
)
from warpwatch.instruments.compiled.formats.recording import Recording

FAILURES = [
    pytest.param(PTXASError("ptxas died"), id="assembler"),
    pytest.param(RuntimeError("PassManager::run failed"), id="pass"),
]
SERVED = [
    pytest.param(
        "matmul.hopper.launch", lambda: product(256, 256, 256), "matmul_kernel", id="matmul"
    ),
    pytest.param(
        "matmul.hopper.tf32.launch",
        lambda: in_tf32(512, 256, 256),
        "matmul_kernel",
        id="matmul-tf32",
    ),
    pytest.param(
        "matmul.hopper.fp8.launch",
        lambda: product_of_fp8(2048, 2048, 256),
        "matmul_kernel",
        id="matmul-fp8",
    ),
    pytest.param(
        "attention.hopper.forward.launch", lambda: attention(64), "attention_forward", id="forward"
    ),
    pytest.param(
        "attention.hopper.backward.launch",
        lambda: backward(128, seqlen_q=2048, seqlen_k=2048),
        "attention_backward_kv",
        id="backward",
    ),
    pytest.param(
        "attention.hopper.backward.heavy_rows.launch",
        lambda: corrected(64),
        "attention_backward_marked",
        id="exact",
    ),
    pytest.param("attention.hopper.fp8.launch", lambda: in_fp8(64), "attention_forward", id="fp8"),
    pytest.param(
        "attention.hopper.fp8.launch",
        lambda: packed_in_fp8(64),
        "attention_forward",
        id="fp8-packed",
    ),
]


def refused(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> list[int]:
    """The module's launch raises; the list grows by each try."""
    tries: list[int] = []

    def launch(*_: object, **__: object) -> None:
        tries.append(1)
        raise error

    monkeypatch.setattr(backends, "_given_up", set())
    monkeypatch.setattr(importlib.import_module(f"kernels.{name}"), "launch", launch)
    return tries


@pytest.mark.parametrize("error", FAILURES)
@pytest.mark.parametrize(("name", "call", "portable"), SERVED)
def test_the_portable_kernel_serves_what_does_not_compile(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    call: Callable[[], Recording],
    portable: str,
    error: Exception,
) -> None:
    tries = refused(monkeypatch, name, error)
    first, second = call(), call()
    names = [launch.kernel.name for launch in first.launches]
    assert portable in names
    assert not [one for one in names if "hopper" in one]
    assert [launch.kernel.name for launch in second.launches] == names
    (said,) = (note for note in first.notes if "the portable kernel serves" in note)
    assert f"kernels.{name}" in said
    assert str(error) in said
    assert not [note for note in second.notes if "the portable kernel serves" in note]
    assert len(tries) == 1


def test_other_errors_are_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    refused(monkeypatch, "matmul.hopper.launch", RuntimeError("CUDA error: misaligned address"))
    with pytest.raises(RuntimeError, match="misaligned"):
        product(256, 256, 256)
    assert backends.load("matmul.hopper.launch") is not None

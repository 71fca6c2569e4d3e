"""Runs a script, a module or pytest under the recording driver; a process of its own.

Nothing is compiled: a launch is only counted. What measures answers with figures that mean nothing,
so that a benchmark gets through: a time is one millisecond, memory one gibibyte.
"""

from __future__ import annotations

import inspect
import json
import runpy
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import triton.testing
from triton.runtime.jit import JITFunction

from warpwatch.config import targets
from warpwatch.instruments.compiled.record import driver
from warpwatch.instruments.compiled.record.known_values import Known
from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda
from warpwatch.instruments.compiled.record.torch import ops as torch_ops

from .calls import Calls

_BYTES = 1 << 30
_MEMORY = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_RESETS = ("reset_peak_memory_stats", "reset_max_memory_allocated")


def main() -> int:
    request = json.loads(sys.argv[1])
    target, command = targets.get(request["target"]), list(request["command"])
    known = Known()
    calls = Calls(request["package"], known)
    ended = ""
    signal.signal(signal.SIGTERM, _enough)
    with (
        driver.active(target, known),
        torch_cuda.answered(target),
        _measures_nothing(),
        _counted(calls),
        _compiles_nothing(calls),
        torch_ops.watched(lambda _: None, lambda _: None, known),
    ):
        sys.setprofile(calls)
        try:
            _run(command)
        except SystemExit as error:
            ended = _word(error)
        except BaseException as error:  # the calls before it are worth having
            traceback.print_exc()
            ended = f"{type(error).__name__}: {error}"
        finally:
            sys.setprofile(None)
    answer = {
        "calls": [asdict(one) for one in calls.found.values()],
        "unwritten": calls.unwritten.most_common(20),
        "launches": calls.launches,
        "ended": ended,
    }
    Path(request["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _word(error: SystemExit) -> str:
    """How a command ended that ends itself; empty where that is as it should be."""
    if isinstance(error.code, str):
        return error.code
    return f"exit code {error.code}" if error.code else ""


def _enough(*_: object) -> None:
    raise SystemExit("its time was up")


def _run(command: list[str]) -> None:
    """What the command line would run, in this process."""
    if Path(command[0]).name.startswith("python"):
        command = command[1:]
    if command[0] == "-m":
        command = command[1:]
    elif Path(command[0]).suffix == ".py":
        sys.argv = command
        sys.path.insert(0, str(Path(command[0]).resolve().parent))
        runpy.run_path(command[0], run_name="__main__")
        return
    if Path(command[0]).name in ("pytest", "py.test"):
        import pytest

        if code := int(pytest.main(command[1:])):
            raise SystemExit(code)
        return
    sys.argv = command
    sys.path.insert(0, "")
    runpy.run_module(command[0], run_name="__main__", alter_sys=True)


@contextmanager
def _counted(calls: Calls) -> Iterator[None]:
    before = JITFunction._do_compile

    def count(*_: Any) -> None:
        calls.launches += 1

    JITFunction._do_compile = count
    try:
        yield
    finally:
        JITFunction._do_compile = before


@contextmanager
def _compiles_nothing(calls: Calls) -> Iterator[None]:
    """Functions given to ``torch.compile`` run as written; a call of one counts as a launch."""
    before = torch.compile

    def as_written(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda later: as_written(later, **options)
        function = type(model).forward if isinstance(model, torch.nn.Module) else model
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None:
            calls.generated.add(code)
        return before(model, **options)

    torch.compile = as_written
    try:
        yield
    finally:
        torch.compile = before


@contextmanager
def _measures_nothing() -> Iterator[None]:
    def once(fn: Callable[[], Any], *_: Any, quantiles: Any = None, **options: Any) -> Any:
        fn()
        if quantiles:
            return [1.0] * len(quantiles) if len(quantiles) > 1 else 1.0
        return [1.0] if options.get("return_mode") == "all" else 1.0

    cuda: Any = torch.cuda
    places = (cuda, cuda.memory)
    replaced: list[tuple[Any, str, Any]] = [
        *((place, name, lambda *_, **__: _BYTES) for place in places for name in _MEMORY),
        *((place, name, lambda *_, **__: None) for place in places for name in _RESETS),
        *((place, "mem_get_info", lambda *_: (_BYTES, 64 * _BYTES)) for place in places),
        (cuda.Event, "elapsed_time", lambda *_: 1.0),
        (triton.testing, "do_bench", once),
        (triton.testing, "do_bench_cudagraph", once),
    ]
    kept = [(place, name, getattr(place, name, None)) for place, name, _ in replaced]
    for place, name, value in replaced:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in kept:
            setattr(place, name, value)


if __name__ == "__main__":
    sys.exit(main())

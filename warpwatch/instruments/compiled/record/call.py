"""Runs host code on a GPU that is not there and returns what it would have made the GPU do."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

from warpwatch.config.targets import Target
from warpwatch.instruments.compiled.formats.recording import Recording, TorchOp


def record(
    call: Callable[[Any], Any] | Callable[[], Any],
    target: Target,
    *,
    inputs: Callable[[], Any] | None = None,
    refuse_host: bool = False,
) -> Recording:
    """Everything ``call`` launches on ``target``.

    ``call`` takes no argument, or what ``inputs`` returns. ``inputs`` runs under the same driver
    but nothing it does is recorded. CPU tensors pass for device tensors; with ``refuse_host``
    those that ``call`` makes without naming a device do not, as on a card. Large floating-point
    tensors hold no meaningful values. Errors of the host code itself are raised, and
    :class:`HarnessError` where the instrument itself failed.
    """
    import os

    if os.environ.get("TRITON_INTERPRET", "0") not in ("", "0"):
        raise ValueError(
            "TRITON_INTERPRET is set: interpreted kernels are never compiled; unset it to record"
        )
    from . import driver
    from .inductor.follow import Follower
    from .known_values import Known
    from .torch import cuda as torch_cuda
    from .torch import ops as torch_ops

    operations: list[TorchOp] = []
    known, follower = Known(), Follower()
    with (
        closing(follower),  # last: torch forgets what it compiled with its own answers
        driver.active(target, known) as recorder,
        # As an operation that takes no time by itself: two calls differ by it.
        torch_cuda.answered(target, lambda name: operations.append(TorchOp(name, 0, 0, 0))),
        torch_ops.watched(operations.append, recorder.remark, known),
    ):
        follower.begin(recorder, known)
        arguments = () if inputs is None else (inputs(),)
        operations.clear()
        recorder.launches.clear()
        recorder.failures.clear()
        recorder.notes.clear()
        recorder.tuned.clear()
        known.follows_host = refuse_host
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always", RuntimeWarning)
                call(*arguments)
        finally:
            if recorder.broken is not None:
                raise recorder.broken
    # Such as that another kernel serves in place of one this Triton cannot run.
    said = [str(one.message) for one in warned if one.category is RuntimeWarning]
    return Recording(
        target=target,
        launches=tuple(recorder.launches),
        torch_ops=tuple(operations),
        failures=tuple(recorder.failures),
        notes=(*recorder.notes, *dict.fromkeys(said)),
        tuned=tuple(recorder.tuned),
    )

"""Lets what the kernels' tests compute in Triton's interpreter compute on a GPU instead."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from triton import knobs

from tests.kernels.mended import mend_interpreter


class Made(TorchFunctionMode):
    """What is made without naming a device is drawn on the CPU, the same numbers everywhere, and
    moved to ``device`` with its strides."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.makers = _device_constructors()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if func in self.makers and kwargs.get("device") is None:
            return found.to(self.device)
        return found


def prepare() -> str:
    """The device of this process: memory that is not written is NaN, plain products are exact."""
    # cuBLAS asks for it where algorithms have to be deterministic.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    if not knobs.runtime.interpret:
        return "cuda"
    mend_interpreter()
    return "cpu"


@contextmanager
def portable(only: bool = True) -> Iterator[None]:
    """Inside, with ``only``, no kernel of one architecture serves. Without, a ``RuntimeError`` says
    which one did not compile, whose results would be the portable kernel's."""
    from kernels.runtime import backends

    load, before = backends.load, set(backends._given_up)
    if only:
        backends.load = lambda name: None
    try:
        yield
        lost = sorted(backends._given_up - before)
    finally:
        backends.load = load
        backends._given_up.clear()
        backends._given_up.update(before)
    if lost:
        raise RuntimeError(f"expected kernels.{', kernels.'.join(lost)} to compile, and gave it up")

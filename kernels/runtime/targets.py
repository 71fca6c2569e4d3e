"""Which GPU this is and what it can do; the only place that knows vendors apart."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import triton

# NVIDIA's architectures whose matrix unit multiplies fp64 as fast as other units multiply fp32, and
# for which every supported Triton uses it.
ADDS_FP64 = (80, 90)
# AMD's with matrix units for OCP's e4m3.
_OCP_FP8 = ("gfx950", "gfx1200", "gfx1201", "gfx1250")


@dataclass(frozen=True)
class Target:
    """An architecture kernels are compiled for.

    ``name`` is ``sm_90`` or ``gfx942``, or ``interpreter`` where Triton interprets on the CPU.
    """

    name: str
    backend: str
    capability: int = 0

    @property
    def is_amd(self) -> bool:
        return self.backend == "hip"

    @property
    def has_tma(self) -> bool:
        return self.backend == "cuda" and self.capability >= 90

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel can start while the one before it ends (programmatic launches)."""
        return self.backend == "cuda" and self.capability >= 90

    @property
    def has_wgmma(self) -> bool:
        return self.backend == "cuda" and self.capability // 10 == 9

    @property
    def has_tf32(self) -> bool:
        """Whether a matrix unit multiplies fp32 inputs at reduced precision."""
        return (self.backend == "cuda" and self.capability >= 80) or self.name == "gfx942"

    @property
    def adds_fp64(self) -> bool:
        """Whether products of fp32 are added up in fp64."""
        return self.backend == "cuda" and self.capability in ADDS_FP64

    @property
    def has_fp8(self) -> bool:
        """Whether a matrix unit multiplies fp8."""
        return bool(self.fp8_dtypes) and self.backend != "interpreter"

    @property
    def fp8_dtypes(self) -> tuple[torch.dtype, ...]:
        """The e4m3 its matrix units multiply: OCP's, or on gfx942 the one of no negative zero.

        The interpreter takes both."""
        if self.backend == "interpreter":
            return torch.float8_e4m3fn, torch.float8_e4m3fnuz
        if self.name == "gfx942":
            return (torch.float8_e4m3fnuz,)
        ocp = self.capability >= 89 if self.backend == "cuda" else self.name in _OCP_FP8
        return (torch.float8_e4m3fn,) if ocp else ()


INTERPRETER = Target("interpreter", "interpreter")


def interpreting() -> bool:
    """Whether Triton runs kernels in its interpreter, on CPU tensors."""
    return bool(triton.knobs.runtime.interpret)


# Whether kernels are interpreted is decided where they are decorated: beside the imports of these.
_INTERPRETS = interpreting()


def mend_interpreter() -> None:
    """Triton's interpreter as our kernels need it, where it is what runs them."""
    if interpreting():
        from kernels.runtime.interpreter import mend

        mend()


def current() -> Target:
    """The target of the active driver; a ``RuntimeError`` says so where there is none."""
    if interpreting():
        return INTERPRETER
    found = triton.runtime.driver.active.get_current_target()
    if found.backend == "cuda":
        return Target(f"sm_{found.arch}", "cuda", int(found.arch))
    return Target(str(found.arch).split(":")[0], found.backend)


def accepts_cpu_tensors() -> bool:
    """True exactly where a launch on CPU tensors means something: interpreted or recorded."""
    if _INTERPRETS:
        return True
    try:
        return bool(getattr(triton.runtime.driver.active, "records_launches", False))
    except RuntimeError:  # no driver can be active: there is no GPU
        return False


def on_device_of(tensor: torch.Tensor, name: str = "") -> AbstractContextManager[Any]:
    """Launches inside run on the GPU that holds ``tensor``.

    Under ``name`` a tensor that no kernel can reach is refused. What torch calls by itself does so,
    operators and compiled graphs: nobody has asked before, and a tensor on the GPU costs nothing.
    """
    if tensor.is_cuda:
        return torch.cuda.device(tensor.device)
    if name and not (tensor.is_cpu and accepts_cpu_tensors()):
        raise unreachable(name, tensor)
    return nullcontext()


def unreachable(name: str, tensor: torch.Tensor) -> ValueError:
    return ValueError(
        f"{name}: expected a tensor on a GPU (device cuda), got device {tensor.device}; move it "
        f"with {name}.cuda(), or set TRITON_INTERPRET=1 before Python starts to interpret on the "
        "CPU"
    )


def multiprocessors() -> int:
    """How many multiprocessors the current device has: the size of a persistent grid. Interpreted
    two, so that there are several programs and each has several turns."""
    if current().backend == "interpreter":
        return 2
    return _multiprocessors(triton.runtime.driver.active.get_current_device())


@lru_cache
def _multiprocessors(device: int) -> int:
    properties = triton.runtime.driver.active.utils.get_device_properties(device)
    return int(properties["multiprocessor_count"])


def check_hopper_features() -> dict[str, bool | str]:
    """The features of Hopper that the active GPU has.

    Returns:
        ``target``, its name such as sm_90, "none" without a GPU; and whether it has
        ``tma_available``, ``wgmma_available``, ``warp_specialization_available`` and
        ``fp8_available``.

    Examples:
        >>> from kernels import check_hopper_features
        >>> sorted(check_hopper_features())[:2]
        ['fp8_available', 'target']
    """
    try:
        target = current()
    except RuntimeError:
        target = Target("none", "none")
    return {
        "target": target.name,
        "tma_available": target.has_tma,
        "wgmma_available": target.has_wgmma,
        "warp_specialization_available": target.has_tma,
        "fp8_available": target.has_fp8,
    }

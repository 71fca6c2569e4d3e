"""What a workload is: a kernel with concrete shapes, dtype and flags, under one stable name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Values = Literal["random", "none"]
Inputs = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Workload(ABC):
    """One call that is measured. Subclasses hold the shapes.

    torch and the measured package are imported inside the methods, so that listing workloads costs
    nothing and a commit without some kernel breaks nothing.

    Attributes:
        kernel: The name below the package that a commit must have for this workload to be
            applicable, such as ``matmul`` or ``ops.norm:rms_norm``; empty: nothing is looked for.
        group: The table that the workload belongs to, such as ``sdpa``.
        dtype: The dtype that its share of peak is taken of.
        every_commit: Off where only who asks has it measured, as by ``peers`` or ``tune``.
    """

    kernel: str
    group: str
    dtype: str
    every_commit: bool = True

    @property
    @abstractmethod
    def name(self) -> str:
        """The only key between layers; never changes its meaning."""

    @property
    def needs(self) -> tuple[str, ...]:
        """Arguments the kernel must know: a commit whose kernel does not is not applicable."""
        return ()

    @property
    def definition(self) -> str:
        """The call in one line. ``history`` measures again where it changed, and takes out values
        of another. Empty: nothing is compared, and only the name counts."""
        return ""

    @property
    def checked_by(self) -> str:
        """The reference and operations of a GPU's values, in one line, or nothing."""
        return ""

    @property
    @abstractmethod
    def flops(self) -> int:
        """Floating-point operations one call must do (a multiply-add counts two)."""

    @property
    @abstractmethod
    def bytes_moved(self) -> int:
        """Fewest bytes one call must move: each input read once, each output written once."""

    @property
    def has_reference(self) -> bool:
        """Whether :meth:`reference` can be called; without one no answer is checked."""
        return True

    @property
    def formula_bytes(self) -> int | None:
        """Bytes that the plain formula holds at once beyond its inputs, at least; ``None`` where
        that is no figure to compare the kernel's memory with."""
        return None

    @abstractmethod
    def inputs(self, device: str, seed: int = 0, values: Values = "random") -> Inputs:
        """Arguments of one call. ``values="none"`` allocates without touching memory."""

    @abstractmethod
    def call(self, inputs: Inputs) -> Any:
        """Run the kernel of the package that can be imported now."""

    @abstractmethod
    def reference(self, inputs: Inputs, dtype: str | None = None) -> Any:
        """The plain PyTorch formula: in ``dtype`` (``"float64"`` for the truth), by default in
        the inputs' own dtype, softmax in fp32."""

"""What is recorded: every metric with its unit, its honest direction and its role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """A named quantity.

    A *verdict* metric may raise an alarm; *evidence* only explains one. ``better`` is ``None``
    exactly for evidence that has no honest direction of its own. ``exact`` says that the
    instrument has no noise: any change is a change.
    """

    name: str
    unit: str
    better: Literal["lower", "higher"] | None
    role: Literal["verdict", "evidence"]
    exact: bool
    meaning: str


COMPILED: tuple[Metric, ...] = (
    Metric(
        "compile_failures",
        "count",
        "lower",
        "verdict",
        True,
        "launches of one call that did not compile for the target or that it refuses",
    ),
    Metric("launches", "count", "lower", "verdict", True, "kernel launches of one call"),
    Metric(
        "copied_bytes",
        "bytes",
        "lower",
        "verdict",
        True,
        "bytes that torch's own operations copy in one call; views are free",
    ),
    Metric(
        "spilled_bytes",
        "bytes",
        "lower",
        "verdict",
        True,
        "bytes a thread keeps in local or scratch memory because registers ran out",
    ),
    Metric(
        "tensor_core_level",
        "level",
        "higher",
        "verdict",
        True,
        "0 none, 1 mma.sync or MFMA, 2 wgmma, 3 tcgen05: the best flavour of the worst kernel",
    ),
    Metric(
        "async_copy_level",
        "level",
        "higher",
        "verdict",
        True,
        "0 plain loads, 1 cp.async or direct to LDS, 2 TMA: how inputs reach shared memory",
    ),
    Metric(
        "advisories",
        "count",
        "lower",
        "verdict",
        True,
        "ptxas C75xx, such as serialised wgmma; registers that nothing wrote; idle matrix units",
    ),
    Metric(
        "blocks_in_flight",
        "blocks",
        "higher",
        "verdict",
        True,
        "blocks one SM or CU can hold at once",
    ),
    Metric(
        "bound_us",
        "us",
        "lower",
        "verdict",
        True,
        "time the busiest unit of the default device needs for one call",
    ),
    Metric(
        "bound_added_us",
        "us",
        None,
        "evidence",
        True,
        "part of the bound that spills and torch's own products add to that of the other units",
    ),
    Metric(
        "atomics",
        "count",
        None,
        "evidence",
        True,
        "elements of memory that one call updates atomically, masked ones included",
    ),
    Metric(
        "configurations",
        "count",
        None,
        "evidence",
        True,
        "configurations that the autotuned kernels of one call may choose from, after pruning",
    ),
    Metric(
        "search_space",
        "hash",
        None,
        "evidence",
        True,
        "stands for the configurations that autotuned kernels choose from; 0: none is autotuned",
    ),
    Metric(
        "recorded_configuration",
        "hash",
        None,
        "evidence",
        True,
        "stands for those that the compiled values are of; 0: no kernel is autotuned",
    ),
    Metric(
        "bound_utilization",
        "%",
        "higher",
        "evidence",
        True,
        "tensor-core utilization the bound allows",
    ),
    Metric("registers", "count", None, "evidence", True, "registers a thread"),
    Metric("shared_bytes", "bytes", None, "evidence", True, "shared memory a block"),
    Metric("code_bytes", "bytes", None, "evidence", True, "size of the machine code"),
    Metric("compile_seconds", "s", None, "evidence", False, "time the compiler took"),
)

# Read on a GPU. Each is one instrument's word: the tiers of tensor-core utilization (hardware
# counter, the driver's sampling, a share of the peak at the clock of the samples) are three
# metrics, because values of different instruments are never compared.
MEASURED: tuple[Metric, ...] = (
    Metric("latency_cold", "us", "lower", "verdict", False, "device time of a call, caches clear"),
    Metric("latency_warm", "us", "lower", "evidence", False, "device time of a repeated call"),
    Metric(
        "tensor_pipe",
        "%",
        "higher",
        "verdict",
        False,
        "share of cycles the tensor cores were active, from the hardware counter",
    ),
    Metric("sm_cycles", "cycles", "lower", "verdict", False, "cycles the SMs were active"),
    Metric(
        "kernel_cycles",
        "cycles",
        "lower",
        "verdict",
        False,
        "cycles from start to end of the kernels: judges calls below 20 us, evidence of others",
    ),
    Metric(
        "off_kernel_us",
        "us",
        "lower",
        "evidence",
        False,
        "part of the cold time that is not the kernels: their launch, and gaps between them",
    ),
    Metric("instructions", "count", "lower", "evidence", False, "warp instructions executed"),
    Metric("dram_bytes", "bytes", "lower", "evidence", False, "bytes read and written in DRAM"),
    Metric(
        "tensor_pipe_sampled",
        "%",
        "higher",
        "evidence",
        False,
        "tensor-core activity the driver samples while the call repeats",
    ),
    Metric(
        "peak_share",
        "%",
        "higher",
        "evidence",
        False,
        "share of the datasheet's peak (without one: of what a large product reached) at the clock "
        "counted right after each sample",
    ),
    Metric(
        "peak_bytes",
        "bytes",
        "lower",
        "verdict",
        True,
        "device memory a call takes at its peak, its result included",
    ),
    Metric(
        "relative_error",
        "ratio",
        "lower",
        "evidence",
        False,
        "norm of the error over the norm of the result in fp64",
    ),
    Metric(
        "unheld",
        "%",
        "lower",
        "evidence",
        False,
        "share of samples with launch gaps: the call waits for the GPU, or outruns its hold",
    ),
    Metric("host_us", "us", "lower", "verdict", False, "host time of one call until it is queued"),
    Metric(
        "import_s",
        "s",
        "lower",
        "verdict",
        False,
        "processor time of the package's import, torch and Triton already loaded",
    ),
    Metric(
        "first_call_s",
        "s",
        "lower",
        "verdict",
        False,
        "processor time of a process's first call after the import, its kernels on disk",
    ),
    Metric(
        "first_compile_s",
        "s",
        "lower",
        "verdict",
        False,
        "processor time of a process's first call with nothing on disk: all its kernels compile",
    ),
)


def get(name: str) -> Metric:
    """The metric called ``name``; ``ValueError`` names the known ones."""
    for metric in (*COMPILED, *MEASURED):
        if metric.name == name:
            return metric
    known = " ".join(metric.name for metric in (*COMPILED, *MEASURED))
    raise ValueError(f"unknown metric {name!r}: expected one of {known}")

"""Untuned against tuned on AMD, as the compilers see it: the table of docs/results/amd.md.

    python examples/amd_tuning.py
    python examples/amd_tuning.py --target gfx942 matmul-fp16-4096x4096x4096

Untuned is what a common guide to Triton recommends by size alone, with Triton's own numbers of
warps and stages; tuned is the row this repository's tables choose. Gradients and decoding, which
the guide does not know, have a row a launch, named by its kernel. Nothing runs: what stands here
is the compilers' registers, spills and instructions, and the bound computed from them. No GPU is
needed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.config.targets import Target
from warpwatch.instruments import compiled
from warpwatch.session import tuning
from warpwatch.workload.base import Workload

AMD = tuple(target.name for target in targets.TARGETS if target.backend == "hip")
WORKLOADS = (
    "attention-fp16-B4-S512-H8-D64",
    "attention-bf16-B8-S2048-H32-D128",
    "attention-fp16-B4-S8192-H8-D64",
    "attention-fp8-B4-S4096-H16-D128",
    "matmul-fp16-1024x1024x1024",
    "matmul-fp16-4096x4096x4096",
    "matmul-fp16-8192x8192x8192",
)
# The guide has no tile for gradients and decoding, nor for more than one kernel a call.
TUNED_ALONE = (
    "attention-backward-bf16-B4-S4096-H32-D64",
    "attention-backward-bf16-B4-S4096-H16-D128-causal",
    "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-causal",
    "attention-kvcache-bf16-B16-S1-KV4096-H32-G8-D128-page64-fp8kv-causal",
)
HEAD = "workload | target | tile | warps, stages | VGPRs | spilled bytes | blocks a CU"
HEAD += " | MFMA in the hot loop | bound us | limited by"


@dataclass(frozen=True)
class Row:
    """One configuration as compiled; ``failure`` says why there is nothing else."""

    workload: str
    target: str
    kind: str
    tile: str
    options: str
    values: tuple[str, ...] = ()
    failure: str = ""

    def __str__(self) -> str:
        cells = self.values or (self.failure, *[""] * 5)
        return " | ".join(
            (self.workload, self.target, f"{self.kind} {self.tile}", self.options, *cells)
        )


def guide(size: int) -> tuple[int, int, int]:
    """What the guide recommends for a sequence, or the side of a matmul."""
    if size < 1024:
        return 32, 32, 32
    return (64, 128, 32) if size <= 4096 else (128, 256, 64)


def untuned(own: Any, size: int) -> Any:
    """``own`` with the guide's tile, Triton's defaults and no option of AMD."""
    names = {field.name for field in fields(own)}
    plain = dict(zip(("block_m", "block_n", "block_k"), guide(size), strict=True))
    plain |= {"num_warps": 4, "num_stages": 2, "waves_per_eu": 0}
    return replace(own, **{name: value for name, value in plain.items() if name in names})


def size_of(workload: Workload) -> int:
    return int(getattr(workload, "S", 0) or getattr(workload, "M", 0))


def rows(workload: Workload, target: Target) -> list[Row]:
    """Untuned, then tuned; none where the target cannot run the workload."""
    try:
        own = tuning.own_choice(workload, target)
    except ValueError:
        return []
    return [
        _row(workload, target, kind, config)
        for kind, config in (("untuned", untuned(own, size_of(workload))), ("tuned", own))
    ]


def rows_of(workload: Workload, target: Target) -> list[Row]:
    return (launches if workload.name in TUNED_ALONE else rows)(workload, target)


def launches(workload: Workload, target: Target) -> list[Row]:
    """Of what the tables choose each launch that takes a twentieth of the call's bound or more."""
    measured = compiled.measure(workload, target)
    if measured.status != "ok":
        return [Row(workload.name, target.name, "tuned", "", "", (), measured.detail)]
    found: Any = measured.evidence["launches"]
    call = sum(one["bound"]["us"] for one in found)
    return [_launch(workload, target, one) for one in found if one["bound"]["us"] > call / 20]


def _launch(workload: Workload, target: Target, launch: Mapping[str, Any]) -> Row:
    blocks = (launch["constants"].get(f"BLOCK_{letter}") for letter in "MN")
    tile = "x".join(str(one) for one in blocks if one is not None)
    options = f"{launch['num_warps']}, {launch['num_stages']}"
    return Row(workload.name, target.name, launch["kernel"], tile, options, _values(launch))


def _row(workload: Workload, target: Target, kind: str, config: Any) -> Row:
    with tuning.choosing(lambda own: config if type(own) is type(config) else own):
        measured = compiled.measure(workload, target)
    blocks = [getattr(config, one.name) for one in fields(config) if one.name[:6] == "block_"]
    waves = getattr(config, "waves_per_eu", 0)
    options = f"{config.num_warps}, {config.num_stages}" + (
        f", {waves} waves a SIMD" if waves else ""
    )
    row = Row(workload.name, target.name, kind, "x".join(map(str, blocks)), options)
    if measured.status != "ok":
        return replace(row, failure=measured.detail or measured.status)
    launches: Any = measured.evidence["launches"]
    return replace(row, values=_values(launches[0]))


def _values(launch: Mapping[str, Any]) -> tuple[str, ...]:
    hottest: Mapping[str, Any] = max(
        launch["hot_loops"], key=lambda loop: loop.get("tensor", 0), default={}
    )
    occupancy, bound = launch["occupancy"], launch["bound"]
    return (
        str(launch["registers"]),
        str(launch["spilled_bytes"]),
        f"{occupancy['blocks']} ({occupancy['limited_by']})",
        f"{hottest.get('tensor', 0)} of {sum(hottest.values())}",
        f"{bound['us']:.1f}",
        str(bound["limited_by"]),
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help="default: those of the page"
    )
    parser.add_argument("--target", action="append", choices=AMD, help="default: all three")
    args = parser.parse_args(argv)
    try:
        chosen = [load_workloads().get(name) for name in args.workloads or WORKLOADS + TUNED_ALONE]
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"| {HEAD} |\n|{'---|' * (HEAD.count('|') + 1)}")
    for workload in chosen:
        for name in args.target or AMD:
            for row in rows_of(workload, targets.get(name)):
                print(f"| {row} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

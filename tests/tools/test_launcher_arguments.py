"""What reaches the driver when a launch is replayed: the bytes that Triton's own path gives it.

Triton's launcher and its descriptors run as they are, over a driver that keeps what it is given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.runtime.launch import noted, prepared

ROOT = Path(__file__).parents[2]


class Rows(NamedTuple):
    """A matrix of a kernel: where it lies, and how."""

    pointer: Any
    strides: Any
    count: Any


@triton.jit
def copied(source, target, WIDTH: tl.constexpr):
    columns = tl.arange(0, WIDTH)
    for row in range(source[0].count):
        values = tl.load(source[0].pointer + row * source[0].strides[0] + columns)
        tl.store(target.pointer + row * target.strides[0] + columns * target.strides[1], values)


@prepared
def copy_of(x: torch.Tensor) -> torch.Tensor:
    """By a kernel that takes tensors with their strides, one in a tuple of its own."""
    out = torch.empty_like(x)
    given, made = Rows(x, x.stride(), len(x)), Rows(out, out.stride(), None)
    noted(copied, (1,))((given, None), made, WIDTH=x.shape[1])
    return out


def sizes(signature: Any) -> list[int]:
    """Bytes of a kernel's parameters, as its launcher lays them out."""
    found: list[int] = []
    for kind in signature:
        if isinstance(kind, tuple):
            found += sizes(kind)
        elif kind.startswith("tensordesc"):
            rank = kind.partition("[")[2].partition("]")[0].count(",") + 1
            found += [128, *[4] * rank, *[8] * rank]
        elif kind.startswith("*") or kind == "i64":
            found.append(8)
        elif kind != "constexpr":
            found.append({"i1": 1, "i8": 1, "i16": 2}.get(kind, 4))
    return found


def compare(recording: Any, library: Any) -> list[tuple[str, bool, int]]:
    """Of each launch of a call: the kernel, whether both ways give the driver the same bytes, and
    how many those are."""
    from kernels.runtime.launch import adapters
    from kernels.runtime.launch.source import Names, function
    from kernels.runtime.launch.steps import Launch

    tensors = recording._kept
    known = {f"t{i}": one for i, one in enumerate(tensors)}
    known |= {f"a{i}": one.data_ptr() for i, one in enumerate(tensors)}
    found = []
    for step in (one for one in recording.steps if isinstance(one, Launch)):
        given, names = [], Names()
        lines = [adapters._by_tensor(step)(names), *[adapters._by_number(step)(names)] * 2]
        names.values |= known
        for line in lines:
            library.keep(sizes(step.compiled.src.signature.values()))
            function("stream", [line], names)(0)
            given.append(library.kept())
        library.keep([])
        same = given[0] == given[1] == given[2]
        found.append((step.compiled.name, same, len(given[0])))
    return found


def main() -> None:
    """Prints what ``compare`` finds for calls with descriptors, addresses and tuples of these."""
    from tools.kernels.without_gpu import driver

    with driver.active() as library:
        import kernels
        from kernels.runtime.launch.plan import Plan

        found: list[Any] = []
        make = Plan.__init__

        def noted(plan: Plan, recording: Any, *rest: Any) -> None:
            found.extend(compare(recording, library))
            make(plan, recording, *rest)

        Plan.__init__ = noted  # type: ignore[method-assign]
        half: dict[str, Any] = {"dtype": torch.float16}
        a, q = torch.zeros(256, 256, **half), torch.zeros(2, 1, 8, 64, **half)
        cache, x = torch.zeros(2, 256, 2, 64, **half), torch.zeros(300, 2, 64, **half)
        ends = torch.tensor([0, 100, 300], dtype=torch.int32)
        used = ends[1:] - ends[:-1]
        for _ in range(2):
            copy_of(a)
            kernels.matmul(a, a)
            kernels.flash_attention_kvcache(q, cache, cache)
            kernels.flash_attention_varlen(x, x, x, ends, ends, 60, 60, seqused_k=used)
        print(json.dumps(found))


def test_replayed_launches_give_the_driver_the_same_bytes() -> None:
    run = "from tests.tools.test_launcher_arguments import main; main()"
    command = [sys.executable, "-c", run]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"copied", "matmul_hopper_once", "attention_kvcache"} <= {name for name, _, _ in found}
    assert all(same and size for _, same, size in found), found

"""Every kernel compiles under the oldest Triton supported, and under the newest for the newest
targets. ``make test`` takes Hopper under the oldest, ``make test-tritons`` all of it every night.

The fixed set as a whole is compiled under the installed Triton by ``tests/compiled``, and between
any two by ``make upgrade-check``: here each kernel function meets each target once.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import workloads
from benchmarks.workloads import attention_fp8
from tests.meetings import EVERY_PAIR
from tests.root import ROOT
from warpwatch.config.targets import TARGETS
from warpwatch.instruments.compiled.diff import sides
from warpwatch.instruments.compiled.measure import jobs

ALL = tuple(target.name for target in TARGETS)
VERSIONS = (
    {"3.6.0": ALL, "3.9.0": ("sm_90", "sm_100", "gfx950")} if EVERY_PAIR else {"3.6.0": ("sm_90",)}
)
NAMES = (
    "sdpa-fp16-B12-S256-H64-D64",
    "attention-backward-bf16-B4-S4096-H32-D64",
    "matmul-fp16-2048x2048x2048-bias-gelu",
)
# Kernels of their own for exact gradients.
FP32 = jobs.Job("kernels:flash_attention", "", " ".join(["fp32[1,64,2,16]"] * 3), backward=True)
FP32_MATMUL = jobs.Job("kernels:matmul", "sm_90", "fp32[512,512] fp32[512,512]")
ON_HOPPER_ALONE = {"list_tiles", "tf32_copy"}
# Chosen on Hopper alone, but in portable Triton: under every version.
CHOSEN_ON_HOPPER = {"one_row_kernel"}
ON_HOPPER = (
    "matmul-bf16-1x4096x4096-nt",
    "matmul-fp32-2048x2048x2048-tf32",
    "matmul-fp16-1024x1024x1024",  # all its tiles run at once
    "matmul-fp8-4096x4096x4096-nt-tensor",
    "matmul-fp8-16x4096x4096-nt-tensor",
    attention_fp8.FIXED,
)
# Several tiles a program; rows that begin anywhere in a line, too.
WALKED = jobs.Job("kernels:matmul", "sm_90", "bf16[4096,512] bf16[512,4096]")
LINES = jobs.Job("kernels:matmul", "sm_90", "fp16[2040,136] fp16[136,2040]")
# Packed sequences on Hopper, whose values have rooms of their own.
PACKED_IN_FP8 = jobs.Job(
    "kernels:flash_attention_varlen",
    "sm_90",
    " ".join(["fp8[400,2,64]"] * 3)
    + " cu_seqlens_q=i32[3] cu_seqlens_k=i32[3] max_seqlen_q=200 max_seqlen_k=200",
)
# Over one key the ptxas of triton 3.6 dies of another form of the kernel.
ONE_KEY = jobs.Job("kernels:flash_attention", "", "fp16[1,130,2,64] fp16[1,1,2,64] fp16[1,1,2,64]")
# Queries so few that Hopper's own kernel leaves them to the portable one.
FEW_IN_FP8 = jobs.Job("kernels:flash_attention", "", " ".join(["fp8[1,16,2,64]"] * 3))
# Packed sequences, whose tiles Hopper lists first; gradients of few keys among longer ones again,
# and the launch that corrects those of 16 bits.
PACKED = jobs.Job(
    "kernels:flash_attention_varlen",
    "",
    " ".join(["bf16[400,2,64]"] * 3)
    + " cu_seqlens_q=i32[3] cu_seqlens_k=i32[3] max_seqlen_q=200 max_seqlen_k=200",
    backward=True,
)
# As small as they can be, on every target.
SMALL = (
    FP32,
    jobs.Job("kernels:matmul", "", "bf16[16,4096] bf16[4096,512]"),  # split
    jobs.Job("kernels:matmul", "", "fp8[128,256] fp8[256,128] a_scale=fp32[] b_scale=fp32[]"),
    # No query: what lies behind the last sequence is cleared.
    jobs.Job(
        "kernels:flash_attention_varlen",
        "",
        " ".join(["bf16[400,2,64]"] * 3)
        + " cu_seqlens_q=i32[3] cu_seqlens_k=i32[3] max_seqlen_q=0 max_seqlen_k=0",
    ),
    PACKED,
    jobs.Job("kernels:grouped_matmul", "", "bf16[256,128] bf16[4,128,128] i32[5]", backward=True),
    jobs.Job(
        "kernels:flash_attention_kvcache",
        "",
        "fp16[2,1,4,64] fp16[2,64,2,64] fp16[2,64,2,64] fp16[2,1,2,64] fp16[2,1,2,64]"
        " cache_seqlens=i32[2] num_splits=2",
    ),
    # The launch that looks for rows of scores far from 0, and gradients of these; delta by itself.
    jobs.Job(
        "kernels:flash_attention",
        "",
        " ".join(["bf16[1,128,2,64]"] * 3) + " bias=bf16[1,2,128,128]",
        backward=True,
    ),
    # The launch that lists a mask's blocks.
    jobs.Job(
        "kernels:flash_attention",
        "",
        " ".join(["bf16[1,128,2,64]"] * 3) + " block_mask=bool[1,1,1,1]",
    ),
)
# Of packed sequences the first rows of each: a pair of tensors as one argument, which each vendor's
# compiler takes or does not.
USED = tuple(
    jobs.Job(
        "kernels:flash_attention_varlen",
        target,
        " ".join(["bf16[400,2,64]"] * 3)
        + " cu_seqlens_q=i32[3] cu_seqlens_k=i32[3] max_seqlen_q=200 max_seqlen_k=200"
        " seqused_q=i32[2] seqused_k=i32[2]",
        backward=True,
    )
    for target in ("sm_90", "gfx942")
)
# Gradients of short sequences on Hopper, and the widest heads with their forward pass, there and
# where shared memory is least, of each vendor.
GRADIENTS = (
    jobs.Job(
        "kernels:flash_attention_backward",
        "sm_90",
        " ".join(["fp16[1,64,2,128]"] * 5) + " fp32[1,2,64]",
    ),
    *(
        jobs.Job("kernels:flash_attention", target, " ".join(["bf16[1,64,2,136]"] * 3), True)
        for target in ("sm_80", "sm_90", "gfx90a")
    ),
)


# It launches what others hand to it.
RECORDING = ROOT / "kernels" / "runtime" / "launch" / "recording.py"


def launched_kernels() -> Iterator[str]:
    """Names of kernels the package launches: ``name[grid](...)`` in its source, or
    ``noted(name, grid)(...)``, which launches it and keeps how."""
    for path in {*(ROOT / "kernels").rglob("*.py")} - {RECORDING}:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Subscript)
                and isinstance(node.func.value, ast.Name)
                and isinstance(node.func.slice, ast.Tuple | ast.Name | ast.IfExp)
            ):
                yield from functions(node.func.value.id, tree)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Call)
                and isinstance(node.func.func, ast.Name)
                and node.func.func.id == "noted"
                and isinstance(node.func.args[0], ast.Name)
            ):
                yield from functions(node.func.args[0].id, tree)


def functions(name: str, tree: ast.Module) -> Iterator[str]:
    """The functions a variable stands for: one of two, or another's code compiled otherwise."""
    values = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [name]
    ]
    if not values:
        yield name
    for value in values:
        for node in ast.walk(value.body if isinstance(value, ast.IfExp) else value):
            if isinstance(node, ast.Name) and node.id != "triton":
                yield from functions(node.id, tree)
        if isinstance(value, ast.IfExp):
            yield from functions(ast.unparse(value.orelse), tree)


def expected(version: str) -> set[tuple[str, str]]:
    """Every kernel on every requested target; those for Hopper on Hopper."""
    every = set(VERSIONS[version])
    return {
        (kernel, target)
        for kernel in launched_kernels()
        for target in (
            {"sm_90"}
            if "hopper" in kernel or kernel in ON_HOPPER_ALONE
            else every & {"sm_90"}
            if kernel in CHOSEN_ON_HOPPER
            else every
        )
    }


@pytest.mark.slow
@pytest.mark.tritons
@pytest.mark.parametrize("version", VERSIONS)
def test_every_kernel_compiles(version: str) -> None:
    if "tritons" not in os.environ.get("WARPWATCH_MUST_RUN", ""):
        pytest.skip("another Triton is fetched and compiles every kernel: make test-tritons")
    assert set(NAMES) <= {workload.name for workload, _ in workloads.fixed_set()}
    asked = [jobs.Job(name, target.name, is_workload=True) for target in TARGETS for name in NAMES]
    # Where the first rows are used, the same kernels are launched, and with what can be refused.
    repeated = set() if EVERY_PAIR else {(PACKED, one.target) for one in USED}
    asked += [
        replace(one, target=target.name)
        for target in TARGETS
        for one in SMALL
        if (one, target.name) not in repeated
    ]
    nvidia = [target.name for target in TARGETS if target.backend == "cuda"]
    asked += [replace(ONE_KEY, target=name) for name in nvidia]
    # gfx942 has another e4m3, which its workload knows.
    asked.append(jobs.Job(attention_fp8.FIXED, "gfx942", is_workload=True))
    few = set(attention_fp8.FIXED_TARGETS) - {"gfx942"}
    asked += [replace(FEW_IN_FP8, target=name) for name in sorted(few)]
    asked += [FP32_MATMUL, WALKED, LINES, PACKED_IN_FP8, *USED, *GRADIENTS]
    asked += [jobs.Job(name, "sm_90", is_workload=True) for name in ON_HOPPER]
    asked = [one for one in asked if one.target in VERSIONS[version]]
    try:
        folder = sides.triton_folder(version)
    except ValueError as error:
        pytest.skip(f"Triton {version} cannot be had here: {error}")
    assert folder is not None, "the installed Triton is neither the oldest nor the newest"
    with sides.opened(version) as side:
        done = list(jobs.run(asked, side.environment))
    wrong = [
        f"{one.job.name} {one.job.target}: {one.status} {one.detail}"
        for one in done
        if one.status != "ok"
    ]
    assert not wrong
    unknown = {
        f"{one.job.target}: {mnemonic}"
        for one in done
        for launch in one.evidence["launches"]
        for mnemonic in launch["unknown_instructions"]
    }
    assert sorted(unknown) == [], "name them in the readers' tables"
    compiled = {
        (launch["kernel"], one.job.target) for one in done for launch in one.evidence["launches"]
    }
    assert expected(version) - compiled == set()

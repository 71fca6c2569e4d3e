"""Every kernel of the fixed set, on every target: compiled, read without a gap, and bounded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workloads import attention_fp8
from tests.kernels.test_compiled_kernels import LEVEL
from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure import evidence
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.session import compile_pairs

# What the set must hold: the Hopper kernels that serve most problems, and every pass of attention.
HOPPER = {"attention_forward_hopper", "attention_backward_hopper", "matmul_hopper"}
HOPPER |= {"matmul_hopper_once", "matmul_hopper_tf32", "matmul_hopper_fp8"}
BACKWARD = {"attention_backward_kv", "attention_backward_q"}
DECODE = {"attention_kvcache", "attention_kvcache_combine"}
PORTABLE = {"attention_forward", "matmul_kernel"} | BACKWARD


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], Measurement]:
    pairs = [(workload.name, target) for workload, target in configuration.workloads().fixed_set()]
    return dict(compile_pairs.compiled_pairs(pairs))


def launches(found: Measurement) -> list[dict[str, Any]]:
    return list(found.evidence["launches"])


@pytest.mark.slow
def test_every_pair_compiles_on_all_six_targets(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    everywhere = {name for name, _ in measured} - {attention_fp8.FIXED}
    wanted = {(name, one.name) for name in everywhere for one in targets.TARGETS}
    in_fp8 = {(attention_fp8.FIXED, name) for name in attention_fp8.FIXED_TARGETS}
    assert set(measured) == wanted | in_fp8
    assert len(measured) == 130
    failed = [f"{pair}: {one.detail}" for pair, one in measured.items() if one.status != "ok"]
    assert failed == []
    for target in (one.name for one in targets.TARGETS):
        kernels = {
            str(launch["kernel"])
            for (_, on), found in measured.items()
            if on == target
            for launch in launches(found)
        }
        assert kernels >= DECODE | (HOPPER if target == "sm_90" else PORTABLE), target


@pytest.mark.slow
def test_nothing_of_16_bits_spills_and_tensor_cores_are_the_best(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    held = {
        (name, target): found.values
        for (name, target), found in measured.items()
        if re.search(r"^(sdpa|attention).*-D(64|128)\b|^matmul-(fp16|bf16)", name)
    }
    assert len(held) > 80
    levels = {pair: values["tensor_core_level"] for pair, values in held.items()}
    assert levels == {pair: LEVEL[pair[1]] for pair in held}
    assert {pair: values["spilled_bytes"] for pair, values in held.items()} == dict.fromkeys(
        held, 0
    )


@pytest.mark.slow
def test_every_instruction_is_recognised(measured: dict[tuple[str, str], Measurement]) -> None:
    unknown = {
        f"{target}: {mnemonic}"
        for (_, target), found in measured.items()
        for launch in launches(found)
        for mnemonic in launch["unknown_instructions"]
    }
    assert sorted(unknown) == []
    for pair, found in measured.items():
        for launch in launches(found):
            assert "unknown" not in launch["instructions"], pair
            # Every kernel does something: a listing that was not understood counts nothing.
            assert sum(launch["instructions"].values()) > 50, pair
            if launch["multiplies"]:
                assert launch["instructions"]["tensor"] > 0, pair
                assert any(loop.get("tensor", 0) for loop in launch["hot_loops"]), pair


@pytest.mark.slow
def test_no_kernel_is_advised_of_anything(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    """By ptxas, such as that it waits for every wgmma by itself (C7515), or by our reader, of a
    register that nothing wrote."""
    advised = {
        (*pair, launch["kernel"]): launch["advisories"]
        for pair, found in measured.items()
        for launch in launches(found)
        if launch["advisories"]
    }
    assert advised == {}


@pytest.mark.slow
def test_all_evidence_is_kept_as_it_is_specified(
    measured: dict[tuple[str, str], Measurement], tmp_path: Path
) -> None:
    kept = kept_evidence.read(evidence.store(tmp_path, "a" * 40, measured.values()))
    assert set(kept.results) == set(measured)
    for pair, found in measured.items():
        assert kept.results[pair]["evidence"] == found.evidence
    surveyed = evidence.survey(tmp_path, ["a" * 40])
    assert (surveyed.missing, surveyed.unwanted) == ((), ())
    total = sum(path.stat().st_size for path in (*surveyed.evidence, *surveyed.listings))
    assert total < 2_000_000  # of a commit whose every kernel is new


@pytest.mark.slow
def test_no_bound_is_below_the_workloads_own_arithmetic(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    too_fast = []
    for (name, target), found in measured.items():
        workload = configuration.workloads().get(name)
        device = devices.load(targets.get(target).device)
        # fp32 may run as tf32.
        dtype = "tf32" if workload.dtype == "fp32" else workload.dtype
        if dtype in device.flop_per_clock:
            least_us = workload.flops / (device.peak(dtype) * 1e6)
            if found.values["bound_us"] < 0.99 * least_us:
                too_fast.append(f"{name} {target}: {found.values['bound_us']} < {least_us}")
    assert too_fast == []

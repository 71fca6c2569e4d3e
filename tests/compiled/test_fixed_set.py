"""Every kernel of the fixed set: compiled, read without a gap, and bounded.

Each workload meets Hopper and, in turn, some of the other targets. ``make test-every-pair`` takes
all pairs, as ``make bench`` does for every commit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.workloads import attention_fp8
from tests.kernels.test_compiled_kernels import LEVEL
from tests.meetings import EVERY_PAIR
from warpwatch import devices
from warpwatch.config import package as configuration
from warpwatch.config import targets
from warpwatch.instruments.compiled import Measurement
from warpwatch.instruments.compiled.measure import evidence
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.session import compile_pairs

# What the set must hold: the Hopper kernels that serve most problems, and every pass of attention.
HOPPER = {"attention_forward_hopper", "attention_backward_hopper", "matmul_hopper"}
HOPPER |= {"matmul_hopper_once", "tf32_copy", "matmul_hopper_fp8"}
BACKWARD = {"attention_backward_kv", "attention_backward_q"}
DECODE = {"attention_kvcache", "attention_kvcache_combine"}
PORTABLE = {"attention_forward", "matmul_kernel"} | BACKWARD


# Hopper, for which the kernels are tuned, meets every workload; and one of the others.
HOPPER_TARGET = "sm_90"
OTHERS = tuple(one.name for one in targets.TARGETS if one.name != HOPPER_TARGET)
EACH = 5


def whole_set() -> list[tuple[str, str]]:
    return [(workload.name, target) for workload, target in configuration.workloads().fixed_set()]


def chosen() -> list[tuple[str, str]]:
    places: dict[str, int] = {}
    for name, _ in whole_set():
        places.setdefault(name, len(places))
    return [
        (name, target)
        for name, target in whole_set()
        if EVERY_PAIR
        or target == HOPPER_TARGET
        or name == attention_fp8.FIXED
        or (places[name] + OTHERS.index(target)) % EACH == 0
    ]


@pytest.fixture(scope="module")
def measured() -> dict[tuple[str, str], Measurement]:
    return dict(compile_pairs.compiled_pairs(chosen()))


def launches(found: Measurement) -> list[dict[str, Any]]:
    return list(found.evidence["launches"])


def test_the_set_meets_every_target() -> None:
    everywhere = {name for name, _ in whole_set()} - {attention_fp8.FIXED}
    wanted = {(name, one.name) for name in everywhere for one in targets.TARGETS}
    in_fp8 = {(attention_fp8.FIXED, name) for name in attention_fp8.FIXED_TARGETS}
    assert set(whole_set()) == wanted | in_fp8
    assert len(whole_set()) == 130
    assert {target for _, target in chosen()} == {one.name for one in targets.TARGETS}
    assert {name for name, _ in chosen()} == everywhere | {attention_fp8.FIXED}


@pytest.mark.slow
def test_every_pair_compiles(measured: dict[tuple[str, str], Measurement]) -> None:
    assert set(measured) == set(chosen())
    failed = [f"{pair}: {one.detail}" for pair, one in measured.items() if one.status != "ok"]
    assert failed == []
    kernels: dict[str, set[str]] = {one.name: set() for one in targets.TARGETS}
    for (_, target), found in measured.items():
        kernels[target] |= {str(launch["kernel"]) for launch in launches(found)}
    on_hopper = kernels.pop(HOPPER_TARGET)
    assert on_hopper >= DECODE | HOPPER
    assert set().union(*kernels.values()) >= DECODE | PORTABLE
    if EVERY_PAIR:
        assert {name for name, found in kernels.items() if not found >= DECODE | PORTABLE} == set()


@pytest.mark.slow
def test_nothing_of_16_bits_spills_and_tensor_cores_are_the_best(
    measured: dict[tuple[str, str], Measurement],
) -> None:
    held = {
        (name, target): found.values
        for (name, target), found in measured.items()
        if re.search(r"^(sdpa|attention).*-D(64|128)\b|^matmul-(fp16|bf16)", name)
    }
    assert len(held) > (80 if EVERY_PAIR else 25)
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

"""Calls that are the same at base and head are known by what was recorded of them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.root import ROOT
from warpwatch.compare import equal_calls
from warpwatch.instruments.gpu.card import clocks
from warpwatch.session import versions

PAIR = ("w", "sm_90")


def row(**changes: Any) -> dict[str, Any]:
    launch = {"kernel": "k", "code": "c" * 64, "grid": [1, 1, 1], "compile_seconds": 0.5}
    evidence = {"launches": [launch], "arguments": ["a"], "torch_ops": [], "tuned": []}
    return {"status": "ok", "evidence": copy.deepcopy(evidence) | changes}


def test_a_call_is_equal_whatever_its_compilation_took() -> None:
    slower = row()
    slower["evidence"]["launches"][0]["compile_seconds"] = 9.0
    found = equal_calls.find({PAIR: row()}, {PAIR: slower}, "sm_90")
    assert found == {"w": ("c" * 64,)}


@pytest.mark.parametrize(
    "other",
    [
        row(arguments=["b"]),
        row(torch_ops=[{"name": "copy_"}]),
        row(torch_ops=[{"name": "torch.cuda.synchronize", "launches": 0}]),
        row(launches=[{"kernel": "k", "code": "d" * 64, "grid": [1, 1, 1]}]),
        row(launches=[{"kernel": "k", "code": "c" * 64, "grid": [2, 1, 1]}]),
        row(launches=[], arguments=[]),
        {"status": "compile failed", "evidence": {}},
    ],
)
def test_any_difference_is_measured(other: dict[str, Any]) -> None:
    assert equal_calls.find({PAIR: row()}, {PAIR: other}, "sm_90") == {}


def test_what_is_not_known_wholly_is_measured() -> None:
    tuned, failed = row(tuned=[{"kernel": "k"}]), row(failures=[{"kernel": "k"}])
    older = row()
    del older["evidence"]["arguments"]
    for one in (tuned, failed, older):
        assert equal_calls.find({PAIR: one}, {PAIR: one}, "sm_90") == {}
    assert equal_calls.find({PAIR: row()}, {PAIR: row()}, None) == {}
    assert equal_calls.find({PAIR: row()}, {PAIR: row()}, "sm_80") == {}


@pytest.mark.parametrize(
    ("cards", "target"),
    [
        ([("NVIDIA H200", 141)], "sm_90"),
        ([("NVIDIA H200", 141)] * 4, "sm_90"),
        ([("NVIDIA H100 PCIe", 80)], None),  # its host code may choose otherwise
        ([("NVIDIA H200", 141), ("NVIDIA A100-SXM4-80GB", 80)], None),
        ([("some card", 8)], None),
        ([], None),
    ],
)
def test_a_recording_stands_for_the_card_its_target_is_judged_on(
    cards: list[tuple[str, int]], target: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [clocks.Listed(name, size << 30, "GPU-0") for name, size in cards]
    monkeypatch.setattr(clocks, "cards", lambda: listed)
    assert equal_calls.target_here() == target


def test_one_version_recorded_twice_makes_equal_calls(tmp_path: Path) -> None:
    """In other processes, whose memory lies elsewhere."""
    pairs = [("attention-bf16-B16-S1024-H16-D128", "sm_90")]
    rows = [
        versions.compiled(versions.prepare(".", tmp_path / name, ROOT), pairs, lambda _: None)
        for name in ("base", "head")
    ]
    assert list(equal_calls.find(rows[0], rows[1], "sm_90")) == [pairs[0][0]]

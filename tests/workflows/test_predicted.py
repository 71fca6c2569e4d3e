"""The verdict on a pull request from the predicted times in its artifacts."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.reports.keeping import launch
from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, WORSE_HEAD, judge
from tests.workflows.stand_in import BASE, HEAD, POINTS, StandIn, honest, zipped

TRITON = "3.6.0"


def compiled(document: dict[str, Any]) -> dict[str, Any]:
    return document | {"requirements": {"triton": TRITON}}


GOOD, SAME, WORSE = map(compiled, (GOOD_BASE, SAME_HEAD, WORSE_HEAD))


def entry(point: str, us: float) -> dict[str, Any]:
    workload, _, target = point.partition(" @ ")
    predicted = {
        "clocks": 1000 * us,
        "us": us,
        "limited_by": "latency",
        "sure": True,
        "parts": {"latency": 1000 * us},
        "idle": 0,
    }
    recorded = {"launches": [launch(f"{round(us):064x}")], "predicted": [predicted]}
    recorded |= {"torch_ops": [], "failures": [], "notes": [], "torch_us": 0.0, "model": "m"}
    return {
        "workload": workload,
        "target": target,
        "status": "ok",
        "detail": "",
        "values": {},
        "evidence": recorded,
    }


def evidence(commit: str, *us: float, says: str = "") -> dict[str, bytes]:
    """The file of evidence of a commit: what each call is predicted to take."""
    document = {
        "schema": 1,
        "commit": says or commit,
        "triton": TRITON,
        "method": "m",
        "results": [entry(point, one) for point, one in zip(POINTS, us, strict=True)],
    }
    name = f"results/evidence/{document['commit'][:8]}-{TRITON}.evidence.xz"
    return {name: lzma.compress(json.dumps(document).encode())}


def comment(github: StandIn, folder: Path, head: dict[str, Any], *us: float) -> str:
    files = honest(head, GOOD) | evidence(BASE, 100, 100, 100) | evidence(HEAD, *us)
    github.artifacts[ONE_OF_ONE] = zipped(files)
    assert judge(folder, GOOD) == 0
    (written,) = github.comments
    return str(written["body"])


def test_a_longer_time_is_a_regression_and_says_why(github: StandIn, tmp_path: Path) -> None:
    text = comment(github, tmp_path, SAME, 100, 180, 100)
    assert [check["conclusion"] for check in github.checks] == ["failure"]
    assert "the call is predicted to take 100.0 -> 180.0 us" in text
    assert "mostly latency of _attention" in text and "`predicted_us`" in text


def test_a_shorter_time_outweighs_what_a_kernel_needs(github: StandIn, tmp_path: Path) -> None:
    text = comment(github, tmp_path, WORSE, 100, 50, 100)
    assert [check["conclusion"] for check in github.checks] == ["success"]
    assert "1 improved" in text


def test_a_lost_form_of_code_stays_an_alarm(github: StandIn, tmp_path: Path) -> None:
    comment(github, tmp_path, WORSE, 100, 100.5, 100)
    assert [check["conclusion"] for check in github.checks] == ["failure"]


@pytest.mark.parametrize("spoiled", [b"no xz", lzma.compress(b"[]")])
def test_evidence_that_cannot_be_read_is_refused(
    github: StandIn, tmp_path: Path, spoiled: bytes
) -> None:
    (name,) = evidence(HEAD, 1, 1, 1)
    github.artifacts[ONE_OF_ONE] = zipped(honest(SAME, GOOD) | {name: spoiled})
    assert judge(tmp_path, GOOD) == 0
    assert [check["conclusion"] for check in github.checks] == ["failure"]
    assert "refused" in github.comments[0]["body"]


def test_evidence_of_another_commit_is_refused(github: StandIn, tmp_path: Path) -> None:
    files = honest(SAME, GOOD) | evidence(HEAD, 1, 1, 1, says="c" * 40)
    github.artifacts[ONE_OF_ONE] = zipped(files)
    assert judge(tmp_path, GOOD) == 0
    assert "which nobody requested" in github.comments[0]["body"]

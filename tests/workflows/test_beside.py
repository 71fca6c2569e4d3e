"""What lies beside results is united without loss, and goes when its results are old."""

from __future__ import annotations

import gzip
import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from tests.reports.keeping import launch
from tests.workflows.stand_in import HEAD
from tests.workflows.test_data_branch import files_on, results
from tests.workflows.test_shards import contents, shard_folders
from warpwatch.__main__ import main
from warpwatch.ci import branch
from warpwatch.ci.merge_evidence import unite
from warpwatch.judge.evidence import compiled as kept_evidence
from warpwatch.judge.evidence.measured import read_measured
from warpwatch.judge.results.strict_json import RejectedError

TRITON = "3.7.1"
NAME = f"{HEAD[:8]}-{TRITON}{kept_evidence.SUFFIX}"


def entry(
    workload: str, status: str = "ok", code: str = "", seconds: float = 1.0
) -> dict[str, Any]:
    launches = [launch(code) | {"compile_seconds": seconds}] if code else []
    evidence = {"launches": launches, "torch_ops": [], "failures": [], "notes": []}
    return {
        "workload": workload,
        "target": "sm_90",
        "status": status,
        "detail": "" if status == "ok" else "did not go well",
        "values": {"launches": 1.0},
        "evidence": evidence if launches else {},
    }


def write(folder: Path, entries: list[dict[str, Any]], commit: str = HEAD, **more: Any) -> Path:
    document = {"schema": 1, "commit": commit, "triton": TRITON, "method": "m1"} | more
    path = folder / f"{commit[:8]}-{TRITON}{kept_evidence.SUFFIX}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(json.dumps(document | {"results": entries}).encode()))
    return path


def united(tmp_path: Path, *entries: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    paths = [write(tmp_path / str(i), found) for i, found in enumerate(entries)]
    if more:
        paths.append(write(tmp_path / "more", [], **more))
    (tmp_path / NAME).write_bytes(unite(paths))
    read = kept_evidence.read(tmp_path / NAME).results
    return {workload: result for (workload, _), result in read.items()}


def test_what_any_shard_knows_is_kept(tmp_path: Path) -> None:
    good, bad = entry("b", code="1" * 64), entry("b", "import failed")
    for order in ([bad, entry("a")], [good, entry("c")]), ([good, entry("c")], [bad, entry("a")]):
        found = united(tmp_path, *order)
        assert set(found) == {"a", "b", "c"}
        assert found["b"]["status"] == "ok", "what went well explains the number"


def test_compile_seconds_alone_may_differ(tmp_path: Path) -> None:
    slow, fast = entry("a", code="1" * 64, seconds=9.0), entry("a", code="1" * 64)
    assert united(tmp_path, [slow], [fast])["a"] == slow, "that of the first shard"
    with pytest.raises(RejectedError, match="a on sm_90: compiled to different code"):
        united(tmp_path, [fast], [entry("a", code="2" * 64)])


def measured(folder: Path, workloads: dict[str, float], **more: Any) -> Path:
    """What the GPU instruments keep, as far as it matters here."""
    timed = [{"workload": name, "evidence": {"us": us}} for name, us in workloads.items()]
    document = {"schema_version": 1, "commit": HEAD, "tree": "t", "methods": {}, "card": None}
    path = folder / f"gpu-{HEAD[:12]}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(document | {"timed": timed} | more).encode()))
    return path


def test_what_gpu_instruments_kept_is_united_by_workload(tmp_path: Path) -> None:
    one = measured(tmp_path / "1", {"b": 1.0, "c": 2.0})
    two = measured(tmp_path / "2", {"a": 3.0, "b": 9.0})
    (tmp_path / one.name).write_bytes(unite([one, two]))
    timed = read_measured(tmp_path / one.name)["timed"]
    assert [(t["workload"], t["evidence"]["us"]) for t in timed] == [("a", 3), ("b", 1), ("c", 2)]
    with pytest.raises(RejectedError, match="methods: differs"):
        unite([one, measured(tmp_path / "3", {}, methods={"latency": "2"})])
    with pytest.raises(RejectedError, match="expected a list of outcomes"):
        unite([one, measured(tmp_path / "4", {}, timed=[{"no": "workload"}])])


@pytest.mark.parametrize("more", [{"method": "m2"}, {"triton": "9.9"}])
def test_evidence_of_two_methods_is_refused(tmp_path: Path, more: dict[str, str]) -> None:
    with pytest.raises(RejectedError):
        united(tmp_path, [entry("a")], **more)


def test_shards_with_evidence_merge_to_the_same_bytes(tmp_path: Path) -> None:
    folders = shard_folders(tmp_path, 3)
    for number, folder in enumerate(folders):
        entries = [entry("shared", code="1" * 64, seconds=number), entry(f"own-{number}")]
        write(folder / "results" / "evidence", entries)
        code = folder / "results" / "evidence" / "code" / "11" / f"{'1' * 64}.xz"
        code.parent.mkdir(parents=True)
        code.write_bytes(b"the same everywhere")
    outcomes = []
    for number, order in enumerate(itertools.permutations(folders)):
        out = tmp_path / f"out{number}"
        assert main(["ci", "merge", *map(str, order), "--out", str(out)]) == 0
        outcomes.append(contents(out))
    assert all(outcome == outcomes[0] for outcome in outcomes)
    merged = kept_evidence.read(tmp_path / "out0" / "cpu" / "evidence" / NAME)
    assert {name for name, _ in merged.results} == {"shared", "own-0", "own-1", "own-2"}


def test_files_of_one_name_that_cannot_be_united_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = shard_folders(tmp_path, 2)
    for number, folder in enumerate(folders):
        (folder / "results" / "notes.txt").write_text(f"of shard {number}")
    assert main(["ci", "merge", *map(str, folders), "--out", str(tmp_path / "out")]) == 3
    error = capsys.readouterr().err
    assert "notes.txt" in error and "is there twice with different content" in error


def test_old_evidence_goes_with_the_code_that_nobody_else_speaks_of(
    remote: str,
    tmp_path: Path,
) -> None:
    commits = [f"{number:x}" * 40 for number in range(1, 4)]
    folder = tmp_path / "all"
    for number, commit in enumerate(commits):
        results(folder, commit, date=1_700_000_000_000 + number)
        own, shared = f"{number:x}" * 64, "f" * 64
        entries = [entry("a", code=own), entry("b", code=shared)]
        write(folder / "evidence", entries, commit=commit)
        (folder / "evidence" / f"gpu-{commit[:12]}.json.gz").write_bytes(b"x")
        for code in (own, shared):
            path = kept_evidence.listing_path(folder / "evidence", code)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x")
    branch.record(remote, [folder], message="all", keep_results=2)
    kept = {name for name in files_on(remote) if "/evidence/" in name}
    names = {f"results/evidence/{c[:8]}-{TRITON}{kept_evidence.SUFFIX}" for c in commits[1:]}
    codes = {f"results/evidence/code/{d}{d}/{d * 64}.xz" for d in ("1", "2", "f")}
    gpu = {f"results/evidence/gpu-{commit[:12]}.json.gz" for commit in commits[1:]}
    assert kept == names | codes | gpu

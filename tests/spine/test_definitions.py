"""A `[[workload]]` that is mended: `history` measures it again, and nothing else."""

from __future__ import annotations

import gzip
import json
import lzma
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import forked
from tests.spine import strangers
from warpwatch.commands.measure import definitions
from warpwatch.judge.evidence import compiled

OPS = """import torch
import triton
import triton.language as tl


@triton.jit
def _add(x, y, z, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z + at, tl.load(x + at, mask=at < n) + tl.load(y + at, mask=at < n), mask=at < n)


def add(x, y):
    z = torch.empty_like(x)
    _add[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BLOCK=1024)
    return z
"""
HEAD = 'targets = ["sm_90"]\n[package]\nname = "ops"\npath = "ops"\n'
GOOD = "bf16[4194304] bf16[4194304]"
MARK = " (planted: gone where it is measured again)"
ANOTHER_CALL = "is another call now"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits of a package, measured with one call that works and one that does not; of the
    older one only two metrics."""
    folder = tmp_path_factory.mktemp("mended")
    (folder / "ops").mkdir()
    strangers.git(folder, "init", "--quiet", "--initial-branch", "main")
    for number in range(2):
        (folder / "ops" / "__init__.py").write_text(OPS + f"# {number}\n", "utf-8")
        strangers.git(folder, "add", "--all")
        strangers.git(folder, "commit", "--quiet", "--message", f"Commit {number}")
    configure(folder, kept=GOOD, mended="bf16[64] 3")
    done = history(folder, "--commits", "2", "--bench", "track_(launches|bound_us)")
    assert history(folder, "--commits", "1").returncode == 3
    assert done.returncode == 3 and "2 compile failed:" in done.stderr, done.stderr
    assert "from an earlier run" not in done.stderr
    for path in compiled.files(folder / ".asv" / "results" / "evidence"):
        content = json.loads(lzma.decompress(path.read_bytes()))
        for row in content["results"]:
            row["detail"] += MARK
        path.write_bytes(lzma.compress(json.dumps(content).encode()))
    return folder


def configure(folder: Path, **args: str) -> None:
    tables = [
        f'[[workload]]\nname = "{name}"\ncall = "ops:add"\nargs = "{text}"\n'
        for name, text in args.items()
    ]
    (folder / "warpwatch.toml").write_text(HEAD + "".join(tables), "utf-8")


def history(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = strangers.environment_of(folder)
    done = forked.warpwatch("history", *arguments, folder=folder, environment=environment)
    assert isinstance(done, subprocess.CompletedProcess)
    return done


def rows(folder: Path, revision: str) -> dict[str, Mapping[str, Any]]:
    """What is kept of a commit's workloads."""
    commit = strangers.git(folder, "rev-parse", revision)
    (path,) = (folder / ".asv" / "results" / "evidence").glob(f"{commit[:8]}-*")
    return {name: row for (name, _), row in compiled.read(path).results.items()}


def results(folder: Path, revision: str, metric: str) -> tuple[dict[str, Any], str]:
    """asv's values of a commit by workload, and the version that they are of."""
    commit = strangers.git(folder, "rev-parse", revision)
    (path,) = (folder / ".asv" / "results").glob(f"*/{commit[:8]}-*.json")
    content = json.loads(path.read_text("utf-8"))
    named = dict(zip(content["result_columns"], content["results"][metric], strict=False))
    workloads, _ = named["params"]
    values = named["result"] or [None] * len(workloads)
    return dict(zip(workloads, values, strict=True)), named["version"]


@pytest.mark.slow
def test_mended_arguments_are_measured_again_and_nothing_else(measured: Path) -> None:
    bound = "compiled.Add.track_bound_us"
    before = {revision: rows(measured, revision) for revision in ("HEAD", "HEAD~1")}
    _, version = results(measured, "HEAD", bound)

    done = history(measured, "--commits", "1")
    assert done.returncode == 3 and ANOTHER_CALL not in done.stderr
    assert "  these kept from an earlier run: --again measures once more" in done.stderr
    assert rows(measured, "HEAD") == before["HEAD"]

    configure(measured, kept=GOOD, mended="bf16[64] bf16[64]")
    done = history(measured, "--commits", "1")
    assert done.returncode == 0, done.stderr
    assert "mended is another call now: ops:add(bf16[64] 3) became ops:add(bf16[64] bf16[64])" in (
        done.stderr
    )
    assert "compiled: 2 of 2 pairs of workload and target measured" in done.stderr
    now = rows(measured, "HEAD")
    assert (now["mended"]["status"], now["mended"]["detail"]) == ("ok", "")
    assert now["kept"] == before["HEAD"]["kept"] and now["kept"]["detail"] == MARK
    values, again = results(measured, "HEAD", bound)
    assert again == version and min(values["'kept'"], values["'mended'"]) > 0
    # The commit that was not covered has no value of the other call any more.
    assert rows(measured, "HEAD~1") == {"kept": before["HEAD~1"]["kept"]}
    assert set(results(measured, "HEAD~1", bound)[0]) == {"'kept'"}
    (aside,) = (measured / ".asv" / "earlier").iterdir()
    assert f"moved to .asv/earlier/{aside.name}" in done.stderr
    assert len([*aside.glob("evidence/*.xz")]) == len([*aside.glob("*/*.json")]) == 2

    # It comes back when it is covered; with it a call that is new.
    configure(measured, kept=GOOD, mended="bf16[64] bf16[64]", new="fp32[64] fp32[64]")
    done = history(measured, "--commits", "2")
    assert done.returncode == 0 and ANOTHER_CALL not in done.stderr, done.stderr
    for revision in ("HEAD", "HEAD~1"):
        found = rows(measured, revision)
        assert {row["status"] for row in found.values()} == {"ok"} and len(found) == 3
        # Of the older commit two metrics were measured at first: now all are, of every call.
        atomics, _ = results(measured, revision, "compiled.Add.track_atomics")
        assert atomics == {"'kept'": 0, "'mended'": 0, "'new'": 0}
    assert rows(measured, "HEAD")["kept"] == before["HEAD"]["kept"]

    done = history(measured, "--commits", "1", "--again")
    assert done.returncode == 0, done.stderr
    assert {row["detail"] for row in rows(measured, "HEAD").values()} == {""}

    configure(measured, kept=GOOD.replace("4194304", "8388608"), mended="bf16[64] bf16[64]")
    small, _ = results(measured, "HEAD", bound)
    done = history(measured, "--commits", "2", "--bench", "bound_us")
    assert done.returncode == 0, done.stderr
    for revision in ("HEAD", "HEAD~1"):
        large, again = results(measured, revision, bound)
        assert large["'kept'"] == pytest.approx(2 * small["'kept'"], rel=0.1)
        assert large["'mended'"] == small["'mended'"] and again == version


def described(**texts_of: dict[str, str]) -> str:
    """asv's description of benchmarks, by instrument what each workload was."""
    found: dict[str, Any] = {"version": 2}
    for instrument, texts in texts_of.items():
        found[f"{instrument}.Add.track"] = {
            "name": f"{instrument}.Add.track",
            "param_names": ["workload"],
            "params": [[repr(name) for name in texts]],
            "unit": "us",
            "version": "1",
            "instrument": instrument,
            "definitions": [*texts.values()],
        }
    return json.dumps(found)


def test_another_reference_concerns_what_a_gpu_measured_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPWATCH_CONFIG", str(tmp_path / "warpwatch.toml"))
    (tmp_path / "ops").mkdir()
    configure(tmp_path, one="bf16[64]", two="bf16[64]")
    with (tmp_path / "warpwatch.toml").open("a") as file:
        file.write('reference = "ops:right"\n')  # of the second
    call = {"one": "ops:add(bf16[64])", "two": "ops:add(bf16[64])", "gone": "ops:add(1)"}
    checked = call | {"two": "ops:add(bf16[64]); ops:wrong"}
    results = tmp_path / ".asv" / "results"
    evidence = results / "evidence" / "gpu-aaaaaaaaaaaa.json.gz"
    evidence.parent.mkdir(parents=True)
    (results / "benchmarks.json").write_text(described(compiled=call, latency=checked), "utf-8")
    outcomes = [{"workload": name} for name in ("one", "two")]
    content = {"timed": outcomes, "counted": outcomes[1:], "commit": "a" * 40}
    evidence.write_bytes(gzip.compress(json.dumps(content).encode()))
    (results / "evidence" / "gpu-aaaaaaaaaaaa.unfinished").write_text("begun")
    (results / "rig").mkdir()
    kept = results / "rig" / "aaaaaaaa-env.json"
    columns = ["result", "params", "version", "started_at", "duration", "samples", "profile"]
    names = [["'one'", "'two'"]]
    stored = {
        "compiled.Add.track": [[1.0, 2.0], names, "1"],
        "latency.Add.track": [[3.0, 4.0], names, "1"],
        "mine.Other.track": [[5.0, 6.0], names, "1"],
    }
    said = {"commit_hash": "a" * 40, "env_name": "env", "date": 1, "params": {"machine": "rig"}}
    said |= {"python": "3", "requirements": {}, "env_vars": {}, "durations": {}, "version": 2}
    kept.write_text(json.dumps({**said, "result_columns": columns, "results": stored}), "utf-8")

    (found,) = definitions.changed()
    assert (found.workload, [*found.kinds]) == ("two", ["gpu"])
    assert found.now == "ops:add(bf16[64]); ops:right"
    assert definitions.take_out([found], tmp_path / "aside") == {"aaaaaaaa"}
    rows = json.loads(kept.read_text("utf-8"))["results"]
    assert rows["compiled.Add.track"][:2] == [[1.0, 2.0], names]
    assert rows["latency.Add.track"][:2] == [[3.0], [["'one'"]]]
    assert rows["mine.Other.track"][:2] == [[5.0, 6.0], names], "is no benchmark of ours"
    left = json.loads(gzip.decompress(evidence.read_bytes()))
    assert (left["timed"], left["counted"]) == ([{"workload": "one"}], [])
    assert sorted(path.name for path in (results / "evidence").iterdir()) == [evidence.name]
    assert len([path for path in (tmp_path / "aside").rglob("*") if path.is_file()]) == 3
    assert definitions.take_out([found], tmp_path / "second") == set()
    assert not (tmp_path / "second").exists()


def test_patterns_select_a_workload_its_peers_and_what_the_user_named() -> None:
    benchmarks = {"compiled.Add.track_us", "gpu.Add.track_us"}
    lacking = definitions.Lacking(frozenset({"a.b"}), frozenset(benchmarks), frozenset({"Own"}))
    (one,) = definitions.patterns(lacking, [], has_gpu=False)
    assert re.search(one, "compiled.Add.track_us('a.b', 'sm_90')")
    assert re.search(one, "compiled.Own.track_launches('a.b', 'sm_90')")
    assert not re.search(one, "compiled.Add.track_launches('a.b', 'sm_90')"), "not there: left"
    assert not re.search(one, "gpu.Add.track_us('a.b')")
    assert not re.search(one, "compiled.Add.track_us('a.b-2', 'sm_90')")
    assert not re.search(one, "compiled.Add.track_us('axb', 'sm_90')")
    both = definitions.patterns(lacking, ["track_us", "launches"], has_gpu=True)
    assert [bool(re.search(two, "gpu.Add.track_us('a.b @ peer')")) for two in both] == [True, False]

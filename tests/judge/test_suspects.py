"""``warpwatch suspects`` names commits and prints a command that asv understands."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from warpwatch.__main__ import main
from warpwatch.commands.results.suspects import Suspect, command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """60 commits with results in asv's own files; the newest two are 8 % slower."""
    repository = tmp_path / "repository"
    repository.mkdir()

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        done = subprocess.run(
            ["git", *identity, *arguments],
            cwd=repository,
            check=True,
            capture_output=True,
            timeout=120,
        )
        return done.stdout.decode().strip()

    git("init", "-q")
    for i in range(60):
        git("commit", "-q", "--allow-empty", "-m", f"commit {i}")
    hashes = git("rev-list", "--reverse", "HEAD").split()
    values = 100.0 * np.exp(np.random.default_rng(2).normal(0.0, 0.01, 60))
    values[58:] *= 1.08
    folder = tmp_path / "results"
    (folder / "gpu").mkdir(parents=True)
    (folder / "gpu" / "machine.json").write_text('{"machine": "gpu", "version": 1}')
    described = {"latency.track_us": {"name": "latency.track_us", "unit": "us", "better": "lower",
                 "version": "1", "params": [], "param_names": [], "type": "track"},
                 "version": 2}  # fmt: skip
    (folder / "benchmarks.json").write_text(json.dumps(described))
    for i, (commit, value) in enumerate(zip(hashes, values.tolist(), strict=True)):
        row = {
            "commit_hash": commit, "env_name": "env", "date": 1_700_000_000_000 + i,
            "params": {"machine": "gpu"}, "python": "3.11", "requirements": {}, "env_vars": {},
            "result_columns": ["result", "params", "version"],
            "results": {"latency.track_us": [[value], [], "1"]},
            "durations": {}, "version": 2,
        }  # fmt: skip
        (folder / "gpu" / f"{commit[:8]}-env.json").write_text(json.dumps(row))
    return tmp_path


def test_the_newest_commits_are_suspected(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["--results", str(project / "results"), "--repo", str(project / "repository")]
    assert main(["suspects", *sources]) == 3
    out = capsys.readouterr().out
    assert "latency.track_us on gpu" in out
    assert "asv run --append-samples --machine gpu" in out
    assert main(["suspects", *sources, "--json"]) == 3
    (found,) = json.loads(capsys.readouterr().out)["suspects"]
    assert 3 <= len(found["commits"]) <= 8
    assert found["ratio"] == pytest.approx(1.08, abs=0.03)


@pytest.mark.parametrize(
    ("own", "told"),
    [
        (None, True),
        ('{"plugins": ["theirs"], "repo": "."}', True),
        ('{\n// "plugins": [".warpwatch.asv.environment"]\n"repo": "."}', True),
        ('{"project_url": "https://x.invalid", "plugins": [".warpwatch.asv.environment"]}', False),
    ],
)
def test_asv_is_told_where_its_configuration_is(
    project: Path,
    own: str | None,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where the project's own file is not Warpwatch's, and of its own results alone."""
    (project / "warpwatch.toml").write_text("")
    if own is not None:
        (project / "asv.conf.json").write_text(own)
    (project / ".asv").mkdir()
    shutil.copytree(project / "results", project / ".asv" / "results")
    monkeypatch.delenv("WARPWATCH_CONFIG", raising=False)
    monkeypatch.chdir(project)
    where = "asv run --config .asv/asv.conf.json --append-samples"
    for folder, expected in ((".asv/results", told), ("results", False)):
        sources = ["--results", folder, "--repo", str(project / "repository")]
        assert main(["suspects", *sources]) == 3
        assert (where in capsys.readouterr().out) == expected


def test_the_command_says_every_commit_once() -> None:
    one = Suspect("m 1", "a.track_x", "a.track_x p", ("c1", "c2"), 1.1, "")
    two = Suspect("m 1", "b.track_y", "b.track_y q", ("c2", "c3"), 1.1, "")
    (line,) = command([one, two], runs=1)
    printing, asv = line.split(" | ")
    commits = subprocess.run(
        ["sh", "-c", printing], capture_output=True, text=True, timeout=600
    ).stdout
    assert commits.split() == ["c1", "c2", "c3"]
    words = shlex.split(asv)
    assert words[words.index("--machine") + 1] == "m 1"
    assert words[words.index("--bench") + 1] == r"^a\.track_x|^b\.track_y"
    assert words[-1] == "HASHFILE:-"

"""asv's own commands over a foreign package: good commits, a broken one, one without a kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

from warpwatch.judge.evidence import compiled as kept_evidence

ROOT = Path(__file__).resolve().parents[2]

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def _scale(x, y, n, factor, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * factor, mask=o < n)


def scale(x):
    y = torch.empty_like(x)
    for _ in range(LAUNCHES):
        _scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 2.0, BLOCK=1024)
    return y
"""

WORKLOADS = """
from dataclasses import dataclass
from warpwatch.workload.base import Workload


@dataclass(frozen=True, kw_only=True)
class Elementwise(Workload):
    n: int

    @property
    def name(self):
        return f"{self.kernel}-{self.n}"

    @property
    def flops(self):
        return self.n

    @property
    def bytes_moved(self):
        return 8 * self.n

    def inputs(self, device, seed=0, values="random"):
        import torch
        return {"x": torch.empty(self.n, device=device)}

    def call(self, inputs):
        import tiny
        return getattr(tiny, self.kernel)(inputs["x"])

    def reference(self, inputs, dtype=None):
        return inputs["x"] * 2


_ALL = tuple(
    Elementwise(kernel=k, group="tiny", dtype="float32", n=4096) for k in ("scale", "twice")
)

def all_workloads():
    return _ALL

def get(name):
    return next(w for w in _ALL if w.name == name)

def select(**_):
    return _ALL

def fixed_set():
    return tuple((w, t) for w in _ALL for t in ("sm_90", "gfx942"))
"""

# Subject of each commit and the package it leaves: launches of `scale`, with `twice` or without.
COMMITS = [
    ("one launch", "LAUNCHES = 1\n" + KERNELS),
    ("twice is added", "LAUNCHES = 1\n" + KERNELS + "\n\ntwice = scale\n"),
    ("broken", "import does_not_exist\n"),
    ("two launches", "LAUNCHES = 2\n" + KERNELS + "\n\ntwice = scale\n"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("project")
    repo = folder / "repo"
    (repo / "lib" / "tiny").mkdir(parents=True)
    (folder / "workloads").mkdir()
    (folder / "workloads" / "tiny_workloads.py").write_text(WORKLOADS)
    git = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*git, "init", "-q", "-b", "main"], check=True, timeout=120)
    (repo / "README").write_text("no package yet")
    subprocess.run([*git, "add", "README"], check=True, timeout=120)
    subprocess.run([*git, "commit", "-qm", "before the package"], check=True, timeout=120)
    commits = []
    for second, (subject, source) in enumerate(COMMITS):
        (repo / "lib" / "tiny" / "__init__.py").write_text(source)
        subprocess.run([*git, "add", "."], check=True, timeout=120)
        date = f"2026-01-01T00:00:{second:02d}Z"
        dates = {**os.environ, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        subprocess.run([*git, "commit", "-qm", subject], check=True, env=dates, timeout=120)
        head = subprocess.run(
            [*git, "rev-parse", "HEAD"], check=True, capture_output=True, timeout=120
        )
        commits.append(head.stdout.decode().strip())
    (folder / "warpwatch.toml").write_text(
        '[package]\nname = "tiny"\npath = "lib/tiny"\n'
        'workloads = "tiny_workloads"\nworkloads_folder = "workloads"\n'
    )
    config = json.loads(
        "\n".join(
            line
            for line in (ROOT / "asv.conf.json").read_text().splitlines()
            if not line.strip().startswith("//")
        )
    )
    config |= {
        "repo": str(repo),
        "benchmark_dir": str(ROOT / "benchmarks" / "suite"),
        "branches": ["main"],
        "env_dir": str(folder / "env"),
        "results_dir": str(folder / "results"),
        "html_dir": str(folder / "html"),
    }
    (folder / "asv.conf.json").write_text(json.dumps(config))
    assert asv(folder, "machine", "--machine", "here", "--yes").returncode == 0
    return folder, commits


@pytest.fixture(scope="module")
def measured(project: tuple[Path, list[str]]) -> tuple[Path, list[str]]:
    """The project, all of whose commits were run."""
    folder, commits = project
    run = asv(folder, "run", f"{commits[0]}^!", "--machine", "here")
    assert run.returncode == 0, run.stdout + run.stderr
    rest = asv(folder, "run", f"{commits[0]}..main", "--machine", "here")
    # 2 is asv's word for "some benchmark failed": those of the commit that cannot be imported.
    assert rest.returncode == 2, rest.stdout + rest.stderr
    return project


def asv(
    folder: Path, *arguments: str, python: str = sys.executable, beside: tuple[Path, ...] = ()
) -> subprocess.CompletedProcess[str]:
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "TRITON"))}
    variables |= {
        "HOME": str(folder),  # asv keeps the machine's file there
        # asv changes to the configuration's folder
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, *beside))),
        "WARPWATCH_CONFIG": str(folder / "warpwatch.toml"),
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    command, *rest = arguments
    return subprocess.run(
        [python, "-m", "asv", command, "--config", str(folder / "asv.conf.json"), *rest],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def launches(folder: Path, commit: str) -> dict[str, Any]:
    """Launches by (kernel, target); None is a failure, NaN not applicable."""
    (file,) = (folder / "results" / "here").glob(f"{commit[:8]}-*.json")
    data = json.loads(file.read_text())
    values = {}
    for name, row in data["results"].items():
        if name.endswith(".track_launches"):
            result = dict(zip(data["result_columns"], row, strict=False))
            targets = [text.strip("'") for text in result["params"][1]]
            # asv writes one null for a row of nulls.
            row_values = result["result"] or [None] * len(targets)
            for target, value in zip(targets, row_values, strict=True):
                values[name.split(".")[1], target] = value
    return values


def test_a_history_is_measured_and_one_broken_commit_breaks_nothing(
    measured: tuple[Path, list[str]],
) -> None:
    folder, commits = measured
    assert (
        "does_not_exist"
        in asv(folder, "run", f"{commits[2]}^!", "--machine", "here", "--show-stderr").stdout
    )

    first, second, broken, last = (launches(folder, commit) for commit in commits)
    assert first["Scale", "sm_90"] == first["Scale", "gfx942"] == 1
    assert first["Twice", "sm_90"] != first["Twice", "sm_90"], "NaN: the commit has no such kernel"
    assert second["Twice", "gfx942"] == 1
    compiled = [value for (_, target), value in broken.items() if target in ("sm_90", "gfx942")]
    assert compiled == [None] * 4, "missing: these values should be there"
    assert last["Scale", "sm_90"] == last["Twice", "sm_90"] == 2


def test_a_commit_before_the_package_costs_its_own_row_alone(
    project: tuple[Path, list[str]],
) -> None:
    folder, commits = project
    git = ["git", "-C", str(folder / "repo"), "rev-list", "--max-parents=0", "main"]
    root = subprocess.run(
        git, check=True, capture_output=True, text=True, timeout=120
    ).stdout.strip()
    (folder / "hashes").write_text(f"{root}\n{commits[1]}\n")
    run = asv(
        folder,
        *("run", f"HASHFILE:{folder / 'hashes'}", "--machine", "here", "--show-stderr"),
        *("--bench", "Twice.track_launches"),
    )
    assert run.returncode == 2, run.stdout + run.stderr
    assert f"commit {root[:8]} has no folder lib/tiny: nothing to measure" in run.stdout
    assert launches(folder, root)["Twice", "sm_90"] is None
    assert launches(folder, commits[1])["Twice", "sm_90"] == 1


def test_asv_may_lie_on_pythonpath_alone(project: tuple[Path, list[str]], tmp_path: Path) -> None:
    """As `pip install --target` leaves it: the interpreter itself knows neither asv nor its
    runner, which asv's process imports before anything else."""
    folder, commits = project
    venv.create(tmp_path / "venv", with_pip=False)
    beside, installed = tmp_path / "beside", tmp_path / "installed"
    beside.mkdir()
    installed.mkdir()
    for one in Path(sysconfig.get_path("purelib")).iterdir():
        (beside if one.name.startswith("asv") else installed).joinpath(one.name).symlink_to(one)
    (folder_of_venv,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (folder_of_venv / "installed.pth").write_text(str(installed))
    (folder / "one").write_text(commits[1])
    python = str(tmp_path / "venv" / "bin" / "python")
    arguments = ("run", f"HASHFILE:{folder / 'one'}", "--machine", "here")
    arguments = (*arguments, "--bench", "Twice.track_launches", "--show-stderr")
    run = asv(folder, *arguments, python=python, beside=(beside,))
    assert run.returncode == 0, run.stdout + run.stderr
    assert launches(folder, commits[1])["Twice", "sm_90"] == 1


def test_the_evidence_of_each_commit_lies_beside_the_results(
    measured: tuple[Path, list[str]],
) -> None:
    folder, commits = measured
    (path,) = (folder / "results" / "evidence").glob(f"{commits[3][:8]}-*")
    stored = kept_evidence.read(path)
    assert stored.commit == commits[3]
    launches = kept_evidence.launches(stored.results["scale-4096", "sm_90"])
    assert len(launches) == 2
    code = kept_evidence.listing(folder / "results" / "evidence", launches[0]["code"])
    assert "EXIT" in code


def test_asv_shows_compares_and_publishes(measured: tuple[Path, list[str]]) -> None:
    folder, commits = measured
    shown = asv(folder, "show", commits[3], "--machine", "here")
    assert shown.returncode == 0
    assert "compiled.Scale.track_launches" in shown.stdout
    compared = asv(folder, "compare", commits[1], commits[3], "--machine", "here")
    assert compared.returncode == 0
    assert "2.00" in compared.stdout
    published = asv(folder, "publish")
    assert published.returncode == 0, published.stdout + published.stderr
    assert (folder / "html" / "index.html").is_file()


def test_continuous_finds_the_second_launch(project: tuple[Path, list[str]]) -> None:
    folder, commits = project
    result = asv(
        folder,
        *("continuous", commits[1], commits[3], "--machine", "here"),
        *("--bench", "Scale.track_launches", "--factor", "1.5"),
    )
    assert result.returncode == 1, result.stdout + result.stderr
    assert "SOME BENCHMARKS HAVE CHANGED SIGNIFICANTLY" in result.stdout


def test_directions_and_methods_travel_into_benchmarks_json(
    measured: tuple[Path, list[str]],
) -> None:
    folder, _ = measured
    data = json.loads((folder / "results" / "benchmarks.json").read_text())
    launched = data["compiled.Scale.track_launches"]
    assert launched["better"] == "lower"
    assert launched["instrument"] == "compiled"
    assert launched["role"] == "verdict"
    assert launched["exact"] is True
    assert launched["unit"] == "count"
    assert launched["version"].startswith("compiled-")
    assert data["compiled.Scale.track_tensor_core_level"]["better"] == "higher"
    assert launched["flops"] == [4096]
    assert launched["sources"] == "lib/tiny"

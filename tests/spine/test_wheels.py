"""The distributions that people install, built and used in environments of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.containers.conftest import wheel
from tests.root import ROOT
from warpwatch.commands.setup import starter
from warpwatch.instruments.compiled import METHOD_VERSION

_ = wheel  # a fixture: one build for the whole test run
LARGEST_MB = 260  # of an environment that reads results and writes reports
CHECKOUT = ("PYTHONPATH", "WARPWATCH_CONFIG", "VIRTUAL_ENV")


def run(*command: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in CHECKOUT} | variables
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it needs."""
    folder = tmp_path_factory.mktemp("environment")
    assert run(sys.executable, "-m", "venv", folder, cwd=folder).returncode == 0
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile")
    done = run(*pip, wheel, "--constraint", ROOT / "docker" / "constraints.txt", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "python"


def test_the_wheel_holds_the_harness_and_nothing_of_ours(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {one for one in tops if not one.endswith(".dist-info")} == {"warpwatch"}
    needed = [
        path.relative_to(ROOT).as_posix()
        for pattern in ("report/templates/*.html", "report/static/*", "devices/*.toml", "**/*.py")
        for path in (ROOT / "warpwatch").glob(pattern)
    ]
    needed += [
        f"warpwatch/starter/{path.relative_to(ROOT).as_posix()}"
        for pattern in ("docker/*.Dockerfile", "docker/versions.toml", ".github/workflows/warp*")
        for path in ROOT.glob(pattern)
        if path.name not in starter.OWN
    ]
    assert not [name for name in names if name.rpartition("/")[2] in starter.OWN]
    assert sorted(set(needed) - set(names)) == []


def test_the_method_is_the_same_wherever_the_harness_lies(python: Path, tmp_path: Path) -> None:
    """Next to other packages, too: else who installs it has a border in each history."""
    code = "from warpwatch.instruments.compiled import METHOD_VERSION as v; print(v)"
    done = run(python, "-c", code, cwd=tmp_path, PYTHONPATH=sysconfig.get_path("purelib"))
    assert done.stdout.strip() == METHOD_VERSION, done.stderr


@pytest.mark.slow
def test_a_report_needs_no_torch(python: Path, tmp_path: Path) -> None:
    gone = run(python, "-c", "import torch", cwd=tmp_path)
    assert "No module named 'torch'" in gone.stderr
    published = ROOT / "reports" / "published"
    command = (python.with_name("warpwatch"), "report", "--results", published, "--repo", ROOT)
    done = run(*command, "--out", tmp_path / "html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "html" / "index.html").is_file()
    installed = (path for path in python.parents[1].rglob("*") if not path.is_symlink())
    megabytes = sum(path.stat().st_size for path in installed if path.is_file()) / 1e6
    assert megabytes <= LARGEST_MB


def test_a_command_names_the_extra_that_it_lacks(python: Path, tmp_path: Path) -> None:
    command = python.with_name("warpwatch")
    done = run(command, "inspect", "json:dumps", cwd=tmp_path)
    assert done.returncode == 2
    assert "needs torch" in done.stderr and "pip install 'warpwatch[triton]'" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(command, "history", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'warpwatch[asv]'" in done.stderr and "Traceback" not in done.stderr
    assert run(command, "--help", cwd=tmp_path).returncode == 0


def test_inspect_works_once_torch_and_triton_are_there(python: Path, tmp_path: Path) -> None:
    """They are lent by this environment: what the wheel brings is imported from its own."""
    from tests.spine import strangers

    strangers.repository(tmp_path, strangers.LAYOUTS["flat"])
    lent = sysconfig.get_path("purelib")
    asked = ("inspect", "fastops.ops.activation:gelu", "--args", "bf16[64,128]")
    command = (python.with_name("warpwatch"), *asked, "--target", "sm_90")
    done = run(*command, cwd=tmp_path, PYTHONPATH=lent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "_gelu" in done.stdout


def test_the_kernels_are_a_distribution_of_their_own(tmp_path: Path) -> None:
    described = tomllib.loads((ROOT / "kernels" / "pyproject.toml").read_text("utf-8"))
    listed = set(described["tool"]["setuptools"]["packages"])
    there = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "kernels").rglob("__init__.py")
        if "build" not in path.parts
    }
    assert listed == there
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert described["project"]["requires-python"] == whole["project"]["requires-python"]

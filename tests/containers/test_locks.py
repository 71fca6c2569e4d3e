"""What is installed for which use: each file by its hash, and no torch where none is needed."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools import locks
from warpwatch.sandbox import images

DOCKER = images.root() / "docker"
USES = ("compile", "cuda", "development", "gpu", "image", "reports")
WORKFLOWS = images.root() / ".github" / "workflows"


def pins(use: str) -> dict[str, str]:
    """The version of each package in a lock, by its name."""
    text = (DOCKER / "locks" / f"{use}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE))


def named(names: set[str]) -> set[str]:
    return {re.sub(r"[_.]", "-", name).lower() for name in names}


@pytest.mark.parametrize("use", USES)
def test_a_lock_has_the_versions_of_the_constraints_and_a_hash_for_each(use: str) -> None:
    text = (DOCKER / "locks" / f"{use}.txt").read_text()
    entries = [e for e in locks.split(text) if not e.startswith("#")]
    assert entries and all(re.match(r"[a-z0-9-]+==", entry) for entry in entries)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}", entry) for entry in entries)
    constraints = DOCKER / "constraints.txt"
    digest = hashlib.sha256(constraints.read_bytes()).hexdigest()
    assert f"# constraints {digest}\n" in text, "python -m tools.locks"
    known = {
        name: version
        for line in constraints.read_text().splitlines()
        if "==" in line
        for name, version in [line.split("==")]
    }
    known = {next(iter(named({name}))): version for name, version in known.items()}
    found = pins(use)
    assert {n: v for n, v in found.items() if n in known} == {
        n: known[n] for n in found.keys() & known
    }
    if use == "development":
        assert known.keys() <= found.keys()


def test_reports_need_what_the_package_says_and_nothing_that_measures() -> None:
    project = tomllib.loads((images.root() / "pyproject.toml").read_text())["project"]
    wanted = named({re.split(r"[<>=]", one)[0] for one in project["dependencies"]})
    assert pins("reports").keys() == wanted | {"markupsafe"}
    assert "docker" in pins("gpu") and not {"torch", "triton", "asv"} & pins("gpu").keys()
    assert not {"torch", "triton"} & pins("image").keys(), "the base brings them"


def test_torch_has_the_hashes_of_both_its_builds_and_cuda_s_packages_are_apart() -> None:
    text = (DOCKER / "locks" / "compile.txt").read_text()
    (entry,) = [one for one in locks.split(text) if one.startswith("torch==")]
    for digest in locks.CPU_BUILDS[images.get("cpu").torch]:
        assert f"--hash=sha256:{digest}" in entry
    assert entry.count("--hash") > 2 * len(locks.CPU_BUILDS[images.get("cpu").torch])
    cuda = re.compile(r"(?:nvidia|cuda)-")
    assert all(cuda.match(name) for name in pins("cuda"))
    assert not [name for use in USES if use != "cuda" for name in pins(use) if cuda.match(name)]


@pytest.fixture
def index() -> Iterator[str]:
    """An index of packages that has torch."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/whl/torch/" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/whl"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module, next to files that can be changed; pip finds the large build."""
    shutil.copytree(DOCKER / "locks", tmp_path / "locks")
    for name in ("constraints.txt", "pip_arguments.py"):
        shutil.copyfile(DOCKER / name, tmp_path / name)
    place = tmp_path / "pip_arguments.py"
    spec = importlib.util.spec_from_file_location("pip_arguments", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "NVIDIA", tmp_path / "nvidiactl")
    monkeypatch.setattr(module, "pip_would_take", lambda version: version)
    return module


def lock(program: Any, use: str) -> list[str]:
    return ["--requirement", str(program.FOLDER / "locks" / f"{use}.txt")]


def test_without_a_gpu_torch_comes_from_the_index_of_the_small_build(
    program: Any, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "CPU_INDEX", index)
    small = ["--constraint", str(program.FOLDER / "locks" / "cpu.txt")]
    expected = ["--require-hashes", *lock(program, "compile"), *small, "--extra-index-url", index]
    assert program.arguments("compile") == expected
    monkeypatch.setattr(program, "pip_would_take", lambda version: f"{version}+cpu")
    assert program.arguments("compile") == expected[:-2], "pip's own settings are enough"
    constraint = (program.FOLDER / "locks" / "cpu.txt").read_text()
    assert constraint.endswith(f"\ntorch=={images.get('cpu').torch}+cpu\n")


def test_pip_is_asked_which_build_it_would_take(program: Any, tmp_path: Path) -> None:
    """A wheel that no index tells the hash of, as those of a mirror or of a folder."""
    place = program.FOLDER / "pip_arguments.py"
    spec = importlib.util.spec_from_file_location("fresh", place)
    assert spec is not None and spec.loader is not None
    fresh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fresh)
    assert fresh.pip_would_take("0.0.0.dev404") == "", "there is none"


def test_an_index_that_does_not_answer_is_not_named(
    program: Any, index: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip would ask it for each package, and wait each time."""
    monkeypatch.setattr(program, "CPU_INDEX", f"{index}/nowhere")
    found = program.arguments("development")
    assert found == ["--require-hashes", *lock(program, "development"), *lock(program, "cuda")]
    assert "2.8 GB" in capsys.readouterr().err


def test_with_an_nvidia_gpu_all_of_cuda_comes_by_its_hashes(program: Any) -> None:
    program.NVIDIA.touch()
    found = program.arguments("development")
    assert found == ["--require-hashes", *lock(program, "development"), *lock(program, "cuda")]
    for use in ("reports", "gpu", "image"):
        assert program.arguments(use) == ["--require-hashes", *lock(program, use)]


def test_a_project_s_own_versions_win_over_the_lock_and_that_is_said(
    program: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    program.NVIDIA.touch()
    path = program.FOLDER / "constraints.txt"
    path.write_text("# ours\ntorch==2.12.0  # why\ntriton==3.6.0\nfastops-helpers==1.0\n")
    said = ["torch==2.12.0", "triton==3.6.0", "fastops-helpers==1.0"]
    assert program.arguments("compile") == said
    assert "without hashes" in capsys.readouterr().err
    assert program.arguments("image") == said[2:], "the base's own torch and Triton stay"
    for use in ("reports", "gpu"):  # the trusted side is not the project's to change
        assert program.arguments(use) == ["--require-hashes", *lock(program, use)]


def targets_by_job() -> Iterator[tuple[str, dict[str, Any], set[str]]]:
    for path in sorted(WORKFLOWS.glob("warpwatch*.yml")):
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            runs = [str(step["run"]).split()[-1] for step in job.get("steps", ()) if "run" in step]
            yield f"{path.name} {name}", job, set(runs)


def test_a_job_that_may_write_or_serves_a_gpu_installs_no_torch() -> None:
    text = (DOCKER / "targets.mk").read_text() + (DOCKER / "release.mk").read_text()
    needs = dict(re.findall(r"^([a-z][a-z-]*): \$\((\w+)\)", text, re.MULTILINE))
    light = {"READER_STAMP", "HOST_STAMP", "BARE_READY"}
    seen = 0
    for place, job, targets in targets_by_job():
        writes = "write" in job.get("permissions", {}).values()
        if writes or "matrix.runner" in str(job.get("runs-on")):
            seen += 1
            assert {needs.get(one, "BARE_READY") for one in targets} <= light, place
        if writes:
            assert not {one for one in targets if needs.get(one) == "HOST_STAMP"}, place
    assert seen >= 5
    assert {one for one, need in needs.items() if need == "STAMP"} == {"lane-cpu", "release-files"}


def test_nothing_depends_on_a_variable_that_forks_have_not() -> None:
    """GitHub gives variables to no run of a fork's pull request and to none of Dependabot's."""
    for path in WORKFLOWS.glob("*.yml"):
        document = yaml.safe_load(path.read_text())
        if not {"pull_request", "merge_group"} & set(document.get("on", document.get(True))):
            continue
        used = re.findall(r"\$\{\{ (vars\.\w+.*?) \}\}", path.read_text())
        assert all(re.fullmatch(r"vars\.\w+ \|\| '[^']+'", one) for one in used), path.name

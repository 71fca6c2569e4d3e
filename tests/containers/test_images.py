"""The Dockerfiles build without a daemon, and the images hold what they promise."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import warpwatch
from tests.containers import first_of_each
from tests.containers.conftest import (
    BASE,
    Engine,
    build,
    buildah,
    built,
    gpu_stand_in,
    pip_volumes,
)
from warpwatch.sandbox import images

pytestmark = [pytest.mark.container, pytest.mark.slow]


def inspect(engine: Engine, image: str) -> dict[str, Any]:
    description: dict[str, Any] = json.loads(engine.podman("image", "inspect", image))[0]
    return description


def test_the_cpu_image_is_small_and_says_what_it_is(engine: Engine, cpu_image: str) -> None:
    image = inspect(engine, cpu_image)
    assert image["Size"] < 3e9
    assert image["User"] == "10001:10001"
    assert image["Labels"]["org.opencontainers.image.title"] == "warpwatch-cpu"
    revision = ["git", "-C", str(images.root()), "rev-parse", "HEAD"]
    head = subprocess.run(
        revision, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()
    assert image["Labels"][images.REVISION_LABEL] == head
    assert image["Healthcheck"]["Test"] == ["CMD", "python", "-m", "warpwatch", "doctor"]


def test_no_pip_setting_and_nothing_of_a_project_stay_in_it(engine: Engine, cpu_image: str) -> None:
    look = (
        "import importlib.util, pathlib\n"
        "conf = pathlib.Path('/etc/pip.conf')\n"
        "print(conf.read_text() if conf.exists() else '', importlib.util.find_spec('kernels'),\n"
        "      importlib.util.find_spec('benchmarks'),\n"
        "      *[path.name for path in pathlib.Path('/opt/warpwatch').iterdir()])"
    )
    out = engine.podman("run", "--rm", "--network", "none", cpu_image, "python", "-c", look)
    assert out.split() == ["None", "None", "warpwatch"]


def test_the_harness_in_it_is_the_one_that_built_it(
    engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    """Module by module; its command works, and says what it lacks where no project is mounted."""
    harness = images.copy_harness(tmp_path / "harness")
    ours = {str(p.relative_to(harness)): _digest(p) for p in harness.rglob("*") if p.is_file()}
    assert len(ours) > 200
    look = (
        "import hashlib, json, pathlib, warpwatch\n"
        "root = pathlib.Path(*warpwatch.__path__)\n"
        "found = [p for p in root.rglob('*') if p.is_file() and p.suffix != '.pyc']\n"
        "print(json.dumps({str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()\n"
        "                  for p in found}))"
    )
    run = ("run", "--rm", "--network", "none", cpu_image)
    assert json.loads(engine.podman(*run, "python", "-c", look)) == ours
    assert engine.podman(*run, "warpwatch", "--version") == f"warpwatch {warpwatch.__version__}"
    said = engine.podman(*run, "sh", "-c", "warpwatch doctor || echo exit code $?")
    assert "/src/warpwatch.toml: no such file. `warpwatch init` writes one" in said
    assert said.endswith("exit code 2")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_its_health_is_that_of_the_project_mounted(
    engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--results", str(tmp_path)),
        *("--", "python", "-m", "warpwatch", "doctor"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok       measured package     kernels from /src/kernels" in done.stdout


def test_what_every_process_imports_is_compiled_in_it(engine: Engine, cpu_image: str) -> None:
    look = (
        "import importlib.util as u, pathlib\n"
        "for name in ('torch', 'torch._dynamo', 'triton.compiler', 'scipy.special'):\n"
        "    print(pathlib.Path(u.cache_from_source(u.find_spec(name).origin)).exists())"
    )
    out = engine.podman("run", "--rm", "--network", "none", cpu_image, "python", "-c", look)
    assert out.split() == ["True"] * 4


def test_another_revision_of_the_same_files_is_named_by_the_image(
    container_environment: dict[str, str], engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    """Every layer is there already; the label must not come from it."""
    tag = "localhost/warpwatch-test:revision"
    harness = images.copy_harness(tmp_path / "harness")
    for revision in ("1" * 40, "2" * 40):
        command = images.build_command(
            images.get("cpu"),
            harness=harness,
            builder="buildah",
            base=BASE,
            tag=tag,
            revision=revision,
            pip_config=Path("/dev/null"),
            volumes=pip_volumes(),
        )
        said = built(container_environment, command)
        assert "Successfully installed" not in said, "the layers were not used again"
        assert inspect(engine, tag)["Labels"][images.REVISION_LABEL] == revision
    assert inspect(engine, cpu_image)["Labels"][images.REVISION_LABEL] not in ("1" * 40, "2" * 40)


def test_a_rebuild_after_an_edit_to_the_harness_takes_seconds(
    container_environment: dict[str, str], cpu_image: str, tmp_path: Path
) -> None:
    """An edit to what is measured needs none: the image holds nothing of it."""
    harness = images.copy_harness(tmp_path / "harness")
    pip_config = tmp_path / "pip.conf"
    pip_config.write_text(images.pip_settings())
    command = images.build_command(
        images.get("cpu"),
        harness=harness,
        builder="buildah",
        base=BASE,
        tag="localhost/warpwatch-test:edit",
        pip_config=pip_config,
        volumes=pip_volumes(),
    )

    def rebuild() -> tuple[float, str]:
        started = time.monotonic()
        said = built(container_environment, command)
        return time.monotonic() - started, said

    rebuild()
    with (harness / "__init__.py").open("a") as file:
        file.write("\n# an edit\n")
    seconds, said = rebuild()
    assert seconds < 20
    assert "Successfully installed" not in said


def test_the_kernel_tests_pass_in_the_hardened_cpu_image(
    engine: Engine, cpu_image: str, tmp_path: Path
) -> None:
    """No network, read-only root, no capability, not root: as `container run` always is. Every
    test file is imported, and one case runs for each set of fixtures: the others differ in what
    they ask of the kernels, and that the same run asks outside (see the plugin)."""
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--machine", "test"),
        *("--results", str(tmp_path), "--", "python", "-m", "pytest", "-p", "no:cacheprovider"),
        *("-p", first_of_each.__name__, "tests/kernels", "-m", "not slow"),
        *("--junitxml", "/src/.asv/kernels.xml"),
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    (suite,) = ElementTree.parse(tmp_path / "kernels.xml").getroot()
    counts = {key: int(suite.get(key, -1)) for key in ("failures", "errors", "skipped")}
    assert counts == dict.fromkeys(counts, 0), "a skip would hide what did not run"
    ran = {str(case.get("classname")).rpartition(".")[2] for case in suite.iter("testcase")}
    assert first_of_each.COMPILES in ran, "the compilers are in the image, too"
    assert int(suite.get("tests", 0)) > 5


@pytest.fixture(scope="module")
def gpu_base(container_environment: dict[str, str], compilers_image: str) -> str:
    tag = "localhost/warpwatch-test-base:gpu"
    return gpu_stand_in(container_environment, compilers_image, images.get("cuda").torch, tag)


@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_the_gpu_dockerfiles_build_on_stand_in_bases(
    container_environment: dict[str, str], engine: Engine, gpu_base: str, backend: str
) -> None:
    tag = f"localhost/warpwatch-test:{backend}"
    done = build(container_environment, backend, gpu_base, tag)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    image = inspect(engine, tag)
    assert image["User"] == "10001:10001"
    assert image["Labels"]["org.opencontainers.image.title"] == f"warpwatch-{backend}"
    assert image["Healthcheck"]["Test"][-1] == "doctor"
    run = (
        "run",
        "--rm",
        "--network",
        "none",
        "--read-only",
        "--cap-drop",
        "all",
        "--tmpfs",
        "/tmp",
    )
    own = {"cuda": "", "rocm": ", amdsmi"}[backend]
    look = f"import asv, docker{own}, importlib.metadata as m; print(m.version('torch'))"
    out = engine.podman(*run, tag, "python", "-c", look)
    assert out == f"{images.get(backend).torch}+base", "the base's torch is kept"
    if backend == "cuda":
        assert engine.podman(*run, tag, "ncu") == "Version 2025.3.1", "the newest ncu is used"


def test_a_base_with_another_torch_is_refused_when_built(
    container_environment: dict[str, str], compilers_image: str
) -> None:
    other = "localhost/warpwatch-test-base:other-torch"
    gpu_stand_in(container_environment, compilers_image, "1.0.0", other)
    done = build(container_environment, "rocm", other, "localhost/warpwatch-test:other")
    buildah(container_environment, "rmi", "--force", other)
    assert done.returncode == 3
    assert "base has torch 1.0.0; versions.toml says" in done.stdout + done.stderr


def test_a_builder_that_is_not_installed_is_one_clear_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "warpwatch", "container", "build", "--backend", "cpu"],
        cwd=images.root(),
        env={"PATH": f"{tmp_path}:/usr/bin"} if not shutil.which("docker", path="/usr/bin") else {},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 3
    assert done.stderr == (
        "error: docker is not installed: install it, or choose another --builder\n"
    )

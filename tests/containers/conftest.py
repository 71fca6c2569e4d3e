"""A real engine without a daemon: podman serves the Docker API, buildah builds on a local base.

The base is made once by debootstrap and kept in the engine's store, as are the layers; where the
store already has them, a test run takes seconds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import docker
import pytest
import requests

from tests.containers.foreign import built_wheel
from warpwatch.config.end_with_parent import end_with
from warpwatch.sandbox import images

BASE = "localhost/warpwatch-test-base:bookworm-1"
# The base by debootstrap, and an image on it.
LONGEST_BUILD_S = 2700
# Other test processes hold the cores, and each thread of torch would wait for its turn.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
env = ["OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


@dataclass(frozen=True)
class Engine:
    """A podman service on a socket of its own."""

    environment: dict[str, str]
    process: subprocess.Popen[bytes]
    before: frozenset[str] = frozenset()
    """What killed runs of earlier days left in the store: not this engine's."""

    def answers(self) -> bool:
        try:
            return bool(docker.DockerClient(base_url=self.environment["DOCKER_HOST"]).ping())
        except (docker.errors.DockerException, requests.exceptions.RequestException):
            return False

    def podman(self, *arguments: str) -> str:
        command = ["podman", *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def warpwatch(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``warpwatch container`` against this engine."""
        return subprocess.run(
            [sys.executable, "-m", "warpwatch", "container", *arguments],
            cwd=images.root(),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=1200,  # the kernel tests, where others work on the machine too
        )

    def left_over(self) -> list[str]:
        """Containers that no run in progress owns: other tests may share the engine's store."""
        form = '{{.ID}} {{index .Labels "warpwatch.run"}}'
        listing = self.podman("ps", "--all", "--filter", "label=warpwatch.run", "--format", form)
        owners = dict(line.split() for line in listing.splitlines())
        return [
            identity
            for identity, owner in owners.items()
            if identity not in self.before
            and (int(owner) == os.getpid() or not Path(f"/proc/{owner}").exists())
        ]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def start(environment: dict[str, str], folder: Path) -> Engine:
    """An engine that listens in ``folder``."""
    socket = folder / "engine.sock"
    with (folder / "engine.log").open("wb") as log:
        process = subprocess.Popen(
            ["podman", "system", "service", "--time", "0", f"unix://{socket}"],
            cwd=folder,  # where containers run out of memory, a file that says so is left
            env=environment,
            stdout=log,
            stderr=log,
            # A killed test run stops nothing, and a service waits for ever.
            preexec_fn=partial(end_with, os.getpid()),
        )
    service = Engine({**environment, "DOCKER_HOST": f"unix://{socket}"}, process)
    deadline = time.monotonic() + 120
    # The socket is there before the service listens on it.
    while not service.answers() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    assert service.answers(), (folder / "engine.log").read_text()
    return service


@pytest.fixture(scope="session")
def container_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What podman and buildah need where there is no systemd."""
    if os.getuid() != 0:
        pytest.skip("the container tests build and run as root: no subordinate ids are set up")
    path = tmp_path_factory.mktemp("engine") / "containers.conf"
    path.write_text(CONTAINERS_CONF)
    return {**os.environ, "CONTAINERS_CONF": str(path)}


@pytest.fixture(scope="session")
def engine(
    container_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    engine = start(container_environment, tmp_path_factory.mktemp("socket"))
    yield replace(engine, before=frozenset(engine.left_over()))
    engine.stop()


def buildah(environment: dict[str, str], *arguments: str) -> str:
    command = ["buildah", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.strip()


def pip_volumes() -> list[str]:
    """The folders that this machine's pip settings name: certificates and local wheels."""
    folders = set()
    for word in images.pip_settings().split():
        path = Path(word.removeprefix("file://"))
        if path.is_absolute() and path.exists():
            # The links of a local index lead to files beside it.
            folders.add(path.parent if word.startswith("file:") or path.is_file() else path)
    return [f"{folder}:{folder}:ro" for folder in sorted(folders)]


def build(
    environment: dict[str, str], backend: str, base: str, tag: str
) -> subprocess.CompletedProcess[str]:
    """``container build`` with buildah on a stand-in base."""
    command = [sys.executable, "-m", "warpwatch", "container", "build", "--backend", backend]
    command += ["--builder", "buildah", "--base", base, "--tag", tag]
    command += [argument for volume in pip_volumes() for argument in ("--volume", volume)]
    return subprocess.run(
        command, cwd=images.root(), env=environment, capture_output=True, text=True, timeout=900
    )


def built(environment: dict[str, str], command: Sequence[str]) -> str:
    """What a build says that must go well."""
    done = subprocess.run(
        command, cwd=images.root(), env=environment, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout + done.stderr


@contextmanager
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory, what: str = "images") -> Iterator[None]:
    """One of the processes of a test run at a time: the others find what it has built."""
    until = time.monotonic() + LONGEST_BUILD_S
    with (tmp_path_factory.getbasetemp().parent / f"{what}.lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    pytest.fail(f"another process has built {what} for {LONGEST_BUILD_S} s")
                time.sleep(0.1)
            else:
                break
        yield


@pytest.fixture(scope="session")
def base_image(
    container_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Debian 12 with Python: what the pinned bases are to a machine that can reach none."""
    with one_at_a_time(tmp_path_factory):
        return made_base(container_environment, tmp_path_factory)


def made_base(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    look = ["buildah", "inspect", "--type", "image", BASE]
    if subprocess.run(look, env=environment, capture_output=True, timeout=900).returncode == 0:
        return BASE
    if "container" not in os.environ.get("WARPWATCH_MUST_RUN", ""):
        pytest.skip("the base image is not built yet, which takes minutes: make test-containers")
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not on the PATH: it makes the base image")
    root = tmp_path_factory.mktemp("base") / "root"
    packages = "--include=ca-certificates,python3-dev,python3-venv"
    command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    shutil.rmtree(root / "var/cache/apt/archives", ignore_errors=True)
    container = buildah(environment, "from", "scratch")
    buildah(environment, "add", "--quiet", container, str(root), "/")
    buildah(environment, "config", "--cmd", "/bin/bash", container)
    buildah(environment, "commit", "--quiet", "--rm", container, BASE)
    shutil.rmtree(root)
    return BASE


@pytest.fixture(scope="session")
def cpu_image(
    container_environment: dict[str, str],
    base_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    tag = "localhost/warpwatch-test:cpu"
    with one_at_a_time(tmp_path_factory):
        done = build(container_environment, "cpu", base_image, tag)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return tag


@pytest.fixture(scope="session")
def compilers_image(
    container_environment: dict[str, str], cpu_image: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The base with the Debian packages that the CPU image adds to it: a layer that is there. The
    vendors' bases have compilers, too, and their Dockerfiles find the packages installed."""
    tag = f"{BASE.partition(':')[0]}:compilers"
    command = images.build_command(
        images.get("cpu"),
        harness=tmp_path_factory.mktemp("harness"),
        builder="buildah",
        base=BASE,
        tag=tag,
        volumes=pip_volumes(),
    )
    command[-1:-1] = ["--target", "system"]
    said = built(container_environment, command)
    assert "Unpacking" not in said, "the layer was not used again"
    return tag


def gpu_stand_in(environment: dict[str, str], base: str, torch: str, tag: str) -> str:
    """A stand-in of the vendors' bases: the versions they promise, and an ncu that says so.

    torch's and triton's files are left out: what is tested is the Dockerfile, not a GPU.
    """
    container = buildah(environment, "from", base)
    root = Path(buildah(environment, "mount", container))
    for name, version in (("torch", f"{torch}+base"), ("triton", images.get("cuda").triton)):
        info = root / "usr/lib/python3/dist-packages" / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(text)
    # As AMD's wheels lay it: no Python looks there by itself.
    amdsmi = root / "usr/lib/python3/dist-packages/_rocm_sdk_core/share/amd_smi/amdsmi"
    amdsmi.mkdir(parents=True)
    (amdsmi / "__init__.py").touch()
    for release in ("2024.9.0", "2025.3.1"):
        ncu = root / "opt/nvidia/nsight-compute" / release / "ncu"
        ncu.parent.mkdir(parents=True)
        ncu.write_text(f"#!/bin/sh\necho Version {release}\n")
        ncu.chmod(0o755)
    buildah(environment, "umount", container)
    buildah(environment, "commit", "--quiet", "--rm", "--timestamp", "0", container, tag)
    return tag


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A small git repository to mount."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "file").write_text("here\n")
    for command in (
        ["init", "--quiet"],
        ["add", "file"],
        ["-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "--quiet", "-m", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True, timeout=120)
    return folder


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built once a test run, whichever of its processes asks first."""
    folder = shared(tmp_path_factory) / "wheel"
    with one_at_a_time(tmp_path_factory, "wheel"):
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            built_wheel(folder)
            (folder / "done").touch()
    (found,) = folder.glob("warpwatch-*.whl")
    return found


def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a test run that all of its processes see, and no other run."""
    mine = tmp_path_factory.getbasetemp()
    return mine.parent if "PYTEST_XDIST_WORKER" in os.environ else mine


def newcomer(home: Path, programs: Path | None = None) -> dict[str, str]:
    """The environment of somebody who has set up nothing yet, but for ``programs`` on the path."""
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    home.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("WARPWATCH", "MAKE"))}
    if programs is not None:
        kept["PATH"] = f"{programs}{os.pathsep}{kept['PATH']}"
    return {**kept, **dict.fromkeys(names, "newcomer@localhost"), "HOME": str(home)}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return newcomer(tmp_path / "home")

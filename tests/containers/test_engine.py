"""The docker SDK's path against a real engine API: what is allowed, what stays, what is left."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from tests.containers.conftest import Engine, buildah, start
from warpwatch.__main__ import main
from warpwatch.sandbox import containers, images
from warpwatch.sandbox import limits as watch
from warpwatch.sandbox.settings import settings

pytestmark = [pytest.mark.container, pytest.mark.slow]
CONTAINER = (sys.executable, "-m", "warpwatch", "container")

LOOK = r"""
id -u; id -g
grep -E '^(CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status | tr '\t' ' '
ls /sys/class/net
touch /probe 2>&1; touch /src/probe 2>&1; cat /src/file
cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null
hostname; cat $HOME/.asv-machine.json
git -C /src log --format=%s
echo kept > /src/.asv/kept
stat -f -c %T "$(dirname "$TRITON_CACHE_DIR")"
exit 7
"""


def test_everything_is_denied_that_was_not_named(
    engine: Engine, cpu_image: str, repository: Path
) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--machine", "h200-a", "--pids", "99", "--", "sh", "-c", LOOK),
    )
    assert done.returncode == 7, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["10001", "10001"]
    assert {"CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1"} <= set(lines)
    assert lines[lines.index("Seccomp: 2") + 1] == "lo", "the loopback is all the network there is"
    assert done.stdout.count("Read-only file system") == 2
    assert {"here", "99", "h200-a", "one", "tmpfs"} <= set(lines)
    machine = next(json.loads(line) for line in lines if line.startswith("{"))
    assert machine["h200-a"]["machine"] == "h200-a"
    kept = repository / ".asv" / "kept"
    assert kept.read_text() == "kept\n"
    assert kept.stat().st_uid == os.getuid(), "results belong to the caller"
    assert engine.left_over() == []


def running(engine: Engine, repository: Path, image: str, script: str) -> subprocess.Popen[str]:
    """A run in the background that has written its first result."""
    process = subprocess.Popen(
        [
            *(*CONTAINER, "run", "--backend", "cpu", "--image", image),
            *("--repository", str(repository), "--", "sh", "-c", script),
        ],
        cwd=images.root(),
        env=engine.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # What starts the tests in the background may have told its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    first = repository / ".asv" / "first"
    deadline = time.monotonic() + 60
    while not first.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    if not first.exists():
        process.kill()  # else what it said would not end
        pytest.fail(f"no result within 60 s: {process.communicate(timeout=60)}")
    return process


HEEDS = "echo 1 > /src/.asv/first; exec python -c 'import time; time.sleep(120)'"
DEAF = "trap '' INT TERM; echo 1 > /src/.asv/first; while true; do sleep 1; done"


@pytest.mark.parametrize(
    ("number", "script"),
    [(signal.SIGINT, HEEDS), (signal.SIGTERM, HEEDS), (signal.SIGINT, DEAF)],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C to one that does not heed it"],
)
def test_an_interrupt_leaves_a_clean_host(
    engine: Engine, cpu_image: str, repository: Path, number: signal.Signals, script: str
) -> None:
    process = running(engine, repository, cpu_image, script)
    process.send_signal(number)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.splitlines() == ["stopping the container", "interrupted"]
    assert engine.left_over() == []
    assert (repository / ".asv" / "first").read_text() == "1\n"


def test_a_run_that_takes_too_long_is_stopped(
    engine: Engine, cpu_image: str, repository: Path
) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--timeout", "2", "--", "sleep", "100"),
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: stopped after --timeout 2 s")
    assert done.stderr.count("\n") == 1
    assert engine.left_over() == []


def test_results_without_end_are_stopped(engine: Engine, cpu_image: str, repository: Path) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--results-gb", "0.05", "--", "sh", "-c"),
        "echo 1 > /src/.asv/first; head -c 100M /dev/zero > /src/.asv/big; sleep 100",
    )
    assert done.returncode == 3
    assert done.stderr.startswith("error: stopped for writing more than 0.05 GB")
    assert "--results-gb" in done.stderr and done.stderr.count("\n") == 1
    assert (repository / ".asv" / "first").read_text() == "1\n"
    assert engine.left_over() == []


def test_output_without_end_is_stopped_and_kept_nowhere(
    engine: Engine,
    cpu_image: str,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In this process, for a smaller limit; the engine is the real one."""
    monkeypatch.setattr(watch, "MAX_OUTPUT_BYTES", 10**6)
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    arguments = ["container", "run", "--backend", "cpu", "--image", cpu_image]
    arguments += ["--repository", str(repository), "--", "sh", "-c", "echo begin; exec yes"]
    assert main(arguments) == 3
    printed = capfd.readouterr()
    assert printed.out.startswith("begin\ny\n") and len(printed.out) <= 1_000_000
    assert printed.err.startswith("error: it printed more than 1 MB")
    assert engine.left_over() == []


def test_nothing_that_was_printed_is_lost_and_the_engine_keeps_no_log(
    engine: Engine, cpu_image: str, repository: Path
) -> None:
    lines = "import sys; sys.stdout.writelines(f'{i}\\n' for i in range(300_000))"
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--", "python", "-c", lines),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(number) for number in range(300_000)]
    run = containers.make_run(images.get("cpu"), ["true"], repository, None, machine="box")
    assert settings(run)["log_config"]["Type"] == "none"


def test_links_that_a_run_leaves_are_gone_and_the_run_fails(
    engine: Engine, cpu_image: str, repository: Path
) -> None:
    script = (
        "mkdir -p /src/.asv/results/m; cd /src/.asv/results/m; echo {} > good.json; "
        "ln -s /etc/passwd bad.json; mkfifo pipe.json; echo {} > ../../shard.json"
    )
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--", "sh", "-c", script),
    )
    assert done.returncode == 3
    named, error = done.stderr.splitlines()
    assert "results/m/bad.json (a symbolic link), results/m/pipe.json (a pipe)" in named
    assert error.startswith("error: the code that ran left something else than results")
    left = [p.name for p in (repository / ".asv").rglob("*") if not p.is_dir()]
    assert left == ["good.json"], "and the manifest is gone: such a shard does not count"


def test_too_much_memory_is_named_with_its_remedy(
    engine: Engine, cpu_image: str, repository: Path
) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", cpu_image, "--repository", str(repository)),
        *("--memory-gb", "0.1", "--", "python", "-c", "x = bytearray(10**9); print(len(x))"),
    )
    assert "1000000000" not in done.stdout
    assert done.returncode == 3
    assert "using more than 0.1 GB: give it more with --memory-gb" in done.stderr


def test_an_engine_that_dies_in_mid_run_is_one_line_and_results_stay(
    engine: Engine,
    container_environment: dict[str, str],
    cpu_image: str,
    repository: Path,
    tmp_path: Path,
) -> None:
    mortal = start(container_environment, tmp_path)
    process = running(mortal, repository, cpu_image, HEEDS)
    mortal.process.kill()
    mortal.process.wait(timeout=60)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 3
    warning, message = error.splitlines()
    assert warning.startswith("warning: ") and "warpwatch container clean" in warning
    assert message.startswith("error: the engine stopped answering in mid-run")
    assert (repository / ".asv" / "first").read_text() == "1\n"
    (tmp_path / "again").mkdir()
    again = replace(start(container_environment, tmp_path / "again"), before=engine.before)
    try:
        assert len(again.left_over()) == 1
        assert again.warpwatch("clean").returncode == 0
        assert again.left_over() == []
    finally:
        again.stop()


def test_an_image_that_is_not_there_names_its_target(engine: Engine, repository: Path) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", "localhost/no-such-image:1"),
        *("--repository", str(repository), "--", "true"),
    )
    assert done.returncode == 3
    assert done.stderr == (
        "error: the image localhost/no-such-image:1 is not there: "
        "warpwatch container build --backend cpu\n"
    )


@pytest.mark.parametrize(
    ("backend", "remedy"), [("cuda", "nvidia-ctk cdi generate"), ("rocm", "amdgpu driver")]
)
def test_an_engine_without_the_gpu_names_the_remedy(
    engine: Engine, repository: Path, backend: str, remedy: str
) -> None:
    if Path("/dev/kfd").exists() or Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    done = engine.warpwatch(
        "run", "--backend", backend, "--repository", str(repository), "--", "true"
    )
    assert done.returncode == 3
    assert remedy in done.stderr and done.stderr.count("\n") == 1


def test_an_image_of_another_architecture_is_refused(
    container_environment: dict[str, str], engine: Engine, repository: Path
) -> None:
    other = "arm64" if platform.machine() == "x86_64" else "amd64"
    tag = f"localhost/warpwatch-test:{other}"
    container = buildah(container_environment, "from", "scratch")
    buildah(container_environment, "config", "--arch", other, container)
    buildah(container_environment, "commit", "--quiet", "--rm", container, tag)
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--image", tag),
        *("--repository", str(repository), "--", "true"),
    )
    buildah(container_environment, "rmi", tag)
    assert done.returncode == 3
    assert f"is built for {other}, the engine runs" in done.stderr


@pytest.fixture
def small_disk(container_environment: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], check=True, timeout=120
    )
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=120)


def test_a_full_disk_is_told_before_anything_is_measured(
    engine: Engine, repository: Path, small_disk: Path
) -> None:
    done = engine.warpwatch(
        *("run", "--backend", "cpu", "--repository", str(repository)),
        *("--results", str(small_disk), "--", "true"),
    )
    assert done.returncode == 3
    assert "GB free" in done.stderr and "--results on another disk" in done.stderr


@pytest.mark.parametrize("heeds", [True, False], ids=["it fails", "it goes on regardless"])
def test_a_disk_that_fills_in_mid_run_is_told_and_results_stay(
    engine: Engine,
    cpu_image: str,
    repository: Path,
    small_disk: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    heeds: bool,
) -> None:
    """A real file system that is really full; only the free space asked for at first is less."""
    monkeypatch.setattr(containers, "NEEDED_FREE_GB", 0.01)
    monkeypatch.setenv("DOCKER_HOST", engine.environment["DOCKER_HOST"])
    after = "exit 1" if heeds else "sleep 100"
    script = f"cd /src/.asv; echo 1 > first; head -c 200M /dev/zero > big || {after}"
    arguments = ["container", "run", "--backend", "cpu", "--image", cpu_image]
    arguments += ["--repository", str(repository), "--results", str(small_disk)]
    assert main([*arguments, "--", "sh", "-c", script]) == 3
    error = capfd.readouterr().err.splitlines()[-1]
    assert error.startswith(f"error: {small_disk} is full: free some space and run it again")
    assert (small_disk / "first").read_text() == "1\n"
    assert engine.left_over() == []


def test_a_described_gpu_is_handed_over(
    container_environment: dict[str, str], engine: Engine, cpu_image: str, repository: Path
) -> None:
    """A CDI description made up for the test; podman itself carries out the printed command."""
    kind = "nvidia.com/gpu"
    folder = Path("/etc/cdi")
    if folder.exists() and any(folder.iterdir()):
        pytest.skip("this machine describes devices of its own")
    node = {"path": "/dev/made-up-gpu", "hostPath": "/dev/null", "type": "c", "major": 1}
    edits = {"env": ["MADE_UP_GPU=1"], "deviceNodes": [{**node, "minor": 3}]}
    text = {"cdiVersion": "0.5.0", "kind": kind, "devices": [{"name": "all"}]}
    text["devices"][0]["containerEdits"] = edits
    look = "echo $MADE_UP_GPU; ls /dev/made-up-gpu; id -u; grep CapEff /proc/self/status"
    folder.mkdir(exist_ok=True)
    description = folder / "warpwatch-test.json"
    try:
        description.write_text(json.dumps(text))
        printed = engine.warpwatch(
            *("run", "--backend", "cuda", "--image", cpu_image, "--print", "podman"),
            *("--repository", str(repository), "--", "sh", "-c", look),
        )
        assert printed.returncode == 0, printed.stderr
        assert f"--device {kind}=all" in printed.stdout
        (repository / ".asv").chmod(0o777)
        done = subprocess.run(
            printed.stdout,
            shell=True,
            env=container_environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
    finally:
        description.unlink()
        folder.rmdir()
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "/dev/made-up-gpu", "10001", "CapEff:", "0" * 16]


def test_podman_is_known_by_its_answer(engine: Engine) -> None:
    """It names no folder of CDI descriptions: `gpu_access` goes by the name of its builder."""
    said = docker.DockerClient(base_url=engine.environment["DOCKER_HOST"]).info()
    assert "BuildahVersion" in said and not said.get("CDISpecDirs")

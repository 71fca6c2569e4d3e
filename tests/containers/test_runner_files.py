"""What is installed on runners: the clock command of root's, and values for the cluster."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from warpwatch.sandbox import images

FOLDER = images.root() / "docker" / "runner"


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """The script with its two absolute places moved, and an nvidia-smi that writes down calls."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n')
    tool.chmod(0o755)
    text = (FOLDER / "clock-hook.sh").read_text()
    moved = re.sub(r"^PATH=.*$", f"PATH={tmp_path}:/usr/bin:/bin", text, flags=re.MULTILINE)
    moved = moved.replace("/etc/warpwatch/", f"{tmp_path}/")
    script = tmp_path / "hook.sh"
    script.write_text(moved)
    return script


def calls(hook: Path, *arguments: str, clock: str | None) -> tuple[int, list[str]]:
    if clock is not None:
        (hook.parent / "clock-mhz").write_text(clock)
    environment = {"PATH": "/nowhere", "CLOCK": "9999", "WARPWATCH_CLOCK_FILE": "/etc/passwd"}
    done = subprocess.run(
        ["/bin/sh", str(hook), *arguments], env=environment, capture_output=True, timeout=900
    )
    log = hook.parent / "calls"
    return done.returncode, log.read_text().splitlines() if log.exists() else []


def test_the_clock_is_reset_before_it_is_locked(hook: Path) -> None:
    expected = ["--reset-gpu-clocks", "--lock-gpu-clocks=1395,1395"]
    assert calls(hook, "lock", clock="1395\n") == (0, expected)


def test_the_end_of_a_job_resets(hook: Path) -> None:
    assert calls(hook, "reset", clock="1395\n") == (0, ["--reset-gpu-clocks"])


def test_without_a_clock_of_root_s_nothing_is_locked(hook: Path) -> None:
    assert calls(hook, "lock", clock=None) == (0, ["--reset-gpu-clocks"])


@pytest.mark.parametrize("clock", ["", "1395; reboot", "$(reboot)", "-1"])
def test_what_is_no_clock_is_refused(hook: Path, clock: str) -> None:
    assert calls(hook, "lock", clock=clock) == (2, ["--reset-gpu-clocks"])


@pytest.mark.parametrize("arguments", [[], ["unlock"], ["lock;reboot"]])
def test_only_two_words_are_known(hook: Path, arguments: list[str]) -> None:
    assert calls(hook, *arguments, clock="1395") == (2, [])


def test_a_machine_without_nvidia_s_tool_loses_no_job(hook: Path) -> None:
    """GitHub ends a job whose start hook fails: on AMD every one would."""
    (hook.parent / "nvidia-smi").unlink()
    assert calls(hook, "lock", clock="1395") == (0, [])


def test_only_the_gpus_that_root_named_are_touched(hook: Path) -> None:
    gpus = "GPU-1234,GPU-5678"
    (hook.parent / "gpus").write_text(f"{gpus}\n")
    expected = [f"--id={gpus} --reset-gpu-clocks", f"--id={gpus} --lock-gpu-clocks=1395,1395"]
    assert calls(hook, "lock", clock="1395") == (0, expected)
    for wrong in ("", "0; reboot", "--help", "$(reboot)"):
        (hook.parent / "calls").unlink(missing_ok=True)
        (hook.parent / "gpus").write_text(wrong)
        assert calls(hook, "lock", clock="1395") == (2, [])


def test_nothing_in_the_harness_sets_a_clock() -> None:
    words = re.compile(r"lock-gpu-clocks|-lgc\b|nvmlDeviceSetGpuLockedClocks|--setperfdeterminism")
    sources = [
        path
        for folder in ("benchmarks", "kernels", "warpwatch", ".github")
        for path in (images.root() / folder).rglob("*")
        if path.suffix in (".py", ".yml", ".sh")
    ]
    assert len(sources) > 50
    assert not [path for path in sources if words.search(path.read_text())]


@pytest.mark.parametrize(
    ("backend", "resource", "gpu"),
    [("cuda", "nvidia.com/gpu", "@/engine/gpu"), ("rocm", "amd.com/gpu", "@/dev/dri")],
)
def test_a_scale_set_holds_one_gpu_and_no_token(backend: str, resource: str, gpu: str) -> None:
    """The chart's own schema cannot be had offline: the fields relied on are checked here."""
    text = (FOLDER / f"values-{backend}.yaml").read_text()
    values = yaml.safe_load(text)
    assert values["runnerScaleSetName"] == images.get(backend).runner[-1]
    assert isinstance(values["githubConfigSecret"], str), "the name of a secret, not its content"
    assert values["minRunners"] == 0
    spec = values["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    (runner,), (engine,) = spec["containers"], spec["initContainers"]
    assert runner["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "privileged" not in runner["securityContext"]
    # A container that is not privileged sees the nodes of its own GPU only.
    holders = [c for c in (runner, engine) if resource in c["resources"]["limits"]]
    assert holders == [{"@/engine/gpu": engine, "@/dev/dri": runner}[gpu]]
    assert holders[0]["resources"]["limits"][resource] == 1
    address = values["githubConfigUrl"]
    assert address.count("/") == 3, "an organisation's: a repository has no runner groups"
    assert runner["image"].endswith("/warpwatch-runner:latest"), "GitHub's own lacks make and venv"
    given = {one["name"]: one["value"] for one in runner["env"]}
    assert given["WARPWATCH_GPU"] == gpu, "else every pod of a node times GPU 0"
    assert given["BUILDER"] == "none"
    (script,) = engine["args"]
    assert f"podman tag REGISTRY/warpwatch:{backend} {images.get(backend).tag}\n" in script
    assert f"service --time 0 {given['DOCKER_HOST']} " in script
    # A sidecar that is ready before the runner starts, and ends after it.
    assert engine["restartPolicy"] == "Always"
    assert engine["startupProbe"]["exec"]["command"] == ["test", "-e", "/engine/ready"]
    assert all({"name": "cdi", "mountPath": "/etc/cdi", "readOnly": True} in c["volumeMounts"]
               for c in (runner, engine)), "the look-up is made where the harness runs"  # fmt: skip
    mounted = {m["name"] for c in (runner, engine) for m in c["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


@dataclass(frozen=True)
class Pod:
    """The engine of a pod: its script with its folder moved, and podman without a registry."""

    folder: Path
    environment: dict[str, str]

    def start(self, backend: str, **values: str) -> subprocess.Popen[str]:
        text = (FOLDER / f"values-{backend}.yaml").read_text()
        (engine,) = yaml.safe_load(text)["template"]["spec"]["initContainers"]
        (script,) = engine["args"]
        return subprocess.Popen(
            [*engine["command"], script.replace("/engine/", f"{self.folder}/")],
            env=self.environment | values,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def ready(self) -> bool:
        return (self.folder / "ready").exists()


@pytest.fixture
def pod(tmp_path: Path, container_environment: dict[str, str]) -> Pod:
    folder, programs = tmp_path / "e", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    podman = programs / "podman"
    podman.write_text(f"""#!/bin/sh
case "$1" in
pull) [ ! -e {tmp_path}/no-registry ] ;;
tag) ;;
*) exec {shutil.which("podman")} "$@" ;;
esac
""")
    podman.chmod(0o755)
    path = f"{programs}{os.pathsep}{container_environment['PATH']}"
    return Pod(folder, container_environment | {"PATH": path})


@pytest.mark.container
def test_a_pod_s_engine_is_ready_only_once_the_runner_may_use_it(pod: Pod) -> None:
    """Also where a restarted one finds what the last one left."""
    (pod.folder / "ready").touch()
    (pod.folder / "engine.sock").touch()
    engine = pod.start("cuda", NVIDIA_VISIBLE_DEVICES="GPU-1234")
    try:
        deadline = time.monotonic() + 60
        while not (pod.ready() and (pod.folder / "engine.sock").is_socket()):
            assert engine.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        assert (pod.folder / "engine.sock").stat().st_uid == 1001
        assert (pod.folder / "gpu").read_text() == "GPU-1234\n"
        call = ["curl", "--silent", "--fail", "--unix-socket", str(pod.folder / "engine.sock")]
        done = subprocess.run([*call, "http://engine/_ping"], capture_output=True, timeout=60)
        assert done.stdout == b"OK", done.stderr
    finally:
        os.killpg(engine.pid, signal.SIGTERM)
        engine.communicate(timeout=60)


@pytest.mark.container
@pytest.mark.parametrize("named", ["", "all", "void", "none"])
def test_a_pod_without_a_gpu_of_its_own_takes_no_job(pod: Pod, named: str) -> None:
    engine = pod.start("cuda", NVIDIA_VISIBLE_DEVICES=named)
    said, _ = engine.communicate(timeout=60)
    assert engine.returncode == 1 and f"expected a GPU by its UUID, got '{named}'" in said
    assert not pod.ready()


@pytest.mark.container
@pytest.mark.parametrize("backend", ["cuda", "rocm"])
def test_a_pod_whose_image_cannot_be_pulled_takes_no_job(pod: Pod, backend: str) -> None:
    (pod.folder.parent / "no-registry").touch()
    engine = pod.start(backend, NVIDIA_VISIBLE_DEVICES="GPU-1234")
    engine.communicate(timeout=60)
    assert engine.returncode != 0 and not pod.ready()


def test_the_runner_s_image_has_what_the_jobs_call() -> None:
    text = (FOLDER / "runner.Dockerfile").read_text()
    assert {"git", "make", "python3", "python3-venv"} <= set(text.split())
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1001", "as in the values' socket"


@pytest.mark.parametrize(("version", "code"), [("3, 11", 0), ("99, 0", 1)])
def test_a_base_with_an_older_python_makes_no_image(version: str, code: int) -> None:
    (line,) = re.findall(r"python3 -c '(.*)'$", (FOLDER / "runner.Dockerfile").read_text(), re.M)
    assert "(3, 11)" in line
    command = [sys.executable, "-c", line.replace("3, 11", version)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert ("Warpwatch needs Python" in done.stderr) == bool(code)


def test_the_controller_is_installed_before_the_runners_that_it_makes() -> None:
    """Without it the runners' chart is installed, and no runner ever comes."""
    guide = (images.root() / "docs" / "guides" / "gpu-runner.md").read_text(encoding="utf-8")
    charts = re.findall(r"oci://\S+-charts/(\S+)", guide)
    assert charts == ["gha-runner-scale-set-controller", "gha-runner-scale-set"]

"""What is installed on runners: the clock command of root's, and values for the cluster."""

from __future__ import annotations

import re
import subprocess
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
    ("backend", "resource"), [("cuda", "nvidia.com/gpu"), ("rocm", "amd.com/gpu")]
)
def test_a_scale_set_holds_one_gpu_and_no_token(backend: str, resource: str) -> None:
    """The chart's own schema cannot be had offline: the fields relied on are checked here."""
    text = (FOLDER / f"values-{backend}.yaml").read_text()
    values = yaml.safe_load(text)
    assert values["runnerScaleSetName"] == images.get(backend).runner[-1]
    assert isinstance(values["githubConfigSecret"], str), "the name of a secret, not its content"
    assert values["minRunners"] == 0
    spec = values["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    runner, engine = spec["containers"]
    assert runner["securityContext"]["capabilities"]["drop"] == ["ALL"]
    assert "privileged" not in runner["securityContext"]
    assert engine["resources"]["limits"][resource] == 1
    address = values["githubConfigUrl"]
    assert address.count("/") == 3, "an organisation's: a repository has no runner groups"
    assert runner["image"].endswith("/warpwatch-runner:latest"), "GitHub's own lacks make and venv"
    given = {one["name"]: one["value"] for one in runner["env"]}
    assert given["WARPWATCH_GPU"] == "@/engine/gpu", "else every pod of a node times GPU 0"
    assert given["BUILDER"] == "none"
    (line,) = engine["args"]
    assert "> /engine/gpu;" in line
    assert f"podman tag REGISTRY/warpwatch:{backend} {images.get(backend).tag};" in line
    assert "chown 1001 /engine/engine.sock" in line, "podman's own mode lets nobody else connect"
    assert line.endswith(runner["env"][0]["value"])
    assert all({"name": "cdi", "mountPath": "/etc/cdi", "readOnly": True} in c["volumeMounts"]
               for c in (runner, engine)), "the look-up is made where the harness runs"  # fmt: skip
    mounted = {m["name"] for c in (runner, engine) for m in c["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def test_the_runner_s_image_has_what_the_jobs_call() -> None:
    text = (FOLDER / "runner.Dockerfile").read_text()
    assert {"git", "make", "python3", "python3-venv"} <= set(text.split())
    assert re.findall(r"^USER (\S+)", text, re.MULTILINE)[-1] == "1001", "as in the values' socket"

"""Times the one-line action from a push to its verdict: ``python -m tools.harness.first_verdict``.

It runs the steps of ``action.yml`` on two cores, as a runner has them: a fresh checkout, an empty
environment, no cache of pip or of a compiler. The repository has 20 workloads, each for 4 targets.
The pushed commit launches one kernel twice, which the verdict has to say. The second push finds the
environment in the cache. Let nothing else run meanwhile. How long GitHub takes to find a runner, to
install Python and to send the cache is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tools.root import ROOT

FIRST_S, CACHED_S = 240.0, 120.0
TARGETS = ("sm_80", "sm_90", "gfx90a", "gfx942")
PACKAGE = ROOT / "examples" / "demo" / "package" / "demokernels"
CALLS = {
    "matmul": "{t}[{m},{k}] {t}[{k},{n}]",
    "linear": "{t}[{m},{k}] {t}[{k},{n}] {t}[{n}]",
    "logits": "{t}[{m},{k}] {t}[{k},{n}]",
    "gated_mlp": "{t}[{m},{k}] {t}[{k},{n}] {t}[{k},{n}]",
    "rms_norm": "{t}[{m},{n}] {t}[{n}]",
    "attention": "{t}[1,{m},8,64] {t}[1,{m},8,64] {t}[1,{m},8,64]",
}
SHAPES = ({"m": 4096, "n": 4096, "k": 2048}, {"m": 2048, "n": 1024, "k": 1024})
DTYPES = ("bf16", "fp16")


@dataclass(frozen=True)
class Asked:
    """What a repository measures: its targets, and the shapes of its workloads."""

    targets: tuple[str, ...] = TARGETS
    shapes: tuple[dict[str, int], ...] = SHAPES


# Nothing of this machine's caches: of its settings only the way to the network.
_KEPT = re.compile(
    r"PATH|LANG|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|WARPWATCH_CPU_INDEX|PIP_\w+|(?:https?|no)_proxy",
    re.IGNORECASE,
)
_LAUNCH = re.compile(r"^    square_sum_kernel\[.*$", re.MULTILINE)


@dataclass
class Run:
    """What one push took, step by step."""

    verdict: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True)
class Machine:
    """A runner: its folders are new for each push, but for what a cache brings back."""

    folder: Path
    action: Path
    origin: Path

    @property
    def environment(self) -> Path:
        return self.folder / "environment"

    def push(self, base: str, head: str, restored: Path | None = None) -> Run:
        """Run the action's steps in their order."""
        run = Run()
        for name in ("home", "temp", "workspace", "environment"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        (self.folder / "home").mkdir()
        (self.folder / "temp").mkdir()
        clone = ["git", "clone", "--quiet", self.origin.as_uri(), str(self.folder / "workspace")]
        self._timed(run, "checkout", clone, self.folder)
        checkout = ["git", "checkout", "--quiet", head]
        self._timed(run, "checkout", checkout, self.folder / "workspace")
        for step in steps():
            if step == "install" and restored is not None:
                unpack = ["tar", "--extract", "--file", str(restored), "--directory"]
                self._timed(run, "restore", [*unpack, str(self.folder)], self.folder)
                continue
            command = [str(self.action / "docker" / "action.sh"), step]
            self._timed(run, step, command, self.folder / "workspace", BASE=base, HEAD=head)
        outputs = (self.folder / "temp" / "output").read_text(encoding="utf-8")
        run.verdict = outputs.rpartition("verdict=")[2].strip()
        return run

    def _timed(self, run: Run, name: str, command: list[str], place: Path, **more: str) -> None:
        temp = self.folder / "temp"
        given = {
            **{key: value for key, value in os.environ.items() if _KEPT.fullmatch(key)},
            "HOME": str(self.folder / "home"),
            "PIP_CACHE_DIR": str(temp / "pip"),
            "RUNNER_TEMP": str(temp),
            "TMPDIR": str(temp),
            "GITHUB_OUTPUT": str(temp / "output"),
            "GITHUB_STEP_SUMMARY": str(temp / "summary"),
            "WARPWATCH_ENVIRONMENT": str(self.environment),
            "WARPWATCH_NVIDIA_NODE": "/nowhere",  # as on a runner without a GPU
        }
        started = time.perf_counter()
        done = subprocess.run(command, cwd=place, env=given | more, capture_output=True, text=True)
        run.seconds[name] = run.seconds.get(name, 0.0) + time.perf_counter() - started
        # A regression is the lane's exit code 1, and a verdict all the same.
        if done.returncode not in ((0, 1, 3) if name == "lane" else (0,)):
            sys.exit(f"{name} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def main() -> int:
    """0 within both limits, 1 over one, 2 where a verdict is not the right one."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.first_verdict", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--workloads", type=int, default=20, metavar="N")
    parser.add_argument("--cores", type=int, default=2, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with tempfile.TemporaryDirectory(prefix="warpwatch-action-") as folder:
        place = Path(folder)
        commits = repository(place / "origin", args.workloads)
        machine = Machine(place, harness(place / "action"), place / "origin")
        first = machine.push(commits[0], commits[1])
        fetched = (path for path in (place / "temp" / "pip").rglob("*") if path.is_file())
        downloaded = sum(path.stat().st_size for path in fetched)
        cache = packed(machine.environment, place / "cache.tar")
        cached = machine.push(commits[1], commits[2], cache)
        figures = {
            "first_s": round(first.total_s, 1),
            "first_steps_s": {name: round(s, 1) for name, s in first.seconds.items()},
            "cached_s": round(cached.total_s, 1),
            "cached_steps_s": {name: round(s, 1) for name, s in cached.seconds.items()},
            "downloaded_mb": round(downloaded / 1e6),
            "cache_mb": round(cache.stat().st_size / 1e6),
            "verdicts": [first.verdict, cached.verdict],
            "workloads": args.workloads,
            "targets": len(TARGETS),
            "cores": len(os.sched_getaffinity(0)),
        }
    print(json.dumps(figures, indent=1) if args.json else told(figures, first, cached))
    if figures["verdicts"] != ["failure", "success"]:
        print("error: expected the verdicts failure and success", file=sys.stderr)
        return 2
    return int(first.total_s > FIRST_S or cached.total_s > CACHED_S)


def told(figures: dict[str, object], first: Run, cached: Run) -> str:
    """Both figures in words."""
    lines = [f"{figures['workloads']} workloads, {len(TARGETS)} targets, {figures['cores']} cores"]
    for name, run, limit in (("first", first, FIRST_S), ("cached", cached, CACHED_S)):
        steps = ", ".join(f"{step} {seconds:.1f}" for step, seconds in run.seconds.items())
        lines.append(f"{name}: {run.total_s:.1f} s of {limit:.0f} ({steps}): {run.verdict}")
    lines.append(f"{figures['downloaded_mb']} MB fetched, {figures['cache_mb']} MB in the cache")
    return "\n".join(lines)


def steps() -> list[str]:
    """The steps that the action runs, as it has them."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    return re.findall(r"^ +run: \$GITHUB_ACTION_PATH/docker/action\.sh (\w+)$", text, re.MULTILINE)


def harness(folder: Path) -> Path:
    """The action as GitHub brings it: the files of the newest commit."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "--extract", "--directory", str(folder)], check=True, input=archive)
    return folder


def packed(environment: Path, path: Path) -> Path:
    """The environment as actions/cache keeps it: by zstd, where that is there."""
    way = "--zstd" if shutil.which("zstd") else "--gzip"
    command = ["tar", "--create", way, "--file", str(path), "--directory", str(environment.parent)]
    subprocess.run([*command, environment.name], check=True)
    return path


def repository(folder: Path, workloads: int, what: Asked = Asked()) -> list[str]:
    """A team's repository of three commits: as it was, with a launch too many, and mended."""
    shutil.copytree(PACKAGE, folder / "demokernels", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "warpwatch.toml").write_text(configuration(workloads, what), encoding="utf-8")
    module = folder / "demokernels" / "norm.py"
    good = module.read_text(encoding="utf-8")
    _git(folder, "init", "--quiet")
    commits = []
    for text in (good, _LAUNCH.sub(r"\g<0>\n\g<0>", good), good):
        module.write_text(text, encoding="utf-8")
        _git(folder, "add", "--all")
        _git(folder, "commit", "--quiet", "--message", "norm")
        commits.append(_git(folder, "rev-parse", "HEAD"))
    return commits


def configuration(workloads: int, what: Asked) -> str:
    """``warpwatch.toml`` with so many workloads, each for every target."""
    asked = [(call, dtype, shape) for shape in what.shapes for dtype in DTYPES for call in CALLS]
    if workloads > len(asked):
        sys.exit(f"--workloads: expected {len(asked)} at most, got {workloads}")
    lines = [f"targets = {json.dumps(what.targets)}", "", "[package]"]
    lines += ['name = "demokernels"', 'path = "demokernels"']
    # The one that gets worse is the first.
    asked.sort(key=lambda one: one[0] != "rms_norm")
    for call, dtype, shape in asked[:workloads]:
        args = CALLS[call].format(t=dtype, **shape)
        lines += ["", "[[workload]]", f'name = "{call}-{dtype}-{shape["n"]}"']
        lines += [f'call = "demokernels:{call}"', f'args = "{args}"']
    return "\n".join([*lines, ""])


def _git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=team", "-c", "user.email=team@localhost"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())

"""All that must be seen on a GPU before a release, step by step, in the time there is.

    python -m tools.evidence --out FOLDER --seconds 560 [--skip-done] [--only NAME ...]

No step is begun whose estimate is longer than what is left; one that is still at work when the
time is up is ended, and what it had printed is kept. All of it lies in FOLDER and in one archive,
which is written again every 15 s. With ``--skip-done`` what finished there before, of the same
sources and under the same Triton, is not run again: a failed step is told as failed. ``--list``
says what there is. With several cards the first one times and the others check.

Exits 0 when all went well, 1 after a step that did not, 3 when one did not come to its end, 2
without a GPU or after a mistake.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tools.evidence import peers_of_all
from tools.evidence.runner import Run, Step
from tools.evidence.steps import STEPS
from tools.root import ROOT
from warpwatch.config import isolation
from warpwatch.session.stopping import Stopped, stopped_by_sigterm

SOURCES = ("kernels", "benchmarks", "warpwatch", "tools", "tests", "examples")


def sources() -> str:
    """A hash of what is run, edits and all: a copy without git has one as well."""
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
                found.update(path.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def made_by() -> dict[str, str]:
    import torch
    import triton

    try:
        commit = isolation.commit_hash("HEAD")
    except (ValueError, OSError):
        commit = "unknown"  # a copy without git
    return {
        "sources": sources(),
        "commit": commit,
        "triton": triton.__version__,
        "torch": torch.__version__,
    }


def describe_machine(folder: Path) -> None:
    if (tool := shutil.which("nvidia-smi")) is not None:
        with (folder / "machine.txt").open("w") as out:
            subprocess.run([tool], stdout=out, stderr=subprocess.STDOUT, timeout=60, check=False)


def chosen(names: Sequence[str], steps: Sequence[Step]) -> list[Step]:
    """Those of ``names`` (what several begin with stands for all of them), in the order of the
    list; all without any. ``ValueError`` names what there is."""
    for name in names:
        if not any(step.name.startswith(name) for step in steps):
            known = " ".join(step.name for step in steps)
            raise ValueError(f"--only {name}: expected names, or beginnings, out of {known}")
    return [
        step
        for step in steps
        if not names
        or step.name in names
        or any(
            step.name.startswith(name) and name not in {one.name for one in steps} for name in names
        )
    ]


def find_cards(asked: str | None) -> list[str]:
    """Values of ``CUDA_VISIBLE_DEVICES``; ``RuntimeError`` without a GPU."""
    from tools.kernels.sanitized_paths import find_devices

    found = find_devices()
    if asked is None:
        return found
    named = asked.split(",")
    if unknown := [one for one in named if one not in found]:
        raise ValueError(f"--cards {unknown[0]}: expected some of {','.join(found)}")
    return named


def main(given: Sequence[str] | None = None, steps: Sequence[Step] = STEPS) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.evidence",
        description="all that must be seen on a GPU before a release, in the time there is",
    )
    parser.add_argument("--out", type=Path, help="a folder that keeps all of it")
    parser.add_argument("--archive", type=Path, help="by default all.tgz in that folder")
    parser.add_argument("--seconds", type=float, default=3600.0, help="for all of it")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="or its beginning")
    parser.add_argument("--cards", help="of those there are, such as 0,1; the first one times")
    parser.add_argument("--skip-done", action="store_true", help="what finished in the folder")
    parser.add_argument("--list", action="store_true", help="the steps, and nothing else")
    args = parser.parse_args(given)
    try:
        wanted = chosen(args.only, steps)
        if args.list:
            print("\n".join(listed(wanted)))
            return 0
        if args.out is None or args.seconds <= 0:
            raise ValueError("expected --out FOLDER and --seconds above 0")
        until = time.monotonic() + args.seconds
        cards = find_cards(args.cards)
        args.out.mkdir(parents=True, exist_ok=True)
        folder = args.out.resolve()
        archive = (args.archive or folder / "all.tgz").resolve()
        archive.parent.mkdir(parents=True, exist_ok=True)
        describe_machine(folder)
    except (ValueError, RuntimeError, OSError, subprocess.SubprocessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    run = Run(wanted, cards, folder, archive, until, made_by(), say)
    say(f"cards {','.join(cards)}, {args.seconds:.0f} s: {run.made_by}")
    if args.skip_done:
        run.skip_done()
    try:
        with stopped_by_sigterm():
            code = run.go()
    except KeyboardInterrupt as stop:
        code = 143 if isinstance(stop, Stopped) else 130
    for line in peers_of_all.lines(folder):
        say(line)
    return code


def say(text: str) -> None:
    print(text, flush=True)


def listed(steps: Sequence[Step]) -> list[str]:
    found = [
        f"{step.name:<26}{step.seconds:>5.0f} s  "
        f"{'timed' if step.timed else 'alone' if step.share == 1 else 'shared':<7}{step.shows}\n"
        f"{'':<42}python {' '.join(step.command)}"
        for step in steps
    ]
    total = sum(step.seconds * step.share for step in steps)
    return [*found, f"{len(steps)} steps, {total / 60:.0f} minutes of one card"]


if __name__ == "__main__":
    sys.exit(main())

"""Draws timelines of Hopper's kernels for the documents, from the kernels that run.

    python -m tools.gluon.timelines [--check] [NAME ...]

The simulator runs a small call of each kernel, and the first program's beginning becomes
docs/images/kernels/NAME.svg. It needs no GPU and takes some seconds. ``--check`` writes nothing
and exits 1 where a picture is not what the kernel does today.
"""

from __future__ import annotations

import argparse
import os
import sys

from tools.root import ROOT

FOLDER = ROOT / "docs" / "images" / "kernels"


def picture_of(name: str) -> str:
    """Run the call of a scene and draw its kernel.

    Args:
        name: The scene's.

    Returns:
        The text of an SVG file.

    Raises:
        RuntimeError: The simulator found a fault, or the kernel was not launched.
    """
    from kernels.runtime import targets
    from tests.gluon import interpreter  # it teaches the simulator our own words
    from tools.gluon.timelines.drawing import picture
    from tools.gluon.timelines.labels import NamedLog, boxes
    from tools.gluon.timelines.scenes import SCENES
    from warpwatch.simulator.session import launch
    from warpwatch.simulator.session.check import check
    from warpwatch.simulator.session.host import Card

    assert interpreter
    scene = SCENES[name]
    targets._multiprocessors.cache_clear()
    logs: list[NamedLog] = []
    plain, launch.Log = launch.Log, NamedLog  # type: ignore[attr-defined]
    try:
        found = check(scene.call, [0], Card(multiprocessors=scene.processors), logs=logs)  # type: ignore[arg-type]
    finally:
        launch.Log = plain  # type: ignore[attr-defined]
    if found.reports:
        raise RuntimeError("\n".join(found.reports[0].lines()))
    log = next((one for one in logs if one.launch == scene.kernel), None)
    if log is None:
        raise RuntimeError(f"{name}: expected {scene.kernel}, got {[one.launch for one in logs]}")
    return picture(f"{scene.kernel}: the first program begins", boxes(log, scene), scene.steps)


def prepare() -> None:
    """Modules ask for the GPU when they are imported, and Triton for its interpreter."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.pop("TRITON_INTERPRET", None)
    from warpwatch.simulator.session.host import Card, shown

    with shown(Card()):
        import kernels.public  # noqa: F401


def main() -> int:
    from tools.gluon.timelines.scenes import SCENES

    parser = argparse.ArgumentParser(prog="python -m tools.gluon.timelines")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCENES)}")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    args = parser.parse_args()
    if unknown := [one for one in args.names if one not in SCENES]:
        parser.error(f"expected names of {', '.join(SCENES)}, got {', '.join(unknown)}")
    prepare()
    stale = []
    for name in args.names or SCENES:
        path, text = FOLDER / f"{name}.svg", picture_of(name)
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not args.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print(f"{len(stale)} {'differ' if args.check else 'written'}: {', '.join(stale) or 'none'}")
    return int(args.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

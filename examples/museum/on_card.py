"""``python -m examples.museum.on_card``: times both sides of exhibits on a Hopper card.

The instrument says without a card which side is slower. This says whether a card agrees. It takes
the exhibits of ``sm_90`` that the installed Triton replays. Each call that it times allocates and
launches as the exhibit does; it is held back until all of it is queued.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from warpwatch.instruments.gpu import latency
from warpwatch.instruments.gpu.card.interface import Gpu

from .case import Case, Edit, edited
from .cases import CASES

TARGET = "sm_90"
_SIDES = ("before", "after")


@dataclass(frozen=True)
class Timed:
    """Microseconds of both sides, infinite where a side does not run, and the ratio of the later to
    the earlier with the ends that both intervals allow."""

    name: str
    before_us: float
    after_us: float
    low: float
    high: float

    @property
    def line(self) -> str:
        ratio = self.after_us / self.before_us
        return (
            f"{self.name:<32} {self.before_us:9.2f} us -> {self.after_us:9.2f} us  "
            f"{ratio:.3f} ({self.low:.3f} to {self.high:.3f})"
        )


def exhibits(names: Iterable[str]) -> list[Case]:
    """The exhibits that one Triton and a Hopper card can run.

    Args:
        names: Of those wanted, none for all.

    Returns:
        Them, in the museum's order.

    Raises:
        ValueError: A name is of none of them.
    """
    known = [one for one in CASES if TARGET in one.targets and one.tritons is None]
    wanted = list(names) or [one.name for one in known]
    if unknown := set(wanted) - {one.name for one in known}:
        raise ValueError(
            f"NAME: expected an exhibit of {TARGET} under one Triton, such as {known[0].name}, "
            f"got {', '.join(sorted(unknown))}"
        )
    return [one for one in known if one.name in wanted]


def timed(
    gpu: Gpu, name: str, calls: Mapping[str, Callable[[], object]], limits: latency.Limits
) -> Timed:
    """Time both sides of one exhibit, interleaved.

    Args:
        gpu: The card.
        name: Of the exhibit.
        calls: ``before`` and ``after``.
        limits: When to stop.

    Returns:
        Both times and their ratio.
    """
    runs = {}
    for side, call in calls.items():
        try:
            call()
            runs[side] = call
        except Exception as error:  # whatever a compiler, a launcher or an exhibit raises
            print(f"  {name}: {side} does not run: {type(error).__name__}", file=sys.stderr)
    found = latency.interleave(gpu, runs, "cold", limits)
    before, after = (found[side].us if side in found else math.inf for side in _SIDES)
    if len(found) < len(_SIDES):
        return Timed(name, before, after, math.nan, math.nan)
    (low, high), (after_low, after_high) = (found[side].interval_us for side in _SIDES)
    return Timed(name, before, after, after_low / high, after_high / low)


def loaded(case: Case, edits: tuple[Edit, ...], path: Path) -> Callable[[], object]:
    """The call of one side, from a file of its own: Triton reads the source of a kernel there."""
    path.write_text(edited(case.file, edits), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    call: Callable[[], object] = module.call
    return call


def main() -> int:
    """Exit 0 where every exhibit was timed, 2 for an error."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.museum.on_card", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="exhibits; default: all of sm_90")
    parser.add_argument("--seconds", type=float, default=1.0, help="for a side of an exhibit")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the times to FILE, too")
    args = parser.parse_args()
    try:
        wanted = exhibits(args.names)
    except ValueError as error:
        parser.error(str(error))
    # Only the card needs a driver.
    from warpwatch.instruments.gpu.card.through_torch import TorchGpu

    gpu, found = TorchGpu(), []
    with TemporaryDirectory(prefix="museum-") as folder:
        for number, case in enumerate(wanted):
            calls = {
                side: loaded(case, edits, Path(folder, f"exhibit_{number}_{side}.py"))
                for side, edits in zip(_SIDES, (case.before, case.after), strict=True)
            }
            found.append(timed(gpu, case.name, calls, latency.Limits(seconds=args.seconds)))
            print(found[-1].line, flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What tile sizes do to a kernel: a table and a plot, on any machine.

    python examples/block_size_experiment.py
    python examples/block_size_experiment.py attention-fp16-B4-S4096-H8-D64 --target gfx942

With a GPU of the target in the machine every configuration that the compilers let pass is timed;
without one, the experiment shows what they say of it: spills, shared memory, the bound. The plot is
an SVG file.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from warpwatch.commands.gpu import tune
from warpwatch.commands.gpu.tune import Row
from warpwatch.config import targets
from warpwatch.config.package import workloads as load_workloads

WIDTH, BAR, GAP, LABEL = 900, 18, 8, 430


def measure_of(row: Row) -> tuple[float, str]:
    """The number a bar shows: time where there is one, else the bound, else shared memory."""
    for value, unit in ((row.us, "us"), (row.bound_us, "us bound"), (row.shared_bytes, "B shared")):
        if not math.isnan(value):
            return value, unit
    return 0.0, ""


def short(row: Row) -> str:
    """The configuration without what every row repeats."""
    inner = row.config.partition("(")[2].rstrip(")")
    return inner.replace("block_", "").replace("num_", "")


def plot(rows: Sequence[Row], title: str) -> str:
    """One bar a configuration; a condemned one is a line of text that says why."""
    longest = max((measure_of(row)[0] for row in rows if not row.condemned), default=0.0) or 1.0
    height = 40 + len(rows) * (BAR + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<text x="8" y="22" font-size="15">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        top = 36 + number * (BAR + GAP)
        name = short(row) + (" (chosen now)" if row.own else "")
        parts.append(f'<text x="8" y="{top + 13}">{escape(name)}</text>')
        if row.condemned:
            parts.append(
                f'<text x="{LABEL}" y="{top + 13}" fill="#a33">{escape(row.condemned[:70])}</text>'
            )
            continue
        value, unit = measure_of(row)
        length = (WIDTH - LABEL - 130) * value / longest
        fill = "#1b6" if row.own else "#47a"
        parts += [
            f'<rect x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" fill="{fill}"/>',
            f'<text x="{LABEL + length + 6:.1f}" y="{top + 13}">{value:.6g} {unit}</text>',
        ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", nargs="?", default="attention-fp16-B4-S2048-H8-D64")
    parser.add_argument("--target", help="default: the GPU that is here, else sm_90")
    parser.add_argument("--limit", type=int, default=12, help="configurations (default 12)")
    parser.add_argument("--plot", default="block_sizes.svg", help="default block_sizes.svg")
    args = parser.parse_args(argv)
    try:
        workload = load_workloads().get(args.workload)
        target = targets.get(args.target or (tune.here() or targets.get("sm_90")).name)
        found = tune.sweep(
            workload, target, args.limit, 0, lambda line: print(line, file=sys.stderr)
        )
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    rows = found.rows()
    print("\n".join(tune.lines(rows, target)))
    Path(args.plot).write_text(plot(rows, f"{workload.name} on {target.name}"), encoding="utf-8")
    print(f"plot: {args.plot}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

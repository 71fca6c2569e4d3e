"""``lint``: tuned configurations that fall off a cliff on another target or under another Triton.

The same table is compiled twice. What is named compiles, keeps its registers, its matrix
instructions and its pipelining on the first side, and not on the second.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from warpwatch.commands import extras
from warpwatch.config import isolation, targets, tritons, tuned
from warpwatch.instruments.compiled.diff import cliffs, sides
from warpwatch.instruments.compiled.measure import jobs

from . import inspect

MOST = 256  # configurations of one table


@dataclass(frozen=True)
class _Side:
    """What the table is compiled for, and under which Triton."""

    target: str
    triton: str

    @property
    def label(self) -> str:
        return f"{self.target}, triton {self.triton}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "configurations",
        metavar="CONFIGS",
        help='a JSON file with "call", "args", "parameter" and "configurations", or with '
        "configurations only; or package.module:TABLE with dictionaries or triton.Config",
    )
    parser.add_argument(
        "--call", metavar="NAME", help="package.module:function that takes a configuration"
    )
    parser.add_argument(
        "--args", metavar="ARGS", help="its other arguments: 'bf16[4096,4096] causal=True'"
    )
    parser.add_argument(
        "--parameter",
        metavar="NAME",
        help="its argument that takes a configuration as a dictionary (default: each value is an "
        "argument of its own)",
    )
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; the first is the one that the table was tuned for",
    )
    parser.add_argument(
        "--triton",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="compile under two versions instead of for several targets",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    """Exit 0 where no configuration fell, 1 where some did, 3 where none could be compared."""
    table, mistakes = tuned.read(args.configurations, isolation.subprocess_environment())
    table = table.with_call(args.call, args.args, args.parameter)
    mistakes += table.mistakes()
    if len(table.configurations) > MOST:
        mistakes.append(f"configurations: expected at most {MOST}, got {len(table.configurations)}")
    pairs, wrong = _pairs(args)
    mistakes += wrong
    if mistakes:
        raise ValueError("\n".join(f"{args.configurations}: {one}" for one in mistakes))
    done = _compiled(table, [side for pair in pairs for side in pair])
    found, unknown = [], []
    for old, new in pairs:
        fell, odd = cliffs.fallen(new.target, done[old], done[new])
        found += fell
        unknown += [f"{new.label}: {one}" for one in odd]
    compared = len(pairs) * len(table.configurations) - len(unknown)
    if args.json:
        content = {
            "command": "lint",
            "pairs": [[asdict(side) for side in pair] for pair in pairs],
            "configurations": {name: dict(one) for name, one in table.configurations.items()},
            "compared": compared,
            "fallen": [asdict(one) for one in found],
            "not_compared": unknown,
        }
        inspect.write(args.json, content)
    if args.json != "-":
        for old, new in pairs:
            print(f"{old.label} -> {new.label}")
            for one in found:
                if one.target == new.target:
                    print(f"  {one.name}: {_written(table.configurations[one.name])}")
                    print("\n".join(f"    {reason}" for reason in one.reasons))
        print("\n".join(unknown) + "\n" * bool(unknown), end="")
        print(f"{len(found)} of {compared} configurations fell off a cliff")
    if not compared:
        return 3
    return int(bool(found))


def _pairs(args: argparse.Namespace) -> tuple[list[tuple[_Side, _Side]], list[str]]:
    """The first side with each of the others, and every mistake in how they are named."""
    mistakes = []
    names = list(dict.fromkeys(args.target or ()))
    for name in names:
        try:
            targets.get(name)
        except ValueError as error:
            mistakes.append(f"--target: {error}")
    if args.triton:
        for version in args.triton:
            if not sides.is_version(version):
                mistakes.append(f"--triton: expected a version such as 3.9.0, got {version!r}")
            elif mistake := tritons.mistake(version):
                mistakes.append(f"--triton: {mistake}")
        if args.triton[0] == args.triton[1]:
            mistakes.append(f"--triton: expected two versions, got {args.triton[0]} twice")
        if not names:
            mistakes.append("--target: expected at least one, such as --target sm_90")
        old, new = args.triton
        return [(_Side(name, old), _Side(name, new)) for name in names], mistakes
    if len(names) < 2:
        mistakes.append(
            "expected two targets, such as --target sm_90 --target sm_100, or --triton OLD NEW"
        )
        return [], mistakes
    extras.require("torch", "triton")
    here = importlib.metadata.version("triton")
    first, *others = names
    return [(_Side(first, here), _Side(name, here)) for name in others], mistakes


def _compiled(
    table: tuned.Table, wanted: Sequence[_Side]
) -> Mapping[_Side, Mapping[str, jobs.Result]]:
    """The results of each side, by the name of a configuration."""
    found: dict[_Side, dict[str, jobs.Result]] = {}
    by_triton: dict[str, list[_Side]] = {}
    for side in dict.fromkeys(wanted):
        by_triton.setdefault(side.triton, []).append(side)
    for version, of_it in by_triton.items():
        asked: dict[jobs.Job, list[tuple[_Side, str]]] = {}
        for side in of_it:
            for name in table.configurations:
                job = jobs.Job(table.call, side.target, table.arguments(name))
                asked.setdefault(job, []).append((side, name))  # two may be equal
        with sides.opened(version) as opened:
            extras.require("torch")
            print(f"compiling {len(asked)} with {opened.label}", file=sys.stderr)
            for result in inspect.in_order(jobs.run(list(asked), opened.environment), list(asked)):
                for side, name in asked[result.job]:
                    found.setdefault(side, {})[name] = result
    return found


def _written(configuration: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in configuration.items())

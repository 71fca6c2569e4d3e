"""``upgrade``: what another Triton version or another assembler does to the kernels, by kernel."""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpwatch import project
from warpwatch.commands import extras
from warpwatch.config import arguments, targets, tritons
from warpwatch.config.package import chosen_targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled.diff import assemblers, comparison, sides, upgrade_page
from warpwatch.instruments.compiled.measure import jobs

from . import inspect, tables


@dataclass(frozen=True)
class _Side:
    """A Triton, and the assembler that takes the place of its own."""

    triton: str
    assembler: assemblers.Assembler | None = None

    @property
    def label(self) -> str:
        return f"triton {self.triton}" if self.assembler is None else self.assembler.label


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "new", nargs="?", metavar="NEW", help="Triton version to go to, such as 3.9.0"
    )
    parser.add_argument(
        "--from",
        dest="old",
        metavar="OLD",
        help="version to come from (default: the installed one)",
    )
    parser.add_argument(
        "--assembler",
        metavar="NAME",
        help="instead of NEW: give one Triton's PTX to this assembler, nvidia-cuda-nvcc==13.0.88, "
        "nvidia-cuda-nvcc-cu12==12.8.93, triton==3.9.0 or the path of a ptxas",
    )
    parser.add_argument(
        "--from-assembler", metavar="NAME", help="to compare it with (default: Triton's own)"
    )
    parser.add_argument("--match", default="", metavar="TEXT", help="only workloads that hold TEXT")
    parser.add_argument(
        "--call",
        metavar="NAME",
        help="package.module:callable of any package, instead of the configured workloads",
    )
    parser.add_argument("--args", default="", metavar="ARGS", help="its arguments, as for inspect")
    parser.add_argument("--backward", action="store_true", help="its backward pass as well")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; default: those of the workloads, of a callable those configured",
    )
    parser.add_argument("--page", metavar="FILE", help="default: .asv/upgrade-OLD-NEW.md")
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    old, new = _sides(args)
    asked = _asked(args, old, new)
    found = []
    started = time.monotonic()
    for one in (old, new):
        with sides.opened(one.triton) as side:
            environment = dict(side.environment)
            if one.assembler is not None:
                both = [other.assembler for other in (old, new) if other.assembler is not None]
                environment |= one.assembler.environment(assemblers.lowest(both))
            print(f"compiling {len(asked)} pairs with {one.label}", file=sys.stderr)
            extras.require("torch")
            found.append(inspect.in_order(jobs.run(asked, environment), asked))
    print(f"done in {time.monotonic() - started:.0f} s", file=sys.stderr)
    compared = comparison.compare(*found)
    said = dict.fromkeys(upgrade_page.notes_of(found[0]))
    notes = [note for note in upgrade_page.notes_of(found[1]) if note not in said]
    unknown = sorted({name for side in found for name in upgrade_page.unknown_of(side)})
    page = Path(args.page or _page(old, new))
    page.parent.mkdir(parents=True, exist_ok=True)
    text = upgrade_page.markdown(
        compared,
        f"Triton {old.triton}" if old.assembler is None else old.label,
        new.triton if new.assembler is None else new.label,
        _command(args, old, new),
        notes=notes,
        unknown=unknown,
    )
    page.write_text(text, encoding="utf-8")
    if args.json:
        content = {"command": "upgrade", "old": _named(old), "new": _named(new)}
        rows = [comparison.document(one) for one in compared]
        inspect.write(args.json, {**content, "compared": rows, "unknown_instructions": unknown})
    if args.json != "-":
        first = f"triton {old.triton}" if old.assembler is None else old.label
        print(f"{first} -> {_named(new)}: {comparison.in_words(compared)}")
        for line in tables.lines([one for one in compared if one.word in ("missing", "regressed")]):
            print(line)
        print(f"page: {page}")
    if unknown:
        print(f"instructions that no reader knows: {', '.join(unknown)}", file=sys.stderr)
    if all(one.word == "nothing" for one in compared):
        return 3
    return int(any(one.word in ("regressed", "missing") for one in compared))


def _sides(args: argparse.Namespace) -> tuple[_Side, _Side]:
    """What is compared: two Tritons, or two assemblers under one of them."""
    if (args.new is None) == (args.assembler is None):
        raise ValueError(
            "expected one of two: a version of Triton such as 3.9.0, or --assembler NAME"
        )
    if args.from_assembler and not args.assembler:
        raise ValueError("--from-assembler: expected --assembler with it")
    before = args.old or importlib.metadata.version("triton")
    for version in filter(None, (before, args.new)):
        if not sides.is_version(version):
            raise ValueError(f"expected a version of Triton such as 3.9.0, got {version!r}")
        if mistake := tritons.mistake(version):
            raise ValueError(mistake)
    if args.assembler:
        names = (args.from_assembler or f"triton=={before}", args.assembler)
        if names[0] == names[1]:
            raise ValueError(f"{names[0]} on both sides: expected another assembler")
        first, second = (_Side(before, assemblers.named(name)) for name in names)
        return first, second
    if before == args.new:
        raise ValueError(f"triton {args.new} is what there is: name another version")
    return _Side(before), _Side(args.new)


def _asked(args: argparse.Namespace, old: _Side, new: _Side) -> list[jobs.Job]:
    """The pairs to compile, those left out that an assembler is not for."""
    arguments.parse_arguments(args.args)
    if args.call:
        names = chosen_targets(args.target)
        found = [jobs.Job(args.call, name, args.args, args.backward) for name in names]
    elif args.args or args.backward:
        raise ValueError("--args and --backward are for a callable: expected --call NAME")
    else:
        pairs = [(workload.name, target) for workload, target in load_workloads().fixed_set()]
        if args.target:
            named = chosen_targets(args.target)
            every = dict.fromkeys(name for name, _ in pairs)
            pairs = [(name, target) for name in every for target in named]
        pairs = [pair for pair in pairs if args.match in pair[0]]
        if not pairs:
            raise ValueError(f"--match: no workload of the fixed set holds {args.match!r}")
        found = [jobs.Job(*pair, is_workload=True) for pair in pairs]
    if old.assembler is None:
        return found
    return _assembled(found, [one.assembler for one in (old, new) if one.assembler is not None])


def _assembled(asked: Sequence[jobs.Job], both: Sequence[assemblers.Assembler]) -> list[jobs.Job]:
    """The jobs whose target both assemblers know; it is said which they do not."""
    lacking = {}
    for name in dict.fromkeys(one.target for one in asked):
        target = targets.get(name)
        if target.backend != "cuda":
            lacking[name] = "its code is not assembled by ptxas"
            continue
        for one in both:
            if not one.knows(target):
                lacking[name] = f"{one.label} does not know it"
    for name, reason in lacking.items():
        print(f"left out {name}: {reason}", file=sys.stderr)
    kept = [one for one in asked if one.target not in lacking]
    if not kept:
        raise ValueError("no target is left that both assemblers know: name others with --target")
    return kept


def _named(side: _Side) -> str:
    return side.triton if side.assembler is None else side.label


def _page(old: _Side, new: _Side) -> Path:
    names = (Path(_named(one)).name.replace("==", "-") for one in (old, new))
    return project.folder() / ".asv" / f"upgrade-{'-'.join(names)}.md"


def _command(args: argparse.Namespace, old: _Side, new: _Side) -> str:
    """The command that writes the page again."""
    words = ["warpwatch upgrade"]
    if new.assembler is None:
        words += [new.triton]
    else:
        words += [f"--assembler {new.label} --from-assembler {_named(old)}"]
    words += [f"--from {old.triton}"]
    words += [f"--match {args.match}"] if args.match else []
    words += [f"--call {args.call}"] if args.call else []
    words += [f"--args '{args.args}'"] if args.args else []
    words += ["--backward"] if args.backward else []
    words += [f"--target {name}" for name in args.target or ()]
    return " ".join(words)

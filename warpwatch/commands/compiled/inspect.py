"""``inspect``: what the compilers make of anyone's Triton code, on machines without a GPU.

The function is called on tensors that pass for GPU tensors, in a process of its own for each
target; every launch is recorded and its machine code read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpwatch import project
from warpwatch.commands import extras
from warpwatch.config import arguments, results_file
from warpwatch.config.package import chosen_targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled.diff import comparison, kept, sides
from warpwatch.instruments.compiled.files import containers, kernels, pairs
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.judge.evidence import compiled as kept_evidence

from . import ranking, tables

SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="package.module:callable, such as fastops:gelu, a workload, or a file with cubins "
        "(.cubin .fatbin .o .so); with --diff and without a name: every workload of the fixed set",
    )
    parser.add_argument(
        "--args",
        default="",
        metavar="ARGS",
        help="a callable's arguments: 'bf16[4096,4096] bf16[4096,4096] causal=True'; none for a "
        "function that makes its own",
    )
    parser.add_argument("--backward", action="store_true", help="run the backward pass as well")
    parser.add_argument(
        "--target",
        action="append",
        metavar="NAME",
        help="may be repeated; default: those configured",
    )
    parser.add_argument(
        "--diff",
        nargs=2,
        metavar=("OLD", "NEW"),
        help="compare two sides, each a commit, '.' for the working tree, or a Triton version, or "
        "else two files; of workloads only that is compiled which no evidence is kept of",
    )
    parser.add_argument(
        "--threads",
        type=int,
        metavar="N",
        help="of a file: the threads of a block, where the file does not state them",
    )
    parser.add_argument(
        "--shared",
        type=int,
        metavar="BYTES",
        help="of a file: the shared memory that a launch adds to what the file states",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=project.results(),
        metavar="DIR",
        help="asv's results; evidence is kept next to them (default: .asv/results)",
    )
    parser.add_argument(
        "--configurations",
        action="store_true",
        help="rank configurations of autotuned kernels by predicted time, or else by their bound",
    )
    parser.add_argument(
        "--code", action="store_true", help="with --diff: show how the code differs"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
    if any(map(containers.is_named, [*args.names, *(args.diff or ())])):
        return _of_files(args)
    if args.threads is not None or args.shared is not None:
        raise ValueError("--threads and --shared are for files with cubins")
    arguments.parse_arguments(args.args)  # its mistakes are the user's, not the targets'
    asked = _asked(args)
    if args.diff:
        return _diff(args, asked)
    with sides.opened(".") as side:
        extras.require("torch", "triton")
        results = in_order(jobs.run(asked, side.environment, one_process_each=True), asked)
        if args.configurations:
            rest = ranking.others(results)
            every = [*results, *in_order(jobs.run(rest, side.environment), rest)]
            if args.json:
                content = {"results": [document(one) for one in every]}
                write(args.json, {"command": "inspect --configurations", **content})
            if args.json != "-":
                print("\n".join(ranking.lines(every)))
            return exit_code(results)
    if args.json:
        write(args.json, {"command": "inspect", "results": [document(one) for one in results]})
    if args.json != "-":
        for name in args.names:
            of_name = [one for one in results if one.job.name == name]
            print("\n".join(([name] if len(args.names) > 1 else []) + tables.table(of_name)))
    return exit_code(results)


def _asked(args: argparse.Namespace) -> list[jobs.Job]:
    """Every name on every target that was requested, or the fixed set with its own targets."""
    chosen = chosen_targets(args.target)
    if not args.names and not args.diff:
        raise ValueError("expected package.module:callable or the name of a workload")
    if not args.names:
        pairs = [(workload.name, target) for workload, target in load_workloads().fixed_set()]
        pairs = [pair for pair in pairs if not args.target or pair[1] in chosen]
        return [jobs.Job(*pair, is_workload=True) for pair in pairs]
    found = []
    for name in args.names:
        is_workload = ":" not in name
        if is_workload:
            try:
                load_workloads().get(name)
            except ValueError as error:
                sides = "" if args.diff else ", and two commits are --diff OLD NEW"
                said = f"{error}; a callable is package.module:callable{sides}"
                raise ValueError(said) from error
            if args.args or args.backward:
                raise ValueError(f"--args and --backward are for callables, not for {name}")
        for target in chosen:
            found.append(
                jobs.Job(name, target, "" if is_workload else args.args, args.backward, is_workload)
            )
    return found


def _of_files(args: argparse.Namespace) -> int:
    """The kernels of files with machine code: what can be said without their launches."""
    wrong = [one for one in (*args.names, *(args.diff or ())) if not containers.is_named(one)]
    if wrong or (args.names and args.diff):
        other = wrong[0] if wrong else args.names[0]
        raise ValueError(
            f"{other!r} next to a file with cubins: expected files only, as in inspect a.cubin or "
            "inspect --diff old.cubin new.cubin"
        )
    if args.args or args.backward or args.configurations:
        raise ValueError("--args, --backward and --configurations are for callables, not for files")
    given = kernels.Given(args.threads, args.shared)
    extras.require("triton")
    sides = {
        name: kernels.of_file(Path(name), given, args.target or ())
        for name in args.diff or args.names
    }
    if args.diff:
        names, aligned = args.diff, pairs.aligned(*(sides[name] for name in args.diff))
        old, new = (kept.Side(*one, 0) for one in zip(names, map(tuple, aligned), strict=True))
        compared = comparison.compare(old.results, new.results)
        _say(args, old, new, compared)
        unknown = any(one.word == "nothing" for one in compared)
        return comparison.exit_code(compared) or (3 if unknown else 0)
    if args.json:
        found = [{"file": name, **document(one)} for name in sides for one in sides[name]]
        write(args.json, {"command": "inspect", "results": found})
    if args.json != "-":
        for name, results in sides.items():
            said = [*tables.table(results), *tables.of_files(results)]
            print("\n".join(([name] if len(sides) > 1 else []) + said))
    return exit_code([one for results in sides.values() for one in results])


def _diff(args: argparse.Namespace, asked: Sequence[jobs.Job]) -> int:
    folder = args.results / kept_evidence.FOLDER
    old, new = kept.compared(
        tuple(args.diff), asked, folder, lambda text: print(text, file=sys.stderr)
    )
    compared = comparison.compare(old.results, new.results)
    _say(args, old, new, compared)
    if all(one.word == "nothing" for one in compared):
        wrong = all(
            one.status == "not applicable" and not one.job.is_workload
            for one in (*old.results, *new.results)
        )
        return 2 if wrong else 3
    return comparison.exit_code(compared)


def _say(
    args: argparse.Namespace,
    old: kept.Side,
    new: kept.Side,
    compared: Sequence[comparison.Compared],
) -> None:
    """A comparison as the user wants it: as text, as JSON, with the code that differs."""
    differences = []
    if args.code:
        for one, other in zip(old.results, new.results, strict=True):
            for kernel, text in comparison.code_differences(one, other, (old.label, new.label)):
                where = {"name": one.job.name, "target": one.job.target, "kernel": kernel}
                differences.append({**where, "diff": text})
    if args.json:
        content = {
            "command": "inspect --diff",
            "sides": [{"label": one.label, "kept": one.kept} for one in (old, new)],
            "compared": [comparison.document(one) for one in compared],
        }
        write(args.json, content | ({"code": differences} if args.code else {}))
    if args.json != "-":
        print(f"{old.label} -> {new.label}: {comparison.in_words(compared)}")
        for line in tables.lines(compared):
            print(line)
        for found in differences:
            print(f"\n{found['name']} {found['target']} {found['kernel']}\n{found['diff']}", end="")


def in_order(results: Any, asked: Sequence[jobs.Job]) -> list[jobs.Result]:
    """Results in the order they were asked for, with progress on standard error."""
    found: dict[jobs.Job, jobs.Result] = {}
    for result in results:
        found[result.job] = result
        if sys.stderr.isatty():
            print(f"\r{len(found)}/{len(asked)}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    return [found[job] for job in asked]


def exit_code(results: Sequence[jobs.Result]) -> int:
    """0 where every target compiled; 2 where the call itself was wrong; 3 where one did not
    compile, or leaves its matrix units idle, or nothing was launched at all."""
    statuses = {one.status for one in results}
    if statuses <= {"not applicable"}:
        return 2
    launches = [launch for one in results for launch in one.evidence.get("launches", [])]
    idle = any(launch.get("plain_products") for launch in launches)
    return 0 if statuses == {"ok"} and any(map(tables.launched, results)) and not idle else 3


def document(result: jobs.Result) -> dict[str, Any]:
    """A result as JSON; listings of code are left to ``--diff --code``."""
    job = result.job
    return {
        "name": job.name,
        "arguments": job.arguments,
        "backward": job.backward,
        "target": job.target,
        # Of an autotuned kernel, where not its recorded one was read: its number from 0.
        **({} if job.configuration is None else {"configuration": job.configuration}),
        "status": result.status,
        "detail": result.detail,
        "values": dict(result.values),
        "evidence": dict(result.evidence),
    }


def write(where: str | None, content: Mapping[str, Any], *, last: bool = True) -> None:
    """A JSON document with its schema version, to a file or, for ``-``, standard output; before
    the ``last``, to a file alone."""
    document = {"schema_version": SCHEMA_VERSION, **content}
    if where == "-" and last:
        print(results_file.as_json(document))
    results_file.write(where, document, last=last)

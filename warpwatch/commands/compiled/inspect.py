"""``inspect``: what the compilers make of anyone's Triton code, on machines without a GPU.

The function is called on tensors that pass for GPU tensors, in a process of its own for each
target; every launch is recorded and its machine code read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from warpwatch import project
from warpwatch.commands import extras
from warpwatch.config import arguments, results_file
from warpwatch.config.package import chosen_targets
from warpwatch.config.package import workloads as load_workloads
from warpwatch.instruments.compiled.diff import comparison, kept, sides
from warpwatch.instruments.compiled.measure import jobs
from warpwatch.judge.evidence import compiled as kept_evidence

from . import ranking

SCHEMA_VERSION = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="package.module:callable, such as fastops:gelu, or a workload; with --diff and "
        "without a name: every workload of the fixed set",
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
        help="compare two sides, each a commit, '.' for the working tree, or a Triton version; of "
        "workloads only that is compiled which no evidence is kept of",
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
        help="rank the configurations of autotuned kernels by their bound, instead of one each",
    )
    parser.add_argument(
        "--code", action="store_true", help="with --diff: show how the code differs"
    )
    parser.add_argument("--json", metavar="FILE", help="write everything to FILE; - is stdout")


def main(args: argparse.Namespace) -> int:
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
            print("\n".join(([name] if len(args.names) > 1 else []) + table(of_name)))
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
                raise ValueError(f"{error}; a callable is package.module:callable") from error
            if args.args or args.backward:
                raise ValueError(f"--args and --backward are for callables, not for {name}")
        for target in chosen:
            found.append(
                jobs.Job(name, target, "" if is_workload else args.args, args.backward, is_workload)
            )
    return found


def _diff(args: argparse.Namespace, asked: Sequence[jobs.Job]) -> int:
    folder = args.results / kept_evidence.FOLDER
    old, new = kept.compared(
        tuple(args.diff), asked, folder, lambda text: print(text, file=sys.stderr)
    )
    compared = comparison.compare(old.results, new.results)
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
            "compared": [asdict(one) for one in compared],
        }
        write(args.json, content | ({"code": differences} if args.code else {}))
    if args.json != "-":
        print(f"{old.label} -> {new.label}: {comparison.in_words(compared)}")
        for line in lines(compared):
            print(line)
        for found in differences:
            print(f"\n{found['name']} {found['target']} {found['kernel']}\n{found['diff']}", end="")
    if all(one.word == "nothing" for one in compared):
        wrong = all(
            one.status == "not applicable" and not one.job.is_workload
            for one in (*old.results, *new.results)
        )
        return 2 if wrong else 3
    return int(any(one.word in ("HURT", "LOST") for one in compared))


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
    compile, or nothing was launched at all."""
    statuses = {one.status for one in results}
    if statuses <= {"not applicable"}:
        return 2
    return 0 if statuses == {"ok"} and any(map(_launched, results)) else 3


def _launched(result: jobs.Result) -> bool:
    return bool(result.evidence.get("launches") or result.evidence.get("torch_ops"))


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


_TENSOR = ("none", "mma", "wgmma", "tcgen05")
_COPIES = ("plain", "async", "TMA")
_HEAD = (
    "target|kernel|grid|warps|regs|spilled|shared|tensor|copies|blocks|bound us|by|tensor %"
    "|predicted us|by"
)


def table(results: Sequence[jobs.Result]) -> list[str]:
    """One row a launch, one for torch's own operations; then remarks, each with its targets."""
    rows: list[Sequence[str]] = [_HEAD.split("|")]
    remarks: dict[str, list[str]] = {}
    for result in results:
        target = result.job.target
        said = [] if result.status == "ok" else [f"{result.status}: {result.detail}"]
        if result.status == "ok" and not _launched(result):
            said.append("nothing was launched, neither a Triton kernel nor an operation of torch")
        launches = result.evidence.get("launches", [])
        predicted = [*result.evidence.get("predicted", []), *[None] * len(launches)]
        for launch, one in zip(launches, predicted, strict=False):
            rows.append((target, *_launch_row(target, launch), *_predicted(one)))
            said += [f"{launch['kernel']}: {text}" for text in _remarks(launch)]
        said += result.evidence.get("notes", [])
        for op in result.evidence.get("torch_ops", []):
            copied = f", {op['copied_bytes']:,} bytes copied" if op["copied_bytes"] else ""
            rows.append((target, f"torch {op['name']}{copied}"))
        for text in dict.fromkeys(said):
            remarks.setdefault(text, []).append(target)
    notes = [f"{' '.join(found)}: {text}" for text, found in remarks.items()]
    return [*columns(rows), *notes] if len(rows) > 1 else notes


def _launch_row(target: str, launch: Mapping[str, Any]) -> tuple[str, ...]:
    multiplies = launch["multiplies"]
    flavour = _TENSOR[launch["tensor_core_level"]]
    if target.startswith("gfx") and flavour == "mma":
        flavour = "mfma"
    bound = launch["bound"]
    return (
        launch["kernel"][:32],
        "x".join(str(one) for one in launch["grid"]),
        str(launch["num_warps"]),
        str(launch["registers"]),
        str(launch["spilled_bytes"]),
        str(launch["shared_bytes"]),
        flavour if multiplies else "-",
        _COPIES[launch["async_copy_level"]] if multiplies else "-",
        f"{launch['occupancy']['blocks']} ({launch['occupancy']['limited_by']})",
        f"{bound['us']:.1f}",
        bound["limited_by"],
        f"{bound['tensor_utilization']:.0f}" if multiplies else "-",
    )


def _predicted(one: Mapping[str, Any] | None) -> tuple[str, str]:
    if one is None:
        return "-", "-"
    return f"{one['us']:.1f}" + ("" if one["sure"] else "?"), one["limited_by"]


def _remarks(launch: Mapping[str, Any]) -> list[str]:
    found = [*launch["advisories"], *launch["bound"]["notes"]]
    repeated = launch["bound"]["repeated_products"]
    if repeated >= 1.05:
        found.append(f"every product is computed {repeated:.2f} times: warps share rows")
    if launch["unknown_instructions"]:
        found.append(f"unknown instructions {' '.join(launch['unknown_instructions'])}")
    return found


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as text in columns; a short row runs over the rest."""
    count = len(rows[0])
    widths = [max(len(row[i]) for row in rows if len(row) == count) for i in range(count)]
    return [
        "  ".join(
            cell.ljust(width) if i + 1 < len(row) else cell
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ).rstrip()
        for row in rows
    ]


def lines(compared: Sequence[comparison.Compared]) -> list[str]:
    """A comparison as text: one line for each that is not the same, its causes indented."""
    found = []
    said: dict[tuple[str, str], str] = {}  # a backward holds the kernels of its forward again
    for one in compared:
        if one.word == "same":
            continue
        moved = ", ".join(str(change) for change in (*one.verdicts, *one.evidence))
        found.append(f"{one.word:10s} {one.target:7s} {one.name}  {moved}".rstrip())
        again: dict[str, int] = {}
        for cause in one.causes:
            first = said.setdefault((one.target, cause), one.name)
            if first == one.name:
                found.append(f"           {cause}")
            else:
                again[first] = again.get(first, 0) + 1
        found += [f"           {count} causes as of {name}" for name, count in again.items()]
    return found

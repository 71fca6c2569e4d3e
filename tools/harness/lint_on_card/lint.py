"""Lints tables of other projects for a card to time."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tools.harness.lint_on_card import tuned_kernels
from tools.harness.lint_on_card.timing import written
from warpwatch.commands.compiled import inspect
from warpwatch.config import tuned
from warpwatch.instruments.compiled.diff import cliffs, sides
from warpwatch.instruments.compiled.measure import jobs

TARGET = "sm_90"


def prepared(cases: Sequence[Sequence[str]], triton: str) -> dict[str, Any]:
    """Lint tables.

    Args:
        cases: Of each the kernel, the file with it, the table, the target that it was tuned for and
            the shape.
        triton: The version to compile with.

    Returns:
        The job, as JSON has it.
    """
    sources = {kernel: extracted(Path(source), kernel) for kernel, source, *_ in cases}
    found = []
    with tempfile.TemporaryDirectory(prefix="tuned-") as folder:
        files = written(sources, Path(folder))
        for kernel, _, table, tuned_for, shape in cases:
            for numbers in shapes(Path(table).name, kernel, shape):
                one = linted(kernel, files[kernel], Path(table), tuned_for, numbers, triton)
                print(
                    f"{kernel} {one['table']} {numbers}: {len(one['fell'])} fell, "
                    f"{one['compared']} compared",
                    file=sys.stderr,
                )
                found.append(one)
    return {"triton": triton, "target": TARGET, "sources": sources, "cases": found}


def extracted(path: Path, kernel: str) -> str:
    """A kernel of a library and what it calls of the same file, as a module of its own."""
    text = path.read_text(encoding="utf-8")
    functions = {
        node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)
    }
    wanted, seen = [tuned_kernels.KERNELS[kernel]], {}
    while wanted:
        name = wanted.pop()
        if name not in functions:
            raise ValueError(f"{path}: expected a function {name}, which it has not")
        seen[name] = functions[name]
        called = {node.id for node in ast.walk(functions[name]) if isinstance(node, ast.Name)}
        wanted += [one for one in called & functions.keys() if one not in seen]
    lines = text.splitlines()
    parts = []
    for node in sorted(seen.values(), key=lambda one: one.lineno):
        body = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        parts.append(f"@triton.jit\n{body}")
    return "import triton\nimport triton.language as tl\n\n\n" + "\n\n\n".join(parts) + "\n"


def shapes(table: str, kernel: str, said: str) -> list[dict[str, int]]:
    """The shapes of a case: what the name of the table says, and what is said, at each M."""
    numbers = {name: int(value) for name, value in re.findall(r"\b([ENK])=(\d+)", table)}
    if kernel == "fused_moe":
        numbers["N"] *= 2  # the name says the columns after gate and up have become one
    rows = []
    for name, values in re.findall(r"(\w+)=([\d,]+)", said):
        if name == "M":
            rows = [int(one) for one in values.split(",")]
        else:
            numbers[name] = int(values)
    if not rows:
        raise ValueError(f"SHAPE: expected M, such as 'M=64,2048 K=4096', got {said!r}")
    return [{"M": one, **numbers} for one in rows]


def linted(
    kernel: str, source: str, table: Path, tuned_for: str, shape: Mapping[str, int], triton: str
) -> dict[str, Any]:
    """One table at one shape: what fell, and the others, the fastest by prediction first."""
    read, mistakes = tuned.read(str(table), {})
    if mistakes:
        raise ValueError("; ".join(f"{table}: {one}" for one in mistakes))
    # Many numbers of rows share one configuration.
    distinct = {
        json.dumps(config, sort_keys=True): name for name, config in read.configurations.items()
    }
    configurations = {name: json.loads(config) for config, name in distinct.items()}
    words = " ".join(f"{name}={value}" for name, value in shape.items())
    full = tuned.Table(
        configurations,
        call=f"tools.harness.lint_on_card.tuned_kernels:{kernel}",
        args=f"{shlex.quote(f'source={source!r}')} {words}",
        parameter="config",
    )
    asked = {
        jobs.Job(full.call, target, full.arguments(name)): (target, name)
        for target in (tuned_for, TARGET)
        for name in configurations
    }
    done: dict[str, dict[str, Any]] = {tuned_for: {}, TARGET: {}}
    with sides.opened(triton) as side:
        for result in inspect.in_order(jobs.run(list(asked), side.environment), list(asked)):
            target, name = asked[result.job]
            done[target][name] = result
    fell, unknown = cliffs.fallen(TARGET, done[tuned_for], done[TARGET])
    for line in unknown:
        print(f"  {line}", file=sys.stderr)

    def described(name: str) -> dict[str, Any]:
        us = cliffs.predicted_us(done[TARGET][name])
        return {"name": name, "config": configurations[name], "predicted_us": round(us, 2)}

    named = {one.name for one in fell}
    good = [
        described(name)
        for name, one in done[TARGET].items()
        if one.status == "ok" and name not in named
    ]
    good.sort(key=lambda one: float(one["predicted_us"]))
    return {
        "kernel": kernel,
        "table": table.name,
        "tuned_for": tuned_for,
        "shape": dict(shape),
        "compared": len(configurations) - len(unknown),
        "fell": [{**described(one.name), "reasons": list(one.reasons)} for one in fell],
        "others": good,
    }

"""Inspects public operators of Triton libraries, unmodified, for an NVIDIA and an AMD target.

    python -m tools.harness.third_party_operators [--page FILE] [--table FILE] [--only TEXT]

Installs the libraries from the package index into a folder under .asv/ and writes the table. Not
part of `make test`: it compiles more than a thousand kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.root import ROOT
from warpwatch.config import isolation
from warpwatch.instruments.compiled.measure import jobs

TABLE = Path(__file__).with_name("third_party.toml")
TARGETS = ("sm_90", "gfx942")


@dataclass(frozen=True)
class Library:
    """What is installed of a library, the environment each target needs, and its operators: label,
    function, arguments, and ``forward`` where it has no gradient."""

    name: str
    packages: list[str]
    operators: list[list[str]]
    environment: dict[str, dict[str, str]] = field(default_factory=dict)

    def jobs(self, only: str) -> list[tuple[str, jobs.Job]]:
        """(label, job) in the order of the table."""
        return [
            (label, jobs.Job(name, target, arguments, backward))
            for label, name, arguments, *forward in self.operators
            for backward in ((False,) if forward else (False, True))
            for target in TARGETS
            if only in label
        ]


def libraries(table: Path = TABLE) -> list[Library]:
    """Those of the table."""
    found = tomllib.loads(table.read_text(encoding="utf-8"))
    return [Library(**one) for one in found["library"]]


def install(folder: Path, packages: Sequence[str]) -> None:
    """The libraries and nothing they depend on: torch and Triton are those of this Python."""
    stamp = folder / f"installed-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    if stamp.exists():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*command, "--target", str(folder), *packages], check=True, timeout=1800)
    stamp.touch()


def measure(
    known: Sequence[Library], only: str
) -> tuple[list[tuple[str, str, jobs.Job]], dict[jobs.Job, jobs.Result]]:
    """(library, label, job) in the order of the table, and what came of each job."""
    folder = ROOT / ".asv" / "third-party"
    install(folder, [package for library in known for package in library.packages])
    rows = [(one.name, label, job) for one in known for label, job in one.jobs(only)]
    results: dict[jobs.Job, jobs.Result] = {}
    for library in known:
        of_library = [job for _, job in library.jobs(only)]
        for target in TARGETS if library.environment else ("",):
            environment = isolation.subprocess_environment()
            environment["PYTHONPATH"] += os.pathsep + str(folder)
            environment |= library.environment.get(target, {})
            asked = [job for job in of_library if target in ("", job.target)]
            for one in jobs.run(asked, environment):
                results[one.job] = one
                print(f"{len(results)}/{len(rows)} {one.job.name} {one.status}", file=sys.stderr)
    return rows, results


def cell(result: jobs.Result) -> str:
    """What one target makes of one operator, in a few words."""
    if result.status != "ok":
        return f"{result.status}: {result.detail}".replace("|", "\\|")
    launches = result.evidence["launches"]
    values = result.values
    parts = [f"{len(launches)} launches, bound {values['bound_us'] or 0:.1f} us"]
    operations = len(result.evidence["torch_ops"])
    if operations:
        parts.append(f"{operations} torch operations")
    for key, words in (("copied_bytes", "bytes copied"), ("spilled_bytes", "bytes spilled")):
        if values.get(key):
            parts.append(f"{values[key]:,.0f} {words}")
    if values.get("advisories"):
        parts.append(f"{values['advisories']:.0f} advisories")
    return ", ".join(parts)


def page(
    known: Sequence[Library],
    rows: Sequence[tuple[str, str, jobs.Job]],
    results: dict[jobs.Job, jobs.Result],
) -> str:
    """The document: counts by library, each call, and what was refused."""
    found: dict[tuple[str, str], list[jobs.Job]] = {}
    for owner, label, job in rows:
        found.setdefault((owner, label), []).append(job)
    whole = [one for one, asked in found.items() if all(results[j].status == "ok" for j in asked)]
    read = sum(one.status == "ok" for one in results.values())
    unknown = {
        mnemonic
        for one in results.values()
        for launch in one.evidence.get("launches", [])
        for mnemonic in launch["unknown_instructions"]
    }
    text = [
        "# Other people's kernels, inspected unmodified",
        "",
        f"`inspect` was given {len(found)} public operators of {len(known)} libraries, unmodified,",
        f"without a GPU. The targets are {' and '.join(TARGETS)}.",
        f"**{len(whole) / len(found):.0%} of the operators were read in full**: every pass, on",
        f"every target. Of single calls {read} of {len(results)} were read.",
        f"Instructions that no reader knows: {', '.join(sorted(unknown)) or 'none'}.",
        "",
        "| library | version | operators | read in full |",
        "|---|---|---:|---:|",
    ]
    for library in known:
        of_it = [owner for owner, _ in found if owner == library.name]
        good = sum(owner == library.name for owner, _ in whole)
        text.append(f"| {library.name} | `{library.packages[0]}` | {len(of_it)} | {good} |")
    text += [
        "",
        "`python -m tools.harness.third_party_operators` writes this page. One call by hand:",
        "",
        "```console",
        "$ warpwatch inspect fla.ops.linear_attn:chunk_linear_attn --backward --target sm_90 \\",
        "    --args 'bf16[2,2048,8,64] bf16[2,2048,8,64] bf16[2,2048,8,64]'",
        "```",
        "",
        "*Bound* sums up, over launches, the time that the busiest unit needs at least.",
        "An autotuned kernel is read in the first configuration that fits. So the numbers",
        "describe the code, and do not rank the libraries. *Backward* includes the forward pass.",
    ]
    for library in known:
        text += ["", f"## {library.name}", "", f"| operator | pass | {' | '.join(TARGETS)} |"]
        text.append("|---|---|" + "---|" * len(TARGETS))
        for (owner, label), asked in found.items():
            if owner != library.name:
                continue
            for backward in sorted({job.backward for job in asked}):
                cells = [cell(results[job]) for job in asked if job.backward == backward]
                which = "backward" if backward else "forward"
                text.append(f"| {label} | {which} | {' | '.join(cells)} |")
    return "\n".join([*text, ""])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.harness.third_party_operators",
        description="inspect public operators of Triton libraries, unmodified",
    )
    parser.add_argument("--page", default=str(ROOT / "docs" / "results" / "third-party.md"))
    parser.add_argument("--table", type=Path, default=TABLE, help="which libraries and operators")
    parser.add_argument("--only", default="", metavar="TEXT", help="operators that hold TEXT")
    args = parser.parse_args()
    started = time.monotonic()
    known = libraries(args.table)
    rows, results = measure(known, args.only)
    Path(args.page).write_text(page(known, rows, results), encoding="utf-8")
    print(f"{args.page}: {len(results)} calls in {time.monotonic() - started:.0f} s")
    return 0 if any(one.status == "ok" for one in results.values()) else 3


if __name__ == "__main__":
    sys.exit(main())

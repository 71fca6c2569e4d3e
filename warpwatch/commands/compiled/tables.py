"""Results as tables, and comparisons as lines: of launches, and of kernels in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpwatch.instruments.compiled.diff import comparison
from warpwatch.instruments.compiled.measure import jobs

_TENSOR = ("none", "mma", "wgmma", "tcgen05")
_COPIES = ("plain", "async", "TMA")
_WIDEST = 48
_NAMED = 4
_HEAD = (
    "target|kernel|grid|warps|regs|spilled|shared|tensor|copies|blocks|bound us|by|tensor %"
    "|predicted us|by"
)


def table(results: Sequence[jobs.Result]) -> list[str]:
    """One row a launch, one for torch's own operations; then remarks, each with its targets. What
    a kernel in a file lacks, its launch, is empty."""
    rows: list[Sequence[str]] = [_HEAD.split("|")]
    remarks: dict[str, list[str]] = {}
    for result in results:
        target = result.job.target
        said = [] if result.status == "ok" else [f"{result.status}: {result.detail}"]
        if result.status == "ok" and not launched(result):
            said.append("nothing was launched, neither a Triton kernel nor an operation of torch")
        launches = result.evidence.get("launches", [])
        predicted = [*result.evidence.get("predicted", []), *[None] * len(launches)]
        for launch, one in zip(launches, predicted, strict=False):
            rows.append((target, *_launch_row(target, launch), *_predicted(launch, one)))
            said += [f"{launch['kernel']}: {text}" for text in _remarks(launch)]
        said += result.evidence.get("notes", [])
        for op in result.evidence.get("torch_ops", []):
            copied = f", {op['copied_bytes']:,} bytes copied" if op["copied_bytes"] else ""
            rows.append((target, f"torch {op['name']}{copied}"))
        for text in dict.fromkeys(said):
            remarks.setdefault(text, []).append(target)
    notes = [f"{' '.join(found)}: {text}" for text, found in remarks.items()]
    if any(row[-2].endswith("*") for row in rows if len(row) == len(rows[0])):
        notes.append("* predicted, not checked against a machine")
    return [*columns(rows), *notes] if len(rows) > 1 else notes


def _launch_row(target: str, launch: Mapping[str, Any]) -> tuple[str, ...]:
    multiplies = launch["multiplies"]
    flavour = _TENSOR[launch["tensor_core_level"]]
    if target.startswith("gfx") and flavour == "mma":
        flavour = "wmma" if target.startswith("gfx12") else "mfma"
    level, occupancy, bound = launch["async_copy_level"], launch["occupancy"], launch["bound"]
    copies = multiplies or (bound is None and level)
    known = (
        launch["kernel"][:_WIDEST],
        "x".join(str(one) for one in launch["grid"] or ()),
        _said(launch["num_warps"]),
        str(launch["registers"]),
        str(launch["spilled_bytes"]),
        _said(launch["shared_bytes"]),
        flavour if multiplies else "-",
        _COPIES[level] if copies else "-",
    )
    blocks = "" if occupancy is None else f"{occupancy['blocks']} ({occupancy['limited_by']})"
    if bound is None:
        return (*known, blocks, "", "", "")
    busy = f"{bound['tensor_utilization']:.0f}" if multiplies else "-"
    return (*known, blocks, f"{bound['us']:.1f}", bound["limited_by"], busy)


def _predicted(launch: Mapping[str, Any], one: Mapping[str, Any] | None) -> tuple[str, str]:
    if one is None:
        return ("-", "-") if launch["bound"] else ("", "")
    marks = ("" if one["sure"] else "?") + ("" if one.get("checked", True) else "*")
    return f"{one['us']:.1f}{marks}", one["limited_by"]


def _said(value: int | None) -> str:
    """Empty where only a launch says it."""
    return "" if value is None else str(value)


def _remarks(launch: Mapping[str, Any]) -> list[str]:
    bound = launch["bound"] or {"notes": [], "repeated_products": 1}
    found = [*launch["advisories"], *bound["notes"]]
    repeated = bound["repeated_products"]
    if repeated >= 1.05:
        found.append(f"every product is computed {repeated:.2f} times: warps share rows")
    if launch["unknown_instructions"]:
        found.append(f"unknown instructions {' '.join(launch['unknown_instructions'])}")
    return found


def of_files(results: Sequence[jobs.Result]) -> list[str]:
    """The remarks on kernels of a file, each with the kernels; then why columns are empty."""
    found: dict[str, list[str]] = {}
    for result in results:
        for text in result.evidence.get("remarks", []):
            names = found.setdefault(text, [])
            names += [one["kernel"] for one in result.evidence["launches"]]
    said = []
    for text, names in found.items():
        distinct = list(dict.fromkeys(names))
        more = f" and {len(distinct) - _NAMED} more" if len(distinct) > _NAMED else ""
        said.append(f"{', '.join(distinct[:_NAMED])}{more}: {text}")
    return [*said, "a file holds no launch, so grid, bound and use of tensor cores are not known"]


def launched(result: jobs.Result) -> bool:
    return bool(result.evidence.get("launches") or result.evidence.get("torch_ops"))


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
        found.append(f"{one.word:12s} {one.target:7s} {one.name}  {moved}".rstrip())
        again: dict[str, int] = {}
        for cause in one.causes:
            first = said.setdefault((one.target, cause), one.name)
            if first == one.name:
                found.append(f"             {cause}")
            else:
                again[first] = again.get(first, 0) + 1
        found += [f"             {count} causes as of {name}" for name, count in again.items()]
    return found

"""Keys of configuration files, and metrics, as the code reads them."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
import tomllib
from dataclasses import MISSING, Field, fields

from tools.docs.figures.markdown import table
from tools.root import ROOT
from warpwatch.config import metrics
from warpwatch.config.calls import Call
from warpwatch.config.package import Package, Sets
from warpwatch.config.targets import KNOWN
from warpwatch.devices.datasheet import load, names
from warpwatch.judge.findings.triage import Acceptance
from warpwatch.judge.model import thresholds
from warpwatch.judge.model.core import MEANINGS, Verdict
from warpwatch.judge.pairs.judgement import Judgement
from warpwatch.judge.pairs.run_verdict import Judged, RunVerdict
from warpwatch.report.words import SHAPES

_ATTRIBUTE = re.compile(r"^    (\w+): (.*?)(?=^    \w+: |\Z)", re.MULTILINE | re.DOTALL)


def _attributes(owner: type) -> dict[str, str]:
    """What the section ``Attributes`` of a docstring says of each."""
    text = inspect.cleandoc(owner.__doc__ or "").partition("Attributes:\n")[2]
    return {name: _plain(said) for name, said in _ATTRIBUTE.findall(text)}


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split()).replace("|", "\\|")


def _default(field: Field[object]) -> str:
    if field.default is MISSING and field.default_factory is MISSING:
        return "required"
    if field.default_factory is not MISSING:
        return "none"
    value = field.default
    if isinstance(value, tuple):
        return "`[]`" if not value else f"`{list(value)}`"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f'`"{value}"`' if isinstance(
        value, str
    ) else f"`{value}`"  # fmt: skip


def _keys(owner: type, *, without: tuple[str, ...] = ()) -> str:
    said = _attributes(owner)
    rows = [
        (f"`{field.name}`", _default(field), said[field.name])
        for field in fields(owner)
        if field.name not in without
    ]
    return table(["key", "default", "meaning"], rows)


def package() -> str:
    """Write the keys of ``[package]``.

    Returns:
        A table.
    """
    return _keys(Package, without=("sets", "targets", "calls"))


def workload() -> str:
    """Write the keys of ``[[workload]]``.

    Returns:
        A table.
    """
    return _keys(Call)


def sets() -> str:
    """Write the keys of ``[sets]``.

    Returns:
        A table.
    """
    return _keys(Sets)


def targets() -> str:
    """Write the targets.

    Returns:
        A table.
    """
    rows = [
        (
            f"`{one.name}`",
            "yes" if one.by_default else "where named",
            ".".join(map(str, max(one.since, one.multiplies_since))),
            str(one.warp_size),
            load(one.device).title,
        )
        for one in KNOWN
    ]
    head = ["target", "compiled for", "from Triton", "threads a warp", "datasheet of its bound"]
    return table(head, rows, right=[3])


def metric_table(which: tuple[metrics.Metric, ...]) -> str:
    """Write metrics.

    Args:
        which: The metrics.

    Returns:
        A table.
    """
    rows = [
        (
            f"`{one.name}`",
            one.unit,
            f"{one.better} is better" if one.better else "-",
            one.role,
            "yes" if one.exact else "no",
            _plain(one.meaning),
        )
        for one in which
    ]
    return table(["metric", "unit", "direction", "role", "exact", "meaning"], rows)


def compiled_metrics() -> str:
    """Write the metrics that need no GPU.

    Returns:
        A table.
    """
    return metric_table(metrics.COMPILED)


def measured_metrics() -> str:
    """Write the metrics that are read on a GPU.

    Returns:
        A table.
    """
    return metric_table(metrics.MEASURED)


def threshold_values() -> str:
    """Write the thresholds that Warpwatch brings along.

    Returns:
        A table.
    """
    path = ROOT / "warpwatch" / "judge" / "model" / "thresholds.toml"
    limits = thresholds.load(path)
    named = tomllib.loads(path.read_text(encoding="utf-8"))["metric"]
    rows = [
        (f"`{name}`", f"{one.relative:g}", f"{one.absolute:g}", f"{one.resolve:g}")
        for name, one in (("default", limits.default), *((key, limits.of(key)) for key in named))
    ]
    head = ["metric", "`relative`", "`absolute`", "`resolve`"]
    return table(head, rows, right=[1, 2, 3])


def acceptance_keys() -> str:
    """Write the keys of an accepted finding.

    Returns:
        Their names, separated by commas.
    """
    return ", ".join(f"`{field.name}`" for field in fields(Acceptance))


def device_titles() -> str:
    """Name the GPUs with a datasheet.

    Returns:
        Their titles, in lines of a page.
    """
    return textwrap.fill(", ".join(load(name).title for name in names()) + ".", 118)


def device_example() -> str:
    """Show one datasheet as it stands.

    Returns:
        A code block.
    """
    path = ROOT / "warpwatch" / "devices" / "h200.toml"
    return f"```toml\n{path.read_text(encoding='utf-8')}```"


def devices() -> str:
    """Write the GPUs with a datasheet.

    Returns:
        A table.
    """
    rows = []
    for name in names():
        one = load(name)
        rows.append(
            (f"`{name}`", one.title, f"`{one.arch}`", str(one.sm_count), f"{one.bandwidth_gbps:g}",
             f"{one.peak_tflops['fp16']:g}")
        )  # fmt: skip
    head = ["file", "card", "target", "SMs or CUs", "GB/s", "fp16 TFLOP/s"]
    return table(head, rows, right=[3, 4, 5])


def verdicts() -> str:
    """Write the verdicts, with their shapes, meanings and exit codes.

    Returns:
        A table.
    """
    rows = [(SHAPES[one], one, text, str(_exit_code(one))) for one, text in MEANINGS.items()]
    return table(["shape", "verdict", "meaning", "exit code"], rows)


def _exit_code(verdict: Verdict) -> int:
    """Of a comparison with this verdict, and a series that did not change."""
    judged = (
        Judgement(one, math.nan, (math.nan, math.nan), 1.0, 1, math.nan, "none", "none", "")
        for one in (verdict, "unchanged")
    )
    series = tuple(Judged("", "", "", 1.0, 1.0, one, True, "") for one in judged)
    return RunVerdict(series, 0.0, False).exit_code

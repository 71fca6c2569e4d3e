"""Tables of the judge's scorecard, which ``warpwatch scorecard`` wrote."""

from __future__ import annotations

import re

from tools.docs.figures.markdown import table
from tools.root import ROOT

PAGE = ROOT / "docs" / "results" / "scorecard.md"


def section(heading: str) -> str:
    """Take the first table of a section.

    Args:
        heading: How the section's heading begins.

    Returns:
        The table.

    Raises:
        ValueError: The page has no such section, or the section no table.
    """
    text = PAGE.read_text(encoding="utf-8")
    parts = [one for one in re.split(r"^## ", text, flags=re.M) if one.startswith(heading)]
    rows = [line for line in parts[0].splitlines() if line.startswith("|")] if parts else []
    if not rows:
        raise ValueError(f"{PAGE.name} has no section {heading!r} with a table")
    first = parts[0].index(rows[0])
    return parts[0][first:].split("\n\n")[0].strip()


def steps() -> str:
    """Write how well steps are found in noise, compared with other detectors.

    Returns:
        The scorecard's first table.
    """
    return section("Steps: ")


def compared_with_asv() -> str:
    """Write how well a step of 2 % is found, by the judge and by asv's own detector.

    Returns:
        A table of one row for each kind of noise: precision and recall in percent.
    """
    found: dict[str, dict[str, str]] = {}
    for line in steps().splitlines()[2:]:
        noise, detector, two_percent = [cell.strip() for cell in line.strip("|").split("|")][:3]
        found.setdefault(noise, {})[detector] = two_percent
    rows = [(noise, one["warpwatch"], one["asv step_detect"]) for noise, one in found.items()]
    return table(["noise of 1 %", "Warpwatch", "asv"], rows)


def gates() -> str:
    """Write how often the gate of a pull request sees 2 % in recorded noise, and how often it errs.

    Returns:
        A table of two rows.
    """
    return table(["gates", "found", "false alarms"], summary())


def summary() -> list[tuple[str, str, str]]:
    """Take the gate's rates in recorded noise.

    Returns:
        For all workloads and for quiet ones: a description, the power at 2 %, and the false alarms.
    """
    found = re.findall(
        r"^\| (recorded H200, [^|]+?) \| (\d)% \| (\d+) \| ([\d.]+)% ",
        section("The gate of a pull request"),
        re.M,
    )
    rates = {(noise, slower): (int(count), float(rate)) for noise, slower, count, rate in found}
    rows = []
    for noise, said in (
        ("all workloads", "a 2 % slowdown put into noise recorded on an H200, all workloads"),
        ("spread up to 1.5 %", "the same, workloads whose runs spread by 1.5 % at most"),
    ):
        count, power = rates[f"recorded H200, {noise}", "2"]
        quiet, alarms = rates[f"recorded H200, {noise}", "0"]
        wrong = round(quiet * alarms / 100)
        rows.append((said, f"{power:.0f} % of {count:,}", f"{wrong} of {quiet:,}"))
    return rows

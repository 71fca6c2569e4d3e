"""The gallery: the findings in public libraries' histories, and how many of them are true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cache, partial
from typing import Any

from tools.docs.figures import blocks
from tools.docs.figures.markdown import table
from tools.gallery.findings import rows_of
from tools.gallery.labels import Label, labels
from tools.gallery.libraries import Library, libraries
from tools.root import ROOT

PAGES = ROOT / "docs" / "results" / "gallery"
DATA = ROOT / "docs" / "results" / "data" / "gallery"
_PULL = re.compile(r"(?<![\w/&])#(\d+)\b")


@dataclass(frozen=True)
class Counts:
    """What the labels of a library's findings say, counted by finding."""

    findings: int
    labelled: int
    true: int
    cause: int
    first: int
    later: int


@cache
def published() -> Mapping[str, tuple[Library, Mapping[str, Any], Sequence[Label]]]:
    """The libraries whose findings are committed, with findings and labels."""
    return {
        name: (
            library,
            json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")),
            labels(library.folder / "checked.csv"),
        )
        for name, library in libraries().items()
        if (DATA / f"{name}.json").exists()
    }


def write(library: Library, found: Mapping[str, Any]) -> None:
    """Keep the findings of a library, and make or renew its page.

    Args:
        library: The library.
        found: What was read from its report.
    """
    DATA.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    (DATA / f"{library.name}.json").write_text(text, encoding="utf-8")
    published.cache_clear()
    PAGES.mkdir(parents=True, exist_ok=True)
    page = PAGES / f"{library.name}.md"
    if not page.exists():
        block = f"<!-- generated: gallery-{library.name} -->\n<!-- end -->"
        page.write_text(f"# {library.title}\n\n{block}\n", encoding="utf-8")
    for one in PAGES.glob("*.md"):
        one.write_text(blocks.fill(one.read_text(encoding="utf-8"), figures()), encoding="utf-8")


def counts(found: Mapping[str, Any], rows: Sequence[Label]) -> Counts:
    """Count findings by their labels. A finding is true where each of its rows is.

    Args:
        found: What was read from the report.
        rows: The labels of the library.

    Returns:
        The counts.
    """
    labelled = [(one, own) for one in found["findings"] if (own := rows_of(one, rows)) is not None]
    return Counts(
        findings=len(found["findings"]),
        labelled=len(labelled),
        true=sum(all(row.true for row in own) for _, own in labelled),
        cause=sum(all(row.cause for row in own) for _, own in labelled),
        first=sum(
            any(row.commit and one["likeliest"].startswith(row.commit) for row in own)
            for one, own in labelled
        ),
        later=sum(any(row.later for row in own) for _, own in labelled),
    )


def summary() -> str:
    """Count the findings of every library.

    Returns:
        A table with a row for each library, and a sum.
    """
    rows, total = [], [0] * 7
    for name, (library, found, own) in published().items():
        numbers = (found["commits"], *astuple(counts(found, own)))
        total = [one + other for one, other in zip(total, numbers, strict=True)]
        rows.append((f"[{library.title}]({name}.md)", *map(str, numbers)))
    rows.append(("all", *map(str, total)))
    head = (
        "library",
        "commits",
        "findings",
        "checked",
        "true",
        "cause right",
        "first commit right",
    )
    return table((*head, "mended or explained"), rows, right=range(1, 8))


def shares() -> str:
    """Say which share of the checked findings is true.

    Returns:
        Such as "58 of 60 findings are true, and 55 name the right cause".
    """
    every = [counts(found, own) for _, found, own in published().values()]
    checked = sum(one.labelled for one in every)
    true, cause = sum(one.true for one in every), sum(one.cause for one in every)
    return f"{true} of {checked} checked findings are true, and {cause} name the right cause"


def library(name: str) -> str:
    """Write the page of a library: its history in figures, then each finding.

    Args:
        name: The library.

    Returns:
        Some sentences and a table.
    """
    known, found, own = published()[name]
    number = counts(found, own)
    which = f"releases `{known.tags}`" if known.tags else "commits"
    text = (
        f"[{known.source}]({known.address}) was measured up to `{found['head'][:10]}`:\n"
        f"{found['commits']} {which}.\n"
        f"Each has {found['workloads']} workloads for {' and '.join(found['targets'])}.\n"
        f"{found['judged']:,} of {found['series']:,} series could be judged.\n"
        f"The report lists {number.findings} findings, and {number.labelled} of them were checked. "
        f"{number.true} are true, and {number.cause} name the right cause.\n"
        f"The authors mended or explained {number.later} of them later."
    )
    rows = [_row(known, one, label) for one, label in _pairs(found, own)]
    head = ("seen in", "commits", "Warpwatch says", "the library's diff says", "true", "cause")
    return f"{text}\n\n{table((*head, 'later'), rows, right=(1,))}"


def figures() -> dict[str, Callable[[], str]]:
    """Offer the figures of the gallery's pages.

    Returns:
        What computes each figure, by the name of its block.
    """
    of_each = {f"gallery-{name}": partial(library, name) for name in published()}
    return {"gallery": summary, "gallery-shares": shares, **of_each}


def _pairs(
    found: Mapping[str, Any], rows: Sequence[Label]
) -> list[tuple[dict[str, Any], Label | None]]:
    """Each finding with each of its labels, its workloads cut down to those of the label."""
    pairs: list[tuple[dict[str, Any], Label | None]] = []
    for one in found["findings"]:
        own = rows_of(one, rows)
        if own is None:
            pairs.append((one, None))
            continue
        for row in own:
            names = row.names(one["workloads"], own)
            kept = {name: one["workloads"][name] for name in names}
            pairs.append((one | {"workloads": kept}, row))
    return pairs


def _row(known: Library, finding: Mapping[str, Any], label: Label | None) -> tuple[str, ...]:
    seen = finding["tag"] or f"`{finding['seen'][:8]}`"
    said = "<br>".join(
        f"{', '.join(names)}: {what}" for what, names in _alike(finding["workloads"]).items()
    )
    verdict = ", ".join(dict.fromkeys((finding["verdict"], finding["status"])))
    head = (f"[{seen}]({known.address}/commit/{finding['seen']})", str(len(finding["commits"])))
    if label is None:
        return (*head, f"{verdict}<br>{said}", "not checked", "", "", "")
    guilty = label.commit[:8]
    diff = _PULL.sub(rf"[#\1]({known.address}/pull/\1)", label.diff)
    if guilty:
        diff = f"[`{guilty}`]({known.address}/commit/{label.commit}): {diff}"
    number = label.later.rpartition("/")[2].partition("#")[0][:8]
    later = f"[{number}]({label.later})" if label.later else ""
    yes = ["yes" if one else "no" for one in (label.true, label.cause)]
    return (*head, f"{verdict}<br>{said}", diff, *yes, later)


def _alike(workloads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Workloads of which the same is said, by the words."""
    found: dict[str, list[str]] = {}
    for name, said in workloads.items():
        found.setdefault("; ".join(said), []).append(name)
    return found

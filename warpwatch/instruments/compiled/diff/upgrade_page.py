"""What another compiler does to a package, as a page: what got worse first, where, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from warpwatch.instruments.compiled.measure.jobs import Result

from .change import Change
from .comparison import Compared, in_words

# What each verdict metric is called when it got worse, gravest first.
_LOSSES = {
    "compile_failures": "does not compile or fit",
    "predicted_us": "longer predicted time",
    "tensor_core_level": "tensor-core flavour lost",
    "advisories": "the compiler advises against its own code",
    "spilled_bytes": "registers spill",
    "copied_bytes": "extra copy",
    "launches": "more launches",
    "async_copy_level": "asynchronous loads lost",
    "global_instructions": "more requests to global memory for the same work",
    "shared_instructions": "more requests to shared memory for the same work",
    "bound_us": "more work for the busiest unit",
    "blocks_in_flight": "fewer blocks in flight",
}
_LEVELS = {
    "tensor_core_level": ("none", "mma.sync or MFMA", "wgmma", "tcgen05"),
    "async_copy_level": ("plain", "cp.async or direct to LDS", "TMA"),
}
_NO_LONGER = "compiled before, does not now"


def markdown(
    compared: Sequence[Compared],
    old: str,
    new: str,
    command: str,
    *,
    notes: Iterable[str] = (),
    unknown: Collection[str] = (),
) -> str:
    """The page. ``old`` and ``new`` say which compilers these are. ``notes`` is what the package
    itself said under the new one, ``unknown`` the instructions that no reader knows."""
    text = [
        f"# {old} to {new}",
        "",
        f"{len(compared)} workload-target pairs: {in_words(compared)}. Written by `{command}`.",
    ]
    replaced = [one for one in compared if one.kernels]
    alike = [one for one in compared if not one.kernels]
    text += _in_short(compared)
    if unknown:
        text += ["", "## Instructions that no reader knows", ""]
        text += ["Their work is not counted: name them in the tables of the readers.", ""]
        text += [f"- {one}" for one in sorted(set(unknown))]
    text += _replaced(replaced, notes)
    for title, word in (
        ("Compiled before, does not now", "missing"),
        ("Worse, the gravest first", "regressed"),
        ("Better and worse at once", "mixed"),
        ("Perhaps slower", "inconclusive"),
        ("Better", "improved"),
        ("Did not compile before", "new"),
    ):
        text += _rows(title, [one for one in alike if one.word == word])
    for title, word in (
        ("Other code, no verdict metric moved", "other code"),
        ("The same code", "same"),
        ("Nothing known", "nothing"),
    ):
        text += _by_target(title, [one for one in alike if one.word == word])
    return "\n".join([*text, ""])


def _in_short(compared: Sequence[Compared]) -> list[str]:
    """A row for each way something got worse, and on which targets."""
    places: dict[str, list[tuple[Compared, Change | None]]] = {}
    for one in compared:
        if one.word == "missing":
            places.setdefault(_NO_LONGER, []).append((one, None))
        for change in one.worse:
            places.setdefault(_loss(change), []).append((one, change))
    if not places:
        return ["", "Nothing got worse."]
    text = ["", "## What got worse", "", "| what | pairs | targets | worst |", "|---|---|---|---|"]
    order = [_NO_LONGER, *_LOSSES.values()]
    for what in sorted(places, key=lambda what: order.index(what) if what in order else 99):
        found = places[what]
        counts: dict[str, int] = {}
        for one, _ in found:
            counts[one.target] = counts.get(one.target, 0) + 1
        targets = ", ".join(f"{target} ({count})" for target, count in sorted(counts.items()))
        worst, how = min(found, key=lambda pair: pair[1].gravity if pair[1] else (0, 0.0))
        words = f": {_words(how)}" if how else ""
        text.append(
            f"| {what} | {len(found)} | {targets} | {worst.name} on {worst.target}{words} |"
        )
    return text


def _loss(change: Change) -> str:
    return _LOSSES.get(change.metric, f"{change.metric} got worse")


def _replaced(found: Sequence[Compared], notes: Iterable[str]) -> list[str]:
    """Another kernel runs: what moved speaks of the package's choice, not of the compiler."""
    said = list(dict.fromkeys(notes))
    if not found and not said:
        return []
    text = ["", f"## Other kernels run ({len(found)})", ""]
    if said:
        text += ["The package says:", "", *(f"- {note}" for note in said), ""]
    if found:
        text += ["| target | workload | kernel | what moved |", "|---|---|---|---|"]
    for one in found:
        text.append(f"| {one.target} | {one.name} | {one.kernels} | {_moved(one.moved)} |")
    return text


def _rows(title: str, found: Sequence[Compared]) -> list[str]:
    if not found:
        return []
    text = ["", f"## {title} ({len(found)})", ""]
    text += ["| target | workload | what moved | in the code |", "|---|---|---|---|"]
    said: dict[tuple[str, str], str] = {}  # a backward holds the kernels of its forward again
    for one in found:
        moved = {change.metric for change in one.moved}
        # What moved stands in its own column.
        causes = [cause for cause in one.causes if not _repeats(cause, moved)]
        first = {cause: said.setdefault((one.target, cause), one.name) for cause in causes}
        why = _by_kernel(cause for cause in causes if first[cause] == one.name)
        others = dict.fromkeys(name for name in first.values() if name != one.name)
        why = "; ".join([*([why] if why else []), *(f"as in {name}" for name in others)])
        cells = (one.target, one.name, _moved(one.moved), _cell(why))
        text.append(f"| {' | '.join(cells)} |")
    return text


def _by_kernel(causes: Iterable[str]) -> str:
    """Causes name their kernel; said once for all of one kernel."""
    found: dict[str, list[str]] = {}
    for cause in causes:
        kernel, colon, what = cause.partition(": ")
        found.setdefault(kernel if colon else "", []).append(what or kernel)
    parts = [f"{kernel}: {', '.join(what)}".removeprefix(": ") for kernel, what in found.items()]
    return "; ".join(parts)


def _repeats(cause: str, moved: set[str]) -> bool:
    said = {
        "spilled_bytes": ": spilled bytes ",
        "tensor_core_level": ": tensor-core level ",
        "async_copy_level": ": asynchronous copies, level ",
    }
    return any(words in cause for metric, words in said.items() if metric in moved)


def _by_target(title: str, found: Sequence[Compared]) -> list[str]:
    if not found:
        return []
    text = ["", f"## {title} ({len(found)})", ""]
    for target in sorted({one.target for one in found}):
        names = ", ".join(one.name for one in found if one.target == target)
        text.append(f"- {target}: {names}")
    return text


def _moved(changes: Iterable[Change]) -> str:
    """The worse ones first, in bold."""
    ordered = sorted(changes, key=lambda change: (change.better is not False, change.gravity))
    words = [f"**{_words(one)}**" if one.better is False else _words(one) for one in ordered]
    return _cell("; ".join(words)) or "-"


def _words(change: Change) -> str:
    names = _LEVELS.get(change.metric)
    if names:
        return f"{change.metric} {names[int(change.old)]} -> {names[int(change.new)]}"
    return str(change)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def notes_of(results: Iterable[Result]) -> Iterator[str]:
    """What the package said while its kernels were recorded."""
    for one in results:
        yield from (str(note) for note in one.evidence.get("notes", ()))


def unknown_of(results: Iterable[Result]) -> Iterator[str]:
    """Mnemonics that no reader knows, each with its target."""
    for one in results:
        for launch in one.evidence.get("launches", ()):
            yield from (f"{one.job.target}: {name}" for name in launch["unknown_instructions"])

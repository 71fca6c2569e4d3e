"""What the GPU instruments kept of a commit beside asv's results: read back, strictly.

``RESULTS/evidence/gpu-COMMIT.json.gz`` is one JSON object: what was asked for and what came of it,
what gave the counters, and of each latency its samples, the card's state while they were taken, and
what speaks against the number. All of it is data of unknown origin: sizes, types and lengths are
checked, and every mistake is named.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpwatch.judge.results.strict_json import (
    Fields,
    RejectedError,
    is_text,
    parse,
    read_bytes,
    text,
)

MAX_PACKED_BYTES = 16 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
MOST_NOTES = 20  # of one latency
MEASURED_PATTERN = "gpu-*.json.gz"
# Sampling goes on until half the 95 % interval of the median is this, or until it has as many
# samples, or took as long, as it may.
AIMED_AT_PERCENT = 0.4
_SCHEMA = 1
_MOST_SHOWN = 5  # mistakes of one file
_LONGEST_NOTE, _LONGEST_NAME, _MOST_TOOLS = 200, 40, 20
_TIER = re.compile(r"[a-z0-9-]{1,40}")
_TIERS = {
    "cupti": "from hardware counters (CUPTI)",
    "ncu": "from hardware counters (ncu)",
    "rocprofv3": "from hardware counters (rocprofv3)",
    "gpm": "from the driver's sampling (gpm), not from hardware counters",
    "latency": "a share of the peak, without counters",
}
# What an outcome's detail repeats of its latencies' notes.
_REPEATED = ("cold: ", "warm: ")


@dataclass(frozen=True)
class Sampling:
    """What speaks against taking one latency at its word.

    ``notes`` make it ``unstable`` (two modes, a drift, launch gaps, time ran out); ``remarks`` hold
    for all that was measured of the workload. ``throttled`` says why most samples were, and then
    all count; else those that were are ``set_apart`` from ``samples``, which make the value.
    ``known_to_percent`` is half the median's 95 % interval, 0 where none was kept.
    """

    notes: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unstable: bool = False
    timed_out: bool = False
    throttled: str = ""
    samples: int = 0
    set_apart: int = 0
    known_to_percent: float = 0.0

    @property
    def wide(self) -> bool:
        """Whether sampling ended before the median was known as well as it was to be."""
        return self.known_to_percent > AIMED_AT_PERCENT

    @property
    def said(self) -> str:
        """In one line; empty where nothing speaks against it."""
        notes = "; ".join(self.notes)
        parts = [": ".join(filter(None, ("unstable" * self.unstable, notes)))]
        if self.wide:
            parts.append(f"known to ±{self.known_to_percent:.2f} %")
        if self.throttled:
            parts.append(f"throttled: {self.throttled}")
        if self.set_apart:
            parts.append(f"{self.set_apart} of {self.samples + self.set_apart} samples set apart")
        return "; ".join(filter(None, (*parts, *self.remarks)))


@dataclass(frozen=True)
class CardState:
    """The samples of one latency, the card while they were taken, and what speaks against them;
    what was not kept is empty."""

    us: tuple[float, ...] = ()
    mhz: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    temperature_c: tuple[float, ...] = ()
    throttled: tuple[str, ...] = ()
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class Counted:
    """Which tier gave the counters of a commit, ``why`` no better one did, and of which card."""

    tier: str
    why: str = ""
    card: str = ""

    @property
    def said(self) -> str:
        words = _TIERS.get(self.tier, f"from {self.tier}")
        return f"{words}: {self.why}" if self.why else words


def outcomes(
    path: Path, data: dict[str, Any]
) -> tuple[dict[str, str], dict[tuple[str, str], CardState]]:
    """Of what was read of ``path``: by workload what came of it, by workload and metric the
    latencies. ``RejectedError`` where what is said against a latency is not what it should be."""
    statuses: dict[str, str] = {}
    states: dict[tuple[str, str], CardState] = {}
    problems: list[str] = []
    for outcome in _objects(data.get("timed")):
        workload, kept = outcome.get("workload"), outcome.get("evidence")
        if not is_text(workload):
            continue
        status, detail = outcome.get("status"), outcome.get("detail")
        statuses[workload] = status if is_text(status) else ""
        remarks = _remarks(detail if is_text(detail) and status == "ok" else "")
        for metric, summary in kept.items() if isinstance(kept, dict) else ():
            if isinstance(summary, dict):
                where = f"{text(workload)} {text(metric)}: "
                sampling = _sampling(summary, remarks, problems, where)
                states[workload, str(metric)] = _state(summary, sampling)
    if problems:
        more = len(problems) - _MOST_SHOWN
        raise RejectedError(
            path, problems[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        )
    return statuses, states


def notes_on_all(data: dict[str, Any], words: Sequence[str]) -> set[str]:
    """The notes with one of ``words`` in them among what was noted on the outcomes of a commit."""
    details = [outcome.get("detail") for outcome in _objects(data.get("timed"))]
    notes = [_note(part) for one in details if is_text(one) for part in one.split("; ")]
    return {note for note in notes if any(word in note for word in words)}


def _sampling(
    summary: dict[str, Any], remarks: tuple[str, ...], problems: list[str], where: str
) -> Sampling:
    fields = Fields(summary, problems, where)
    notes = fields.take("notes", _are_notes, f"at most {MOST_NOTES} texts", [])
    apart = fields.take("set_apart", lambda found: isinstance(found, list), "a list", [])
    return Sampling(
        notes=tuple(_note(one) for one in notes),
        remarks=remarks,
        unstable=fields.take("unstable", _is_flag, "true or false", False),
        timed_out=fields.take("timed_out", _is_flag, "true or false", False),
        throttled=_note(fields.string("throttled")),
        samples=len(_objects(summary.get("samples"))),
        set_apart=len(apart),
        known_to_percent=_half_percent(
            fields.take("interval_us", _is_interval, "two times in us, the lower first", None),
            summary.get("us"),
        ),
    )


def _half_percent(interval: list[float] | None, us: Any) -> float:
    """Half of ``interval``, percent of the median ``us``; 0 where either is not known."""
    if interval is None or not _is_amount(us) or us <= 0:
        return 0.0
    return 100 * (interval[1] - interval[0]) / 2 / float(us)


def _is_interval(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2 and all(map(_is_amount, value))
    return is_pair and 0 <= value[0] <= value[1]


def _remarks(detail: str) -> tuple[str, ...]:
    """What a workload's outcome says beyond its latencies' own notes."""
    parts = [part for part in detail.split("; ") if not part.startswith(_REPEATED)]
    return tuple(filter(None, map(_note, parts[:MOST_NOTES])))


def _are_notes(value: Any) -> bool:
    return isinstance(value, list) and len(value) <= MOST_NOTES and all(map(is_text, value))


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _note(said: str) -> str:
    return _one_line(said[:_LONGEST_NOTE])


def _state(summary: dict[str, Any], sampling: Sampling) -> CardState:
    """Of the summary of one latency: the clock counted on the card, else its driver's word."""
    samples = _objects(summary.get("samples"))
    clocks = [card if isinstance(card := one.get("clocks"), dict) else {} for one in samples]
    counted = [
        one["spin_mhz"] if _is_amount(one.get("spin_mhz")) else card.get("sm_mhz")
        for one, card in zip(samples, clocks, strict=True)
    ]
    reasons = {
        text[:80]
        for card in clocks
        if isinstance(card.get("throttled"), list)
        for text in card["throttled"]
        if is_text(text)
    }
    return CardState(
        us=_numbers(one.get("us") for one in samples),
        mhz=_numbers(counted),
        power_w=_numbers(card.get("power_w") for card in clocks),
        temperature_c=_numbers(card.get("temperature_c") for card in clocks),
        throttled=tuple(sorted(reasons)),
        sampling=sampling,
    )


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _numbers(values: Iterable[Any]) -> tuple[float, ...]:
    return tuple(float(value) for value in values if _is_amount(value))


def _is_amount(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -1e30 < value < 1e30 and math.isfinite(value)


def read_measured(path: Path) -> dict[str, Any]:
    """What the GPU instruments kept of a commit, its schema checked, else ``RejectedError``."""
    data = parse(path, _gunzip(path, read_bytes(path, MAX_PACKED_BYTES)))
    said = data.get("schema_version") if isinstance(data, dict) else None
    if said != _SCHEMA or isinstance(said, bool):
        raise RejectedError(path, [f"expected evidence of schema {_SCHEMA}, got {said!r}"])
    return dict(data)


def counted_by(path: Path, data: dict[str, Any]) -> Counted | None:
    """What gave the counters in what was read of ``path``; ``None`` where that was not kept (it was
    not always), ``RejectedError`` where it is not what it should be."""
    found = data.get("counters")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise RejectedError(path, [f"counters: expected an object, got {text(found)}"])
    problems: list[str] = []
    fields = Fields(found, problems, "counters.")
    fields.need("tier")
    tier = fields.take("tier", _is_tier, "1 to 40 of a to z, 0 to 9 and -", "")
    why = _one_line(fields.string("why"))
    if problems:
        raise RejectedError(path, problems)
    card = data.get("card")
    name = card.get("name") if isinstance(card, dict) else None
    return Counted(tier, why, _one_line(name[:80]) if is_text(name) else "")


def toolchain_of(data: dict[str, Any]) -> dict[str, str]:
    """What stood between the source and the card, by name, as far as it was kept: the card itself,
    its driver, and the packages. A mistake in it hides nothing else, so it is left out."""
    card = data.get("card")
    if not isinstance(card, dict):
        return {}
    software = card.get("software")
    found = dict(software) if isinstance(software, dict) else {}
    found |= {"card": card.get("name"), "driver": card.get("driver")}
    return {
        _one_line(str(name)[:_LONGEST_NAME]): _one_line(said[:_LONGEST_NOTE])
        for name, said in list(found.items())[-_MOST_TOOLS:]
        if is_text(said) and said
    }


def _is_tier(value: Any) -> bool:
    return isinstance(value, str) and _TIER.fullmatch(value) is not None


def _one_line(said: str) -> str:
    """Without what a terminal would obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in said).split())


def _gunzip(path: Path, packed: bytes) -> bytes:
    """The first stream of a gzip file, unpacked within the limit."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        data = unpacker.decompress(packed, MAX_BYTES + 1)
    except zlib.error as error:
        raise RejectedError(path, [f"is not gzip: {error}"]) from None
    if len(data) > MAX_BYTES:
        raise RejectedError(path, [f"unpacks to more than the limit of {MAX_BYTES:,} bytes"])
    if not unpacker.eof:
        raise RejectedError(path, ["is cut short"])
    return data

"""What explains a change beside its numbers, looked up by commit: machine code, state of the card.

:mod:`reports.kept_evidence` reads what the compiled instrument left in ``RESULTS/evidence``. What
the GPU instruments left lies there too, one ``gpu-COMMIT.json.gz`` a commit, and is read here: each
latency's samples with the clock they were taken at. All of it is data of unknown origin; a file
that is not taken is named in ``rejected``.
"""

from __future__ import annotations

import difflib
import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports import kept_evidence
from reports.strict import Fields, RejectedError, is_text, parse, read_bytes, text

MAX_PACKED_BYTES = 16 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
MAX_LINES = 6_000  # of a listing; a longer one is compared up to here
_SCHEMA = 1
_MOST_REJECTED = 100
_TIER = re.compile(r"[a-z0-9-]{1,40}")
_TIERS = {
    "ncu": "from hardware counters (ncu)",
    "gpm": "from the driver's sampling (gpm), not from hardware counters",
    "latency": "a share of the peak, without counters",
}
NOT_APPLICABLE = "not applicable"  # what instruments say of a kernel that a commit lacks
_COMPILED = re.compile(r"([0-9a-f]{8})[0-9a-f]*-([\w.+]+)\.evidence\.xz")
MEASURED_PATTERN = "gpu-*.json.gz"
_MEASURED = re.compile(r"gpu-([0-9a-f]{8})[0-9a-f]{0,32}\.json\.gz")

Place = tuple[str, str]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: its code by hash, how many instructions of each class it has, and what
    the compiler said against it."""

    kernel: str
    code: str
    instructions: Mapping[str, int]
    folder: Path
    advisories: tuple[str, ...] = ()


@dataclass(frozen=True)
class CardState:
    """The samples of one latency and the card while they were taken; what it did not say is
    empty."""

    us: tuple[float, ...] = ()
    mhz: tuple[float, ...] = ()
    power_w: tuple[float, ...] = ()
    temperature_c: tuple[float, ...] = ()
    throttled: tuple[str, ...] = ()


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


@dataclass(frozen=True)
class Asked:
    """What the GPU instruments were asked for at a commit, by workload what came of it, which
    instruments those are and what gave the counters; nothing where nothing was kept."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    instruments: frozenset[str] = frozenset()
    counted: Counted | None = None


@dataclass
class Evidence:
    """The evidence of some result folders; a commit's files are read when first asked for."""

    folders: Sequence[Path] = ()
    rejected: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._compiled: dict[str, list[tuple[str, Path]]] = {}
        self._measured: dict[str, list[Path]] = {}
        self._launches: dict[Place, dict[Place, tuple[Launch, ...]]] = {}
        self._statuses: dict[Place, dict[Place, str]] = {}
        self._states: dict[str, dict[Place, CardState]] = {}
        self._asked: dict[str, Asked] = {}
        for path in self._paths():
            if match := _COMPILED.fullmatch(path.name):
                self._compiled.setdefault(match[1], []).append((match[2], path))
            elif match := _MEASURED.fullmatch(path.name):
                self._measured.setdefault(match[1], []).append(path)

    def _paths(self) -> list[Path]:
        found: list[Path] = []
        for folder in self.folders:
            found += kept_evidence.files(folder / kept_evidence.FOLDER)
            found += sorted((folder / kept_evidence.FOLDER).glob(MEASURED_PATTERN))
        return found

    def listing(self) -> tuple[tuple[str, int, int], ...]:
        """Names, sizes and times: equal listings mean that nothing is new."""
        stats = [(str(path), path.lstat()) for path in self._paths()]
        return tuple((name, found.st_size, found.st_mtime_ns) for name, found in stats)

    def tritons(self, commit: str) -> list[str]:
        """The Triton versions the commit was compiled with."""
        return [triton for triton, _ in self._compiled.get(commit[:8], ())]

    def launches(self, commit: str, triton: str) -> dict[Place, tuple[Launch, ...]]:
        """By workload and target; empty where nothing was kept."""
        self._read_compiled(commit, triton)
        return self._launches[commit, triton]

    def statuses(self, commit: str, triton: str) -> dict[Place, str]:
        """What came of compiling, by workload and target: of all that was asked for."""
        self._read_compiled(commit, triton)
        return self._statuses[commit, triton]

    def _read_compiled(self, commit: str, triton: str) -> None:
        key = (commit, triton)
        if key not in self._launches:
            self._launches[key], self._statuses[key] = {}, {}
            for version, path in self._compiled.get(commit[:8], ()):
                if version == triton:
                    self._compiled_file(path, commit, triton)

    def states(self, commit: str) -> dict[Place, CardState]:
        """By workload and metric; empty where nothing was kept."""
        self._read_measured(commit)
        return self._states[commit]

    def asked(self, commit: str) -> Asked:
        """What the GPU instruments were asked for."""
        self._read_measured(commit)
        return self._asked[commit]

    def _read_measured(self, commit: str) -> None:
        if commit not in self._states:
            self._states[commit], self._asked[commit] = {}, Asked()
            for path in self._measured.get(commit[:8], ()):
                self._measured_file(path, commit)

    def same_code(self, before: str, after: str, workload: str) -> bool | None:
        """Whether every launch of ``workload`` is the same machine code on all targets at both
        commits; ``None`` where that was not kept."""
        found = None
        for triton in self.tritons(before):
            old, new = (self.launches(commit, triton) for commit in (before, after))
            for key in old.keys() & new.keys():
                if key[0] == workload and (old[key] or new[key]):
                    same = [one.code for one in old[key]] == [one.code for one in new[key]]
                    found = same and found is not False
        return found

    def differences(
        self, before: str, after: str, triton: str, workload: str, target: str
    ) -> list[tuple[str, str]]:
        """(kernel, unified diff) of each launch whose code differs, in the order of launches."""
        sides = [self.launches(c, triton).get((workload, target), ()) for c in (before, after)]
        if not all(sides):
            return []
        found, seen = [], set()
        for i in range(max(map(len, sides))):
            pair = [side[i] if i < len(side) else None for side in sides]
            codes = tuple(one.code if one else "" for one in pair)
            if codes[0] == codes[1] or codes in seen:
                continue
            seen.add(codes)
            kernel = next(one.kernel for one in reversed(pair) if one)
            old, new = (self._code(one)[:MAX_LINES] if one else [] for one in pair)
            if old or new:
                names = (before[:10], after[:10])
                unified = difflib.unified_diff(old, new, *names, n=2, lineterm="")
                found.append((kernel, "\n".join(unified)))
        return found

    def _code(self, launch: Launch) -> list[str]:
        try:
            return kept_evidence.listing(launch.folder, launch.code).splitlines()
        except RejectedError as error:
            self._reject(error)
            return []

    def _compiled_file(self, path: Path, commit: str, triton: str) -> None:
        try:
            kept = kept_evidence.read(path)
            if kept.commit != commit:
                raise RejectedError(path, [f"is not the evidence of commit {commit[:10]}"])
        except RejectedError as error:
            self._reject(error)
            return
        self._statuses[commit, triton] |= {p: one["status"] for p, one in kept.results.items()}
        self._launches[commit, triton] |= {
            place: tuple(
                Launch(
                    one["kernel"],
                    one["code"],
                    one["instructions"],
                    path.parent,
                    tuple(one["advisories"]),
                )
                for one in kept_evidence.launches(result)
            )
            for place, result in kept.results.items()
        }

    def _measured_file(self, path: Path, commit: str) -> None:
        try:
            data = read_measured(path)
            if data.get("commit") != commit:
                raise RejectedError(path, [f"is not the evidence of commit {commit[:10]}"])
            counted = counted_by(path, data)
        except RejectedError as error:
            self._reject(error)
            return
        statuses = {}
        for outcome in _objects(data.get("timed")):
            kept, workload = outcome.get("evidence"), outcome.get("workload")
            if not is_text(workload):
                continue
            status = outcome.get("status")
            statuses[workload] = status if is_text(status) else ""
            if isinstance(kept, dict):
                for metric, summary in kept.items():
                    if isinstance(summary, dict):
                        self._states[commit][workload, str(metric)] = _state(summary)
        known, methods = self._asked[commit], data.get("methods")
        names = frozenset(methods) if isinstance(methods, dict) else frozenset()
        self._asked[commit] = Asked(
            {**known.statuses, **statuses}, known.instruments | names, counted or known.counted
        )

    def _reject(self, error: RejectedError) -> None:
        if str(error) not in self.rejected and len(self.rejected) < _MOST_REJECTED:
            self.rejected.append(str(error))


def _state(summary: dict[str, Any]) -> CardState:
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

"""What explains a change beside its numbers, looked up by commit: machine code, state of the card.

The module ``compiled`` next to this one reads the evidence that the compiled instrument left in
``RESULTS/evidence``, ``measured`` that of the GPU instruments. All of it is data of unknown origin;
a file that is not taken is named in ``rejected``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpwatch.judge.predicted import call
from warpwatch.judge.predicted.call import Call
from warpwatch.judge.results import strict_json
from warpwatch.judge.results.strict_json import RejectedError

from . import compiled as kept_evidence
from . import measured as measured_evidence
from .measured import MEASURED_PATTERN, CardState, Counted, toolchain_of
from .roofs import Ceilings, ceilings_of

MAX_LINES = 6_000  # of a listing; a longer one is compared up to here
_MOST_REJECTED = 100
_MOST_NOTES = 50  # of one call
NOT_APPLICABLE = "not applicable"  # what instruments say of a kernel that a commit lacks
_COMPILED = re.compile(r"([0-9a-f]{8})[0-9a-f]*-([\w.+]+)\.evidence\.xz")
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
class Asked:
    """What the GPU instruments were asked for at a commit, by workload what came of it, which
    instruments those are, what gave the counters and, on a card without a datasheet, what shares
    of peak are of; the card, its driver and its packages; nothing where nothing was kept."""

    statuses: Mapping[str, str] = field(default_factory=dict)
    instruments: frozenset[str] = frozenset()
    counted: Counted | None = None
    ceilings: Ceilings | None = None
    toolchain: Mapping[str, str] = field(default_factory=dict)


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
        self._details: dict[Place, dict[Place, str]] = {}
        self._sources: dict[Place, dict[Place, tuple[frozenset[str], ...]]] = {}
        self._notes: dict[Place, dict[Place, tuple[str, ...]]] = {}
        self._tuned: dict[Place, dict[Place, tuple[Mapping[str, Any], ...]]] = {}
        self._values: dict[Place, dict[Place, Mapping[str, float | None]]] = {}
        self._calls: dict[Place, dict[Place, Call]] = {}
        self._made: dict[Place, tuple[str, Mapping[str, str]]] = {}
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

    def sources(self, commit: str, triton: str) -> dict[Place, tuple[frozenset[str], ...]]:
        """By workload and target, the files of its kernels and those that these import."""
        self._read_compiled(commit, triton)
        return self._sources.get((commit, triton), {})

    def notes(self, commit: str, triton: str) -> dict[Place, tuple[str, ...]]:
        """By workload and target, what was said while its call was recorded."""
        self._read_compiled(commit, triton)
        return self._notes.get((commit, triton), {})

    def tuned(self, commit: str, triton: str) -> dict[Place, tuple[Mapping[str, Any], ...]]:
        """By workload and target, the search spaces of autotuned kernels."""
        self._read_compiled(commit, triton)
        return self._tuned.get((commit, triton), {})

    def statuses(self, commit: str, triton: str) -> dict[Place, str]:
        """What came of compiling, by workload and target: of all that was asked for."""
        self._read_compiled(commit, triton)
        return self._statuses[commit, triton]

    def details(self, commit: str, triton: str) -> dict[Place, str]:
        """By workload and target, the error of what did not go well; empty for the rest."""
        self._read_compiled(commit, triton)
        return self._details.get((commit, triton), {})

    def values(self, commit: str, triton: str) -> dict[Place, Mapping[str, float | None]]:
        """By workload and target, the values by metric; also where asv's results lack them."""
        self._read_compiled(commit, triton)
        return self._values.get((commit, triton), {})

    def calls(self, commit: str, triton: str) -> dict[Place, Call]:
        """By workload and target, the predicted time of the call, where there is one."""
        self._read_compiled(commit, triton)
        return self._calls.get((commit, triton), {})

    def assembler(self, commit: str, triton: str) -> str:
        """What made the machine code, "" where that was not kept."""
        self._read_compiled(commit, triton)
        return self._made.get((commit, triton), ("", {}))[0]

    def devices(self, commit: str, triton: str) -> Mapping[str, str]:
        """By target, the card that its bounds are of."""
        self._read_compiled(commit, triton)
        return self._made.get((commit, triton), ("", {}))[1]

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
        names = (before[:10], after[:10])
        return [
            (kernel, "\n".join(difflib.unified_diff(old, new, *names, n=2, lineterm="")))
            for kernel, old, new in self.codes(before, after, triton, workload, target)
        ]

    def codes(
        self, before: str, after: str, triton: str, workload: str, target: str
    ) -> list[tuple[str, list[str], list[str]]]:
        """(kernel, instructions before, instructions after) of each launch whose code differs."""
        sides = [self.launches(c, triton).get((workload, target), ()) for c in (before, after)]
        if not all(sides):
            return []
        found: list[tuple[str, list[str], list[str]]] = []
        seen = set()
        for i in range(max(map(len, sides))):
            pair = [side[i] if i < len(side) else None for side in sides]
            codes = tuple(one.code if one else "" for one in pair)
            if codes[0] == codes[1] or codes in seen:
                continue
            seen.add(codes)
            kernel = next(one.kernel for one in reversed(pair) if one)
            old, new = (self._code(one)[:MAX_LINES] if one else [] for one in pair)
            if old or new:
                found.append((kernel, old, new))
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
        details = self._details.setdefault((commit, triton), {})
        details |= {p: strict_json.line(one["detail"]) for p, one in kept.results.items()}
        values = self._values.setdefault((commit, triton), {})
        values |= {place: one["values"] for place, one in kept.results.items()}
        self._made[commit, triton] = (kept.assembler, kept.devices)
        for place, result in kept.results.items():
            recorded = result["evidence"]
            files = recorded.get("sources", {})
            known = tuple(frozenset(files.get(name, ())) for name in ("own", "imported"))
            self._sources.setdefault((commit, triton), {})[place] = known
            notes = tuple(map(strict_json.line, recorded.get("notes", ())[:_MOST_NOTES]))
            self._notes.setdefault((commit, triton), {})[place] = notes
            if (time := call.of(recorded)) is not None:
                self._calls.setdefault((commit, triton), {})[place] = time
            spaces = tuple(recorded.get("tuned", ()))
            self._tuned.setdefault((commit, triton), {})[place] = spaces
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
            data = measured_evidence.read_measured(path)
            if data.get("commit") != commit:
                raise RejectedError(path, [f"is not the evidence of commit {commit[:10]}"])
            counted = measured_evidence.counted_by(path, data)
            ceilings = ceilings_of(path, data)
            statuses, states = measured_evidence.outcomes(path, data)
        except RejectedError as error:
            self._reject(error)
            return
        self._states[commit] |= states
        known, methods = self._asked[commit], data.get("methods")
        names = frozenset(methods) if isinstance(methods, dict) else frozenset()
        self._asked[commit] = Asked(
            {**known.statuses, **statuses},
            known.instruments | names,
            counted or known.counted,
            ceilings or known.ceilings,
            {**known.toolchain, **toolchain_of(data)},
        )

    def _reject(self, error: RejectedError) -> None:
        said = strict_json.shown(str(error), self.folders)
        if said not in self.rejected and len(self.rejected) < _MOST_REJECTED:
            self.rejected.append(said)

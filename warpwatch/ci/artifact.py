"""What may come out of an artifact: a measuring job's results, unpacked within limits.

An artifact is made by code of the pull request. Nothing in it names a path, a pull request or a
verdict: names are compared with those expected, and content goes to the strict readers alone.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from warpwatch.judge.results.strict_json import Fields, RejectedError, parse, text

from .github import MAX_ARTIFACT_BYTES, Artifact

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
MAX_FILES = 5_000
MANIFEST = "shard.json"
SCHEMA_VERSION = 1

_NAME = re.compile(
    r"results-(?P<lane>[a-z0-9]{1,20})-(?P<shard>[1-9][0-9]?)-of-(?P<shards>[1-9][0-9]?)"
)
_FILE = re.compile(
    r"results/(?P<machine>[A-Za-z0-9-]{1,63})/(?P<file>[A-Za-z0-9._+-]{1,200}\.json)"
)
# Predicted times are in the evidence of what was compiled.
_COMPILED = re.compile(r"results/evidence/[0-9a-f]{8}-[A-Za-z0-9._+-]{1,80}\.evidence\.xz")
# What else explains a result lies next to it; the judge does not read it.
_EVIDENCE = re.compile(
    r"results/(?:[A-Za-z0-9+_-][A-Za-z0-9._+-]{0,100}/){1,4}[A-Za-z0-9._+-]{1,200}"
)
_BENCHMARKS = "results/benchmarks.json"


@dataclass(frozen=True)
class Shard:
    """One shard's results: which commits it says it measured, and its files, still as bytes."""

    lane: str
    shard: int
    shards: int
    base: str
    head: str
    files: dict[str, bytes]


def name_of(lane: str, shard: int, shards: int) -> str:
    """How the artifact of a shard is called."""
    return f"results-{lane}-{shard}-of-{shards}"


def parse_name(name: str) -> tuple[str, int, int] | None:
    """Lane, shard and number of shards of an artifact's name; ``None`` for any other name."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    return match["lane"], int(match["shard"]), int(match["shards"])


def unpack(name: str, archive: bytes) -> dict[str, bytes]:
    """The files of a zip, by name. ``RejectedError`` names everything that is wrong with it."""
    place = Path(name)
    if len(archive) > MAX_ARTIFACT_BYTES:
        raise RejectedError(place, [f"is larger than {MAX_ARTIFACT_BYTES:,} bytes"])
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as zipped:
            entries = [entry for entry in zipped.infolist() if not entry.is_dir()]
            problems = _entry_problems(entries)
            if problems:
                raise RejectedError(place, problems)
            return {
                entry.filename: _read(zipped, entry, place)
                for entry in entries
                if entry.filename.endswith(".json") or _COMPILED.fullmatch(entry.filename)
            }
    except RejectedError:
        raise
    except Exception as error:
        # zipfile lets through what its decompressors and decoders raise, another set in each
        # Python (zlib.error, LZMAError, IndexError, UnicodeDecodeError were all seen).
        why = f"{type(error).__name__}: {error}"
        raise RejectedError(place, [f"is not a readable zip: {why}"]) from None


def read_shard(name: str, files: dict[str, bytes], lane: str, base: str, head: str) -> Shard:
    """Check an unpacked artifact against what was asked for; ``RejectedError`` lists mistakes.

    ``base`` and ``head`` come from the event. Results of any other commit are refused.
    """
    parsed = parse_name(name)
    if parsed is None or parsed[0] != lane:
        raise RejectedError(Path(name), [f"is not called {name_of(lane, 1, 1)} or alike"])
    _, shard, shards = parsed
    problems: list[str] = []
    if MANIFEST not in files:
        raise RejectedError(Path(name), [f"has no {MANIFEST}: the shard died before its end"])
    manifest = parse(Path(name) / MANIFEST, files[MANIFEST])
    if not isinstance(manifest, dict):
        raise RejectedError(Path(name), [f"{MANIFEST}: expected an object"])
    wanted = {
        "schema_version": SCHEMA_VERSION,
        "lane": lane,
        "shard": shard,
        "shards": shards,
        "base": base,
        "head": head,
    }
    fields = Fields(manifest, problems, f"{MANIFEST} ")
    fields.need(*wanted)
    for key, value in wanted.items():
        if key in manifest and (type(manifest[key]) is not type(value) or manifest[key] != value):
            problems.append(f"{MANIFEST} {key}: expected {value!r}, got {text(manifest[key])}")
    if problems:
        raise RejectedError(Path(name), problems)
    kept = {path: data for path, data in files.items() if path != MANIFEST}
    return Shard(lane, shard, shards, base, head, kept)


def base_of(name: str, files: dict[str, bytes]) -> str:
    """The base that an unpacked artifact says it measured; ``RejectedError`` without one."""
    manifest = parse(Path(name) / MANIFEST, files.get(MANIFEST, b""))
    base = manifest.get("base") if isinstance(manifest, dict) else None
    if not isinstance(base, str):
        raise RejectedError(Path(name), [f"{MANIFEST}: expected a base"])
    return base


def claimed_bases(
    artifacts: Sequence[Artifact],
    download: Callable[[Artifact], bytes],
    lanes: Collection[str],
) -> set[str]:
    """The bases that artifacts say they measured: they choose among pull requests of one head."""
    bases = set()
    for artifact in artifacts:
        parsed = parse_name(artifact.name)
        if parsed is None or parsed[0] not in lanes:
            continue
        try:
            bases.add(base_of(artifact.name, unpack(artifact.name, download(artifact))))
        except RejectedError:
            continue  # it is refused, by name, when it is judged
    return bases


def write_results(shard: Shard, folder: Path, machine: str) -> None:
    """Write the result files below ``folder``, each held to the schema and to the two commits.

    All must be the lane's own ``machine``'s: filed under another, they would meet no record. Each
    is called as asv calls it, by commit and environment: so no commit has two files, of which one
    would count and nobody could say which.

    ``benchmarks.json`` is left out: which way is better is not for a pull request to say.
    """
    from warpwatch.judge.results.asv_results import combinations, read_result  # numpy: not the gate

    problems: list[str] = []
    for path, data in sorted(shard.files.items()):
        if path == _BENCHMARKS:
            continue
        target = folder / PurePosixPath(path).relative_to("results")
        if _COMPILED.fullmatch(path):
            problems += _write_evidence(target, data, (shard.base, shard.head), path)
            continue
        if target.parent.name != machine:
            problems.append(f"{path}: expected results of {machine}")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        if target.name == "machine.json":
            continue
        try:
            result = read_result(target)
        except RejectedError as error:
            problems += [f"{path}: {problem}" for problem in error.problems]
            target.unlink()
            continue
        problems += [f"{path}: {problem}" for problem in result.problems]
        for row in result.rows:
            if len(set(combinations(row.params))) != row.size:
                problems.append(f"{path}: {text(row.benchmark)}: one point is there twice")
        name = f"{result.commit[:8]}-{result.environment}.json"
        if target.name != name:
            problems.append(f"{path}: expected to be called {text(name)}")
            target.unlink()
        elif result.commit not in (shard.base, shard.head):
            problems.append(f"{path}: measures {result.commit[:10]}, which nobody requested")
            target.unlink()
    if problems:
        raise RejectedError(Path(name_of(shard.lane, shard.shard, shard.shards)), problems)


def _write_evidence(target: Path, data: bytes, commits: Collection[str], name: str) -> list[str]:
    """Write a file of evidence. Returns what is wrong with it; then it is not there."""
    from warpwatch.judge.evidence import compiled  # numpy: not the gate

    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    try:
        found = compiled.read(target).commit
        problems = [] if found in commits else [f"speaks of {found[:10]}, which nobody requested"]
    except RejectedError as error:
        problems = list(error.problems)
    if problems:
        target.unlink()
    return [f"{name}: {problem}" for problem in problems]


def _entry_problems(entries: list[zipfile.ZipInfo]) -> list[str]:
    problems = []
    if len(entries) > MAX_FILES:
        problems.append(f"holds {len(entries):,} files, more than {MAX_FILES}")
    total = sum(entry.file_size for entry in entries)
    if total > MAX_UNPACKED_BYTES:
        problems.append(f"unpacks to {total:,} bytes, more than {MAX_UNPACKED_BYTES:,}")
    names = [entry.filename for entry in entries]
    if len(set(names)) != len(names):
        problems.append("holds two files of one name")
    for entry in entries[:MAX_FILES]:
        mode = entry.external_attr >> 16
        if mode and not stat.S_ISREG(mode) and stat.S_IFMT(mode):
            problems.append(f"{text(entry.filename)}: is not a regular file")
        elif not _is_expected(entry.filename):
            problems.append(f"{text(entry.filename)}: is not a file that a measuring job writes")
    return problems


def _is_expected(name: str) -> bool:
    if name in (MANIFEST, _BENCHMARKS):
        return True
    if name.endswith(".json"):
        match = _FILE.fullmatch(name)
        return match is not None and not match["file"].startswith(".")
    return _EVIDENCE.fullmatch(name) is not None and not name.endswith(("/.", "/.."))


def _read(zipped: zipfile.ZipFile, entry: zipfile.ZipInfo, place: Path) -> bytes:
    # The size an archive declares is its own claim: read no further than that.
    with zipped.open(entry) as file:
        data = file.read(entry.file_size + 1)
    if len(data) != entry.file_size:
        raise RejectedError(place, [f"{text(entry.filename)}: its size is not what it declares"])
    return data

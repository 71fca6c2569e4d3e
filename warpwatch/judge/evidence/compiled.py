"""What explains compiled values, as it is kept beside asv's results: read back, strictly.

``RESULTS/evidence`` holds one file a commit and Triton version, ``COMMIT8-TRITON.evidence.xz``
(the first eight digits of the commit), and each listing of machine code once, named by the hash of
the code: ``code/HH/HASH.xz``, where HH are the first two digits. Both are xz streams; a listing is
plain text, one instruction a line. An evidence file is a JSON object as ``_FILE`` below says it;
further keys may come and are ignored. Either may come from a stranger's machine: sizes, types and
names are checked before anything is used, and every mistake of a file is said at once.
"""

from __future__ import annotations

import lzma
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from warpwatch.judge.results import strict_json
from warpwatch.judge.results.strict_json import RejectedError

SCHEMA = 1
FOLDER = "evidence"
SUFFIX = ".evidence.xz"
CODE = "code"

# The fixed set of six targets is 230 kB of JSON, its longest listing 310 kB of text.
MAX_PACKED_BYTES = 8 * 1024 * 1024
MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LISTING_BYTES = 16 * 1024 * 1024
_DECODER_BYTES = 64 * 1024 * 1024
_SHOWN_PROBLEMS = 5
_MOST_NAMED, _LONGEST = 50, 200
_LIMIT = 2**63  # of whole numbers


class _Any:
    """Free keys of an object."""


_HASH = re.compile(r"[0-9a-f]{64}")
_COUNTS = {_Any: int}  # instructions by class: tensor special fma integer shared global local ...
_NUMBER = (float, None)  # None: was not finite

# A type, a pattern a text must match, a tuple of alternatives, a list of such, or an object.
_LAUNCH = {
    "kernel": str,
    "code": _HASH,  # of the machine code, which also names its listing
    "grid": [int],
    "num_warps": int,
    "num_stages": int,
    "num_ctas": int,
    "constants": {_Any: (int, float, str, None)},  # constexpr arguments by name
    "registers": int,  # a thread's; on AMD vector and accumulation registers together
    "stack_bytes": int,
    "spilled_bytes": int,
    "shared_bytes": int,
    "code_bytes": int,
    "compile_seconds": _NUMBER,
    "tensor_core_level": int,  # 0 none, 1 mma.sync or MFMA, 2 wgmma, 3 tcgen05
    "async_copy_level": int,  # 0 plain, 1 cp.async or direct to LDS, 2 TMA
    "multiplies": bool,  # whether the source has matrix products at all
    "advisories": [str],  # of ptxas: "C7515: Potential Performance Loss: wgmma ...", or our own
    "unknown_instructions": [str],
    "instructions": _COUNTS,  # of the whole kernel
    "hot_loops": [_COUNTS],  # of each innermost loop that does work
    "occupancy": {
        "blocks": int,  # an SM or CU holds at once
        "limited_by": str,  # registers, shared memory, warps, blocks
        "limits": {_Any: int},
        "waves": _NUMBER,
        "last_wave_fill": _NUMBER,
    },
    "bound": {
        "us": _NUMBER,
        "limited_by": str,  # tensor, special, fma, shared, memory
        "units_us": {_Any: _NUMBER},
        "tensor_utilization": _NUMBER,
        "repeated_products": _NUMBER,
        "loop_iterations": [_NUMBER],
        "notes": [str],
    },
}
_TORCH_OP = {"name": str, "launches": int, "bytes_moved": int, "copied_bytes": int}
_FAILURE = {"kernel": str, "stage": str, "error": str}
_TUNED = {"kernel": str, "configurations": [str], "recorded": str, "why": str}
_PREDICTED = {
    "clocks": _NUMBER,  # that an SM is at work, on the average
    "us": _NUMBER,
    "limited_by": str,  # tensor, special, fma, shared, memory, L2, latency, ...
    "sure": bool,  # no branch and no loop depends on data
}
_LATER_PREDICTED = {
    "parts": {_Any: _NUMBER},  # clocks by what limits them
    "idle": _NUMBER,  # clocks without work at the end
    "checked": bool,  # whether predictions for the target were compared with a card
}
_LATER: dict[str, Any] = {  # parts that older evidence lacks
    "tuned": [_TUNED],  # the search spaces of autotuned kernels
    "arguments": [str],  # a hash of each launch's arguments
    "predicted": [_PREDICTED],  # of each launch, or none
    "model": str,  # of time, which the predictions are of
    "torch_us": _NUMBER,  # that torch's own operations take at least
    "sources": {"own": [str], "imported": [str]},  # files of the kernels, and what those import
}
_RECORDED = {
    "launches": [_LAUNCH],  # in the order of the call
    "torch_ops": [_TORCH_OP],
    "failures": [_FAILURE],  # launches that did not compile or fit
    "notes": [str],
}
_RESULT = {
    "workload": str,
    "target": str,
    "status": re.compile("ok|compile failed|call failed|not applicable|import failed|not measured"),
    "detail": str,  # one line where the status is not ok
    "values": {_Any: (float, None)},  # by metric; None: does not apply
    "evidence": dict,  # empty where nothing was recorded, else as _RECORDED
}
_FILE = {
    "schema": int,
    "commit": re.compile(r"[0-9a-f]{40}"),
    "triton": re.compile(r"[0-9A-Za-z.+-]{1,40}"),
    "method": str,  # values of different methods are not compared
    "results": [_RESULT],
}


@dataclass(frozen=True)
class Evidence:
    """The evidence of one commit under one Triton version. ``results`` are keyed by workload and
    target, each an object as described above. ``devices`` name the card that a target's bounds are
    of, ``assembler`` is the one that made the machine code; older evidence says neither."""

    commit: str
    triton: str
    method: str
    results: Mapping[tuple[str, str], Mapping[str, Any]]
    devices: Mapping[str, str] = field(default_factory=dict)
    assembler: str = ""


def files(folder: Path) -> tuple[Path, ...]:
    """The evidence files of a folder, by name; none where there is no such folder."""
    return tuple(sorted(folder.glob(f"*{SUFFIX}")))


def read(path: Path) -> Evidence:
    """One evidence file, else ``RejectedError`` with what is wrong about it."""
    content = strict_json.parse(path, _unpacked(path, MAX_FILE_BYTES))
    found = content.get("schema") if isinstance(content, dict) else None
    if found != SCHEMA:
        raise RejectedError(
            path, [f"expected evidence of schema {SCHEMA}, got {strict_json.text(found)}"]
        )
    problems = list(_mistakes(content, _FILE, ""))
    if not problems:
        for i, result in enumerate(content["results"]):
            if result["evidence"]:
                kept = result["evidence"]
                expected = _RECORDED | {k: one for k, one in _LATER.items() if k in kept}
                problems += _mistakes(kept, expected, f"results[{i}].evidence")
                problems += _later_mistakes(kept, f"results[{i}].evidence")
        if not path.name.startswith(f"{content['commit'][:8]}-{content['triton']}"):
            problems.append(f"speaks of commit {content['commit'][:8]}, Triton {content['triton']}")
    if problems:
        more = len(problems) - _SHOWN_PROBLEMS
        shown = problems[:_SHOWN_PROBLEMS] + ([f"and {more} more"] if more > 0 else [])
        raise RejectedError(path, shown)
    return Evidence(
        commit=content["commit"],
        triton=content["triton"],
        method=content["method"],
        results={(one["workload"], one["target"]): one for one in content["results"]},
        devices=_lines(content.get("devices")),
        assembler=_lines({"": content.get("assembler")}).get("", ""),
    )


def _later_mistakes(kept: Mapping[str, Any], where: str) -> Iterator[str]:
    """The same of what older predictions lack."""
    predicted = kept.get("predicted")
    for i, one in enumerate(predicted if isinstance(predicted, list) else ()):
        if isinstance(one, dict):
            expected = {key: found for key, found in _LATER_PREDICTED.items() if key in one}
            yield from _mistakes(one, expected, f"{where}.predicted[{i}]")


def _lines(value: Any) -> dict[str, str]:
    """Texts by name, each in one line; whatever is none is left out."""
    named = list(value.items())[:_MOST_NAMED] if isinstance(value, dict) else []
    return {
        strict_json.line(name)[:_LONGEST]: strict_json.line(said)[:_LONGEST]
        for name, said in named
        if strict_json.is_text(said)
    }


def launches(result: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """The launches of one result, in the order of the call."""
    return tuple(result["evidence"].get("launches", ()))


def spoken_code(path: Path) -> set[str]:
    """The names of the code that an evidence file speaks of."""
    return {one["code"] for result in read(path).results.values() for one in launches(result)}


def listing(folder: Path, code: str) -> str:
    """The machine code called ``code``, one instruction a line, else ``RejectedError``: the
    evidence that names it may be older than a pruning, or not of this folder."""
    path = listing_path(folder, code)
    try:
        return _unpacked(path, MAX_LISTING_BYTES).decode()
    except UnicodeDecodeError as error:
        raise RejectedError(path, [f"is no text at byte {error.start}"]) from None


def listing_path(folder: Path, code: str) -> Path:
    """Where the listing of ``code`` lies. Only a hash makes a name."""
    if not _HASH.fullmatch(code):
        raise ValueError(f"expected the hash of machine code, 64 hex digits, got {code[:80]!r}")
    return folder / CODE / code[:2] / f"{code}.xz"


def _unpacked(path: Path, limit_bytes: int) -> bytes:
    """An xz stream of a file, unpacked within limits of size and memory."""
    packed = strict_json.read_bytes(path, MAX_PACKED_BYTES)
    stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_DECODER_BYTES)
    try:
        data = stream.decompress(packed, max_length=limit_bytes + 1)
    except lzma.LZMAError as error:
        raise RejectedError(path, [f"is no xz file: {error}"]) from None
    if len(data) > limit_bytes:
        raise RejectedError(path, [f"unpacks to more than the limit of {limit_bytes:,} bytes"])
    if not stream.eof:
        raise RejectedError(path, ["is cut short: measure the commit again"])
    return data


def _mistakes(value: Any, expected: Any, where: str) -> Iterator[str]:
    """Where ``value`` is not as ``expected``."""
    alternatives = expected if isinstance(expected, tuple) else (expected,)
    if any(_fits(value, one) for one in alternatives):
        for one in alternatives:
            if isinstance(one, list):
                for i, item in enumerate(value):
                    yield from _mistakes(item, one[0], f"{where}[{i}]")
            elif isinstance(one, dict):
                yield from _mistakes_of_object(value, one, where)
        return
    words = " or ".join(_words(one) for one in alternatives)
    yield f"{where or 'the file'}: expected {words}, got {strict_json.text(value)}"


def _mistakes_of_object(
    value: Mapping[str, Any], expected: Mapping[Any, Any], where: str
) -> Iterator[str]:
    if _Any in expected:
        for name, item in value.items():
            yield from _mistakes(item, expected[_Any], f"{where}.{strict_json.line(name[:60])}")
        return
    for name, one in expected.items():
        place = f"{where}.{name}".lstrip(".")
        if name not in value:
            yield f"{place}: is missing"
        else:
            yield from _mistakes(value[name], one, place)


def _fits(value: Any, expected: Any) -> bool:
    if expected is None:
        return value is None
    if expected is float and isinstance(value, float):
        return math.isfinite(value)
    if expected is int or expected is float:
        return isinstance(value, int) and abs(value) < _LIMIT
    if isinstance(expected, type):
        return isinstance(value, expected)
    if isinstance(expected, re.Pattern):
        return isinstance(value, str) and expected.fullmatch(value) is not None
    return isinstance(value, type(expected))  # list or dict: what they hold is looked at after


def _words(expected: Any) -> str:
    if expected is None:
        return "null"
    if isinstance(expected, re.Pattern):
        return f"text like {expected.pattern}"
    if isinstance(expected, list | dict) or expected is dict:
        return "a list" if isinstance(expected, list) else "an object"
    names = {str: "text", int: "a whole number", float: "a finite number", bool: "true or false"}
    return names[expected]

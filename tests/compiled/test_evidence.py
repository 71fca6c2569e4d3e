"""Evidence beside asv's results: kept once and read strictly."""

from __future__ import annotations

import json
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import triton

from warpwatch.config import targets
from warpwatch.instruments.compiled import METHOD_VERSION, Measurement
from warpwatch.instruments.compiled.measure import evidence, packing
from warpwatch.instruments.compiled.measure.workload import measure_call
from warpwatch.judge.evidence import compiled as kept_evidence

LIBRARY = """
import torch, triton
import triton.language as tl

@triton.jit
def double(x, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    b_x = tl.load(x + o, mask=o < n)
    tl.store(x + o, b_x + b_x, mask=o < n)

# The same under another name.
@triton.jit
def renamed(x, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    b_x = tl.load(x + o, mask=o < n)
    tl.store(x + o, b_x + b_x, mask=o < n)

@triton.jit
def triple(x, n, N: tl.constexpr):
    o = tl.program_id(0) * N + tl.arange(0, N)
    b_x = tl.load(x + o, mask=o < n)
    tl.store(x + o, b_x * 3 + 1, mask=o < n)

def with_double(): double[(4,)](torch.empty(1000, device="cuda"), 1000, N=256)
def with_renamed(): renamed[(4,)](torch.empty(1000, device="cuda"), 1000, N=256)
def with_triple(): triple[(4,)](torch.empty(1000, device="cuda"), 1000, N=256)
"""
# A stream that asks for 128 MB to be read.
WIDE = {"id": lzma.FILTER_LZMA2, "dict_size": 128 * 1024 * 1024, "mode": lzma.MODE_FAST}
OLD, NEW, OTHER = "a" * 40, "b" * 40, "c" * 40
PAIR = ("w", "sm_90")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Measurement]]:
    """One measurement of each function of the library, all called by one workload's name."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "evidence_library.py").write_text(LIBRARY)
    sys.path.insert(0, str(folder))
    found = {}
    for name in ("double", "renamed", "triple"):
        one = measure_call(f"evidence_library:with_{name}", targets.get("sm_90"))
        assert one.status == "ok", one.detail
        found[name] = Measurement("w", one.target, "ok", "", one.values, one.evidence, one.code)
    yield found
    sys.path.remove(str(folder))


@pytest.fixture
def stored(measured: dict[str, Measurement], tmp_path: Path) -> Path:
    evidence.store(tmp_path, OLD, [measured["double"]])
    evidence.store(tmp_path, NEW, [measured["triple"]])
    return tmp_path


def content(path: Path) -> Any:
    return json.loads(lzma.decompress(path.read_bytes()))


def rewritten(path: Path, changed: Any) -> None:
    path.write_bytes(packing.pack(json.dumps(changed)))


def file_of(folder: Path, commit: str) -> Path:
    return folder / f"{commit[:8]}-{triton.__version__}.evidence.xz"


def read(folder: Path, commit: str) -> kept_evidence.Evidence:
    return kept_evidence.read(file_of(folder, commit))


def test_evidence_is_read_back(stored: Path, measured: dict[str, Measurement]) -> None:
    found = read(stored, OLD)
    assert (found.commit, found.triton, found.method) == (OLD, triton.__version__, METHOD_VERSION)
    result = found.results[PAIR]
    assert result["status"] == "ok"
    assert result["values"]["launches"] == 1
    assert result["values"]["async_copy_level"] is None  # it multiplies no matrices
    assert result["evidence"] == measured["double"].evidence
    assert not list(stored.rglob("*.json"))  # asv warns of strangers' .json files


def test_equal_code_is_kept_once(stored: Path, measured: dict[str, Measurement]) -> None:
    before = sorted(stored.glob("code/*/*"))
    assert len(before) == 2
    evidence.store(stored, OTHER, [measured["renamed"]])
    assert sorted(stored.glob("code/*/*")) == before


def test_only_a_commit_has_evidence(stored: Path, measured: dict[str, Measurement]) -> None:
    with pytest.raises(ValueError, match="expected the 40 digits of a commit, got 'working tree'"):
        evidence.store(stored, "working tree", [measured["double"]])


# Files that are not what they should be -----------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-40], "is cut short: measure the commit again"),
        (lambda data: b"", "is cut short"),
        (lambda data: b"not xz" + data, "is no xz file"),
        (lambda data: lzma.compress(b"{"), "not JSON"),
        (lambda data: lzma.compress(b"[]"), "expected evidence of schema 1, got None"),
        (lambda data: lzma.compress(b'{"schema": 99}'), "expected evidence of schema 1, got 99"),
        (
            lambda data: lzma.compress(b'{"schema": "%s"}' % (b"x" * 9_000)),
            r"got 'x{56}\.\.\.$",
        ),
        # 80 MB of blanks in 12 kB.
        (lambda data: lzma.compress(b" " * 80_000_000, preset=0), "unpacks to more than the limit"),
        (lambda data: lzma.compress(b"{}", filters=[WIDE]), "is no xz file: Memory usage limit"),
    ],
    ids=["cut", "empty", "foreign", "text", "list", "schema", "long", "bomb", "memory"],
)
def test_a_damaged_file_is_one_clear_message(stored: Path, damage: Any, message: str) -> None:
    path = file_of(stored, OLD)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        read(stored, OLD)
    assert str(caught.value).startswith(str(path))


def changed(key: str, value: Any) -> Any:
    def change(file: Any) -> None:
        (result,) = file["results"]
        (launch,) = result["evidence"]["launches"]
        owner = next(one for one in (launch, launch["bound"], result, file) if key in one)
        owner[key] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("commit", "../../x"), r"commit: expected text like .*, got '../../x'"),
        (changed("commit", "d" * 40), "speaks of commit dddddddd"),
        (changed("results", {}), "results: expected a list, got {}"),
        (changed("code", "../../../etc/passwd"), r"launches\[0\].code: expected text like"),
        (changed("kernel", 3), r"launches\[0\].kernel: expected text, got 3"),
        (changed("us", float("inf")), r"bound.us: expected a finite number or null, got inf"),
        (changed("registers", 10**300), r"launches\[0\].registers: expected a whole number"),
        (changed("values", {"a\n::error::\x1b": "x"}), r"values\.a ::error:: : expected a finite"),
        (changed("status", "fine"), r"results\[0\].status: expected text like ok|compile failed"),
        (changed("evidence", {"launches": []}), r"results\[0\].evidence.notes: is missing"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_strangers_file_is_refused(stored: Path, change: Any, message: str) -> None:
    path = file_of(stored, OLD)
    file = content(path)
    change(file)
    rewritten(path, file)
    with pytest.raises(ValueError, match=message):
        read(stored, OLD)


def test_all_mistakes_of_a_file_are_said_at_once(stored: Path) -> None:
    path = file_of(stored, OLD)
    file = content(path)
    changed("kernel", 3)(file)
    changed("grid", ["x"] * 9)(file)
    rewritten(path, file)
    with pytest.raises(ValueError, match=r"kernel: .*grid\[0\]: .*grid\[3\].*and 5 more"):
        read(stored, OLD)


def test_further_keys_are_ignored(stored: Path) -> None:
    path = file_of(stored, OLD)
    file = content(path)
    file["later"] = file["results"][0]["later"] = {"x": [None]}
    rewritten(path, file)
    assert read(stored, OLD).commit == OLD


def test_a_listing_is_text_of_its_code_and_only_a_hash_names_one(stored: Path) -> None:
    (launch,) = kept_evidence.launches(read(stored, OLD).results[PAIR])
    assert "EXIT" in kept_evidence.listing(stored, launch["code"])
    kept_evidence.listing_path(stored, launch["code"]).unlink()
    with pytest.raises(ValueError, match=rf"{launch['code']}.xz: cannot be opened"):
        kept_evidence.listing(stored, launch["code"])
    with pytest.raises(ValueError, match="expected the hash of machine code"):
        kept_evidence.listing(stored, "../../x")


def test_a_pipe_hangs_nothing(stored: Path) -> None:
    path = file_of(stored, OLD)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="is not a regular file"):
        read(stored, OLD)

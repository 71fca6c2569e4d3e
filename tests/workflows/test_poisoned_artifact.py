"""What an attacker can put into a pull request's artifact: each is refused, and by name."""

from __future__ import annotations

import io
import json
import random
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workflows.flow import GOOD_BASE, ONE_OF_ONE, SAME_HEAD, WORSE_HEAD, judge
from tests.workflows.stand_in import (
    BASE,
    HEAD,
    MACHINE,
    NUMBER,
    OTHER,
    SPILLS,
    StandIn,
    honest,
    manifest,
    result,
    result_name,
    zipped,
)
from warpwatch.ci import artifact
from warpwatch.judge.results.strict_json import RejectedError

GOOD = honest(SAME_HEAD, GOOD_BASE)
HEAD_FILE = result_name(HEAD)
MARKUP = "<img src=x onerror=alert(1)> @everyone [x](javascript:y) `|"
ROWS = {**SAME_HEAD, "results": {SPILLS: [[0], [[repr(i) for i in range(1000)]] * 3, "1"]}}
PYTEST_BENCHMARK = {
    "version": "4.0.0",
    "datetime": "2026-01-01T00:00:00",
    "machine_info": {"node": MACHINE},
    "commit_info": {"id": HEAD},
    "benchmarks": [{"name": "x", "fullname": "x", "params": None, "stats": {"median": 1.0}}],
}
LINK = "results/compile-lane/deadbeef-x.json"


def with_file(name: str, content: str | bytes, mode: int = 0o100644) -> bytes:
    """An honest artifact but for one file."""
    return zipped(GOOD | {name: content}, {name: mode})


# Artifacts of an attacker, by what they try.
POISONS: dict[str, Callable[[], bytes]] = {
    "markup in a name": lambda: with_file(f"results/{MARKUP}.json", "{}"),
    "markup in values": lambda: with_file(
        HEAD_FILE, json.dumps({**SAME_HEAD, "env_name": MARKUP, "commit_hash": MARKUP})
    ),
    "a thousand million rows": lambda: with_file(HEAD_FILE, json.dumps(ROWS)),
    "another pull request's commit": lambda: with_file(
        "shard.json", json.dumps(manifest(head=OTHER, pull_request=8))
    ),
    "a pull request number in a file": lambda: with_file("pr-number.txt", "8"),
    "a path that climbs out": lambda: with_file("results/compile-lane/../../../out.json", "{}"),
    "an absolute path": lambda: with_file("/tmp/out.json", "{}"),
    "a backslash path": lambda: with_file("results\\..\\..\\out.json", "{}"),
    "a symlink": lambda: with_file(LINK, "/etc/passwd", stat.S_IFLNK | 0o777),
    "a device": lambda: with_file(LINK, "", stat.S_IFCHR | 0o666),
    "results under another machine's key": lambda: zipped(
        {k.replace(f"/{MACHINE}/", "/mine/"): v for k, v in GOOD.items()}
    ),
    "results of another commit": lambda: with_file(
        result_name(OTHER), json.dumps({**SAME_HEAD, "commit_hash": OTHER})
    ),
    "a bomb": lambda: with_file(HEAD_FILE, b" " * (artifact.MAX_UNPACKED_BYTES + 1)),
    "too many files": lambda: zipped(
        GOOD | {f"results/m/{i}.json": "{}" for i in range(artifact.MAX_FILES)}
    ),
    "two files of one name": lambda: duplicated(),
    "a zip cut in half": lambda: zipped(GOOD)[:400],
    "a zip whose content is broken": lambda: broken(zipfile.ZIP_DEFLATED),
    "a zip of another compression, broken": lambda: broken(zipfile.ZIP_LZMA),
    "no zip at all": lambda: b"#!/bin/sh\nrm -rf /\n",
    "a forged base": lambda: zipped(honest(WORSE_HEAD, result(BASE, [0, 96, 8], [3, 1, 2]))),
    "a base that claims to have failed": lambda: zipped(
        honest(WORSE_HEAD, result(BASE, [0, None, 8], [3, None, 2]))
    ),
    "text for a number": lambda: with_file(
        HEAD_FILE, json.dumps(SAME_HEAD).replace("[0, 0, 8]", '["0", 0, 8]')
    ),
    "another tool's results": lambda: with_file(HEAD_FILE, json.dumps(PYTEST_BENCHMARK)),
    "no durations": lambda: with_file(HEAD_FILE, json.dumps(SAME_HEAD | {"durations": "long"})),
    "text for a duration": lambda: with_file(
        HEAD_FILE, json.dumps(SAME_HEAD | {"durations": {"build": "long"}})
    ),
    "deep nesting": lambda: with_file(HEAD_FILE, "[" * 100_000 + "]" * 100_000),
}


def duplicated() -> bytes:
    """A zip with two files of one name: readers disagree on which one counts."""
    buffer = io.BytesIO(zipped(honest(SAME_HEAD, GOOD_BASE)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr("shard.json", json.dumps(manifest()))
    return buffer.getvalue()


def broken(method: int) -> bytes:
    """A zip whose directory is right and whose first file's bytes are not."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("shard.json", json.dumps(manifest()))
    data = bytearray(buffer.getvalue())
    start = zipfile.sizeFileHeader + len("shard.json")
    data[start : start + 12] = b"\xff" * 12
    return bytes(data)


def test_mutants_of_an_honest_artifact_are_read_or_refused() -> None:
    """Whatever a zip holds, nothing but a refusal comes out of reading it."""
    honest_zip = zipped(GOOD)
    chance = random.Random(8)
    refused = 0
    for _ in range(600):
        data = bytearray(honest_zip)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            artifact.unpack(ONE_OF_ONE, bytes(data))
        except RejectedError:
            refused += 1
    assert 100 < refused < 600


@pytest.mark.parametrize("poison", list(POISONS))
def test_a_poisoned_artifact_changes_nothing_but_the_message_that_it_was_refused(
    github: StandIn, tmp_path: Path, poison: str
) -> None:
    github.artifacts[ONE_OF_ONE] = POISONS[poison]()
    judge(tmp_path)
    before = {"event.json", "trusted", "verdict.json", "versions.toml"}
    assert {path.name for path in tmp_path.iterdir()} == before
    assert not Path("/tmp/out.json").exists()
    (check,) = github.checks
    assert check["conclusion"] == "failure", "neutral would satisfy a required check"
    assert check["output"]["title"].startswith("refused")
    (comment,) = github.comments
    assert set(github.written) == {("POST", "check-runs"), ("POST", f"issues/{NUMBER}/comments")}
    body = comment["body"]
    assert "refused: `" in body
    assert "regression" not in body
    outside = "".join(body.split("`")[::2])
    assert "<img" not in outside and "@everyone" not in outside and "](java" not in outside
    assert len(body.encode()) < 60_000

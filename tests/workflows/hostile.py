"""Two hundred hostile artifacts, each with a head that is worse: by name, made from a seed.

None of them may write a good number where the bad one stood: that is a lie about head, which the
default branch finds after the merge. Everything else is tried.
"""

from __future__ import annotations

import io
import json
import random
import stat
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.workflows.flow import GOOD_BASE, SAME_HEAD, WORSE_HEAD
from tests.workflows.stand_in import (
    BASE,
    BENCHMARKS,
    ENVIRONMENT,
    HEAD,
    LEVEL,
    MACHINE,
    OTHER,
    POINTS,
    SPILLS,
    honest,
    manifest,
    result,
    result_name,
    zipped,
)

FILES = honest(WORSE_HEAD, GOOD_BASE)
HEAD_FILE, BASE_FILE = result_name(HEAD), result_name(BASE)
FORGED = result(BASE, [0, 96, 8], [3, 1, 2])
NAMES = [repr(point) for point in POINTS]
MARKUP = "<img src=x onerror=alert(1)> @everyone [x](javascript:y) ![](http://x) `|\n## yes"
BIDI = "\u202egreen\u2066\u0000\x1b[32m"
ODD: dict[str, Any] = {
    "text": "0",
    "markup": MARKUP,
    "true": True,
    "a list": [0],
    "an object": {"value": 0},
    "null": None,
    "below zero": -1,
    "minus infinity": -1e999,
    "a long integer": 10**400,
    "below zero, long": -(10**400),
}
TYPES: dict[str, Any] = {
    "null": None,
    "a number": 3,
    "text": MARKUP,
    "a list": [[]],
    "an object": {"a": {}},
    "true": True,
    "bidi": BIDI,
}


def changed(document: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> str:
    copy = json.loads(json.dumps(document))
    change(copy)
    return json.dumps(copy)


def cells() -> Iterator[tuple[str, bytes]]:
    """One value of one benchmark is odd; the other benchmark is as bad as it is."""
    for name, value in ODD.items():
        for where, benchmark in (("spills", SPILLS), ("level", LEVEL)):
            text = changed(WORSE_HEAD, lambda d, b=benchmark, v=value: put(d, b, 1, v))
            yield f"head {where} {name}", zipped(FILES | {HEAD_FILE: text})
            text = changed(FORGED, lambda d, b=benchmark, v=value: put(d, b, 1, v))
            yield f"base {where} {name}", zipped(FILES | {BASE_FILE: text})


def put(document: dict[str, Any], benchmark: str, at: int, value: Any) -> None:
    document["results"][benchmark][0][at] = value


def fields() -> Iterator[tuple[str, bytes]]:
    """One field of a result, of its row or of the manifest is of another type."""
    for field in ("commit_hash", "env_name", "params", "result_columns", "results", "version"):
        for name, value in TYPES.items():
            text = json.dumps(WORSE_HEAD | {field: value})
            yield f"{field}: {name}", zipped(FILES | {HEAD_FILE: text})
    for column in range(5):
        for name in ("null", "text", "a list", "an object"):
            text = changed(WORSE_HEAD, lambda d, c=column, v=TYPES[name]: row(d, c, v))
            yield f"column {column}: {name}", zipped(FILES | {HEAD_FILE: text})
    for key in ("schema_version", "lane", "shard", "shards", "base", "head"):
        for name, value in (("true", True), ("text", "1"), ("half", 1.5), ("other", OTHER)):
            document = json.dumps(manifest() | {key: value})
            yield f"manifest {key}: {name}", zipped(FILES | {"shard.json": document})


def row(document: dict[str, Any], column: int, value: Any) -> None:
    document["results"][SPILLS][column] = value


def disguises() -> Iterator[tuple[str, bytes]]:
    """A forged base, under parameters or names that are not those on record."""
    shapes: dict[str, Callable[[list[Any]], list[str]]] = {
        "reversed": lambda names: names[::-1],
        "quoted otherwise": lambda _: [f'"{point}"' for point in POINTS],
        "not quoted": lambda _: list(POINTS),
        "one more": lambda names: [*names, "'z'"],
        "one more, first": lambda names: ["'z'", *names],
        "twice": lambda names: [*names, POINTS[1]],
        "none": lambda _: [],
        "with a space": lambda names: [f" {name}" for name in names],
    }
    for name, shape in shapes.items():
        both = []
        for document in (WORSE_HEAD, FORGED):
            values = {
                n: dict(zip(NAMES, r[0], strict=True)) for n, r in document["results"].items()
            }
            names = shape(NAMES)

            def reshape(d: dict[str, Any], names: list[str] = names, v: Any = values) -> None:
                for benchmark, entry in d["results"].items():
                    known = {key.strip("'"): value for key, value in v[benchmark].items()}
                    good = 0 if benchmark == SPILLS else 3
                    seen: set[str] = set()
                    entry[0] = []
                    for one in names:
                        plain = one.strip(" '\"")
                        entry[0].append(good if plain in seen else known.get(plain, good))
                        seen.add(plain)
                    entry[1] = [names]

            both.append(changed(document, reshape))
        files = FILES | {HEAD_FILE: both[0], BASE_FILE: both[1]}
        yield f"parameters {name}", zipped(files)
    for version in ("9", "", None, 1, "1 "):
        both = [
            changed(d, lambda x, v=version: [r.__setitem__(2, v) for r in x["results"].values()])
            for d in (WORSE_HEAD, FORGED)
        ]
        files = FILES | {HEAD_FILE: both[0], BASE_FILE: both[1]}
        yield f"method {version!r}", zipped(files)
    for more in ("zzz", "A", ENVIRONMENT + "0", "a" * 180, "..", "%2e%2e"):
        name = f"results/{MACHINE}/{HEAD[:8]}-{more}.json"
        yield f"a second head, {more[:9]}", zipped(FILES | {name: json.dumps(SAME_HEAD)})
        files = {k.replace(ENVIRONMENT, more): v.replace(ENVIRONMENT, more)
                 for k, v in honest(WORSE_HEAD, FORGED).items()}  # fmt: skip
        yield f"environment {more[:9]}", zipped(files)


# Where a path that climbs out of any folder, to the root and down again, would leave a file.
OUTSIDE = Path(tempfile.gettempdir()) / "hostile-out.json"
CLIMBS = {
    "climbs out of results": "results/" + "../" * 16 + str(OUTSIDE).lstrip("/"),
    "climbs out of a machine": "results/compile-lane/" + "../" * 16 + str(OUTSIDE).lstrip("/"),
    "is absolute": str(OUTSIDE),
}
PATHS = (
    "../out.json", "results/../../out.json", "results\\..\\out.json",
    "C:\\out.json", "results/compile-lane/../../../out.json", "results//x.json", "./shard.json",
    "results/compile-lane/.git/config.json", "results/.hidden/x.json", "results/a/b/c/d/e/f.json",
    f"results/{MARKUP}.json", f"results/{BIDI}.json", "results/compile-lane/x.json/", "",
    "results/compile-lane/" + "a" * 300 + ".json", "results/COMPILE-LANE/x.json", "shard.json ",
    "results/compile-lane/machine.json\u200b", "results/benchmarks.json/x.json", "NUL", "aux.json",
    "results/compile-lane/\u0430aaaaaaa-x.json", "pr-number", "verdict.json", "GITHUB_OUTPUT",
)  # fmt: skip
MODES = {
    "a link": stat.S_IFLNK | 0o777,
    "a pipe": stat.S_IFIFO | 0o666,
    "a device": stat.S_IFCHR | 0o666,
    "a block device": stat.S_IFBLK | 0o666,
    "a socket": stat.S_IFSOCK | 0o666,
    "a folder": stat.S_IFDIR | 0o777,
}


def archives() -> Iterator[tuple[str, bytes]]:
    """What is wrong is the zip itself."""
    for path in PATHS:
        yield f"path {path[:30]!r}", zipped(FILES | {path: "{}"})
    for name, path in CLIMBS.items():
        yield name, zipped(FILES | {path: "{}"})
    for name, mode in MODES.items():
        link = f"results/{MACHINE}/deadbeef-x.json"
        yield name, zipped(FILES | {link: "/etc/passwd"}, {link: mode})
    good = zipped(FILES)
    chance = random.Random(47)
    for size in (0, 1, 21, 22, len(good) // 2, len(good) - 1):
        yield f"cut after {size} bytes", good[:size]
    for number in range(12):
        data = bytearray(good)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        yield f"broken {number}", bytes(data)
    yield (
        "a script before it",
        b"#!/bin/sh\ntouch " + str(OUTSIDE).encode() + b"\n" + good + b"exit\n",
    )
    yield (
        "encrypted",
        good.replace(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01"),
    )
    yield "declares more than it holds", declared(good, 2**31)
    yield "declares nothing", declared(good, 0)
    yield "json with a mark", zipped(FILES | {HEAD_FILE: "\ufeff" + FILES[HEAD_FILE]})
    yield "json of two bytes", zipped(FILES | {HEAD_FILE: FILES[HEAD_FILE].encode("utf-16")})
    yield "json in json", zipped(FILES | {HEAD_FILE: json.dumps(FILES[HEAD_FILE])})
    twice = FILES[HEAD_FILE][:-1] + ', "results": {}}'
    yield "a key twice", zipped(FILES | {HEAD_FILE: twice})
    yield (
        "many keys",
        zipped(FILES | {HEAD_FILE: json.dumps(WORSE_HEAD | dict.fromkeys(map(str, range(9999))))}),
    )
    yield "deep", zipped(FILES | {HEAD_FILE: '{"a":' * 50_000 + "1" + "}" * 50_000})
    yield "deep manifest", zipped(FILES | {"shard.json": "[" * 100_000})
    turned = {n: {**e, "better": "", "role": "evidence"} if isinstance(e, dict) else e
              for n, e in BENCHMARKS.items()}  # fmt: skip
    yield "directions turned", zipped(FILES | {"results/benchmarks.json": json.dumps(turned)})
    yield "no head", zipped({k: v for k, v in FILES.items() if k != HEAD_FILE})
    yield "no base", zipped({k: v for k, v in FILES.items() if k != BASE_FILE})
    yield "an empty zip", zipped({})


def declared(archive: bytes, size: int) -> bytes:
    """The same zip, whose directory claims another size for its first file."""
    data = bytearray(archive)
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", size)
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        assert file.infolist()
    return bytes(data)


def artifacts() -> dict[str, bytes]:
    """All of them, by name."""
    found: dict[str, bytes] = {}
    for name, data in (*cells(), *fields(), *disguises(), *archives()):
        assert name not in found, name
        found[name] = data
    return found

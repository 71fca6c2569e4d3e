"""Writes what an installation holds, as CycloneDX: ``python -m tools.bill_of_materials reports``.

Of a use's lock: each package with its version, its address as a package URL and the hashes that pip
holds its files against. The same lock gives the same bytes, so a bill can be compared.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Sequence
from typing import Any

import warpwatch
from tools.locks import LOCKS, ROOT, split

SPECIFICATION = "1.6"
_PIN = re.compile(r"([a-z0-9-]+)==([^\s;\\]+)")
_NAMES = uuid.UUID("6f0f5f3c-7f0b-5d0e-9f3a-2c6b8f6f4d47")


def main() -> int:
    """0 when the bill is printed."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bill_of_materials", description=__doc__, allow_abbrev=False
    )
    parser.add_argument(
        "uses", nargs="+", choices=sorted(path.stem for path in LOCKS.glob("*.txt"))
    )
    parser.add_argument(
        "--backend", action="append", metavar="NAME", help="of these images only (default: all)"
    )
    args = parser.parse_args()
    print(json.dumps(bill(args.uses, args.backend), indent=1, sort_keys=True))
    return 0


def bill(uses: list[str], backends: Sequence[str] | None = None) -> dict[str, Any]:
    """The bill of the uses' locks and of the images' bases; of all images where none is named."""
    texts = [(LOCKS / f"{use}.txt").read_text(encoding="utf-8") for use in uses]
    found = {one["bom-ref"]: one for text in texts for one in packages(text)}
    components = [*found.values(), *bases(backends)]
    component = {"type": "application", "name": "warpwatch", "bom-ref": "root"}
    component["version"] = warpwatch.__version__
    return {
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMES, json.dumps(components, sort_keys=True))}",
        "version": 1,
        "metadata": {"component": component},
        "components": components,
        "dependencies": [
            {"ref": "root", "dependsOn": sorted(one["bom-ref"] for one in components)}
        ],
    }


def packages(text: str) -> list[dict[str, Any]]:
    """The packages of a lock."""
    found = []
    for entry in split(text):
        match = _PIN.match(entry)
        if match is None:
            continue
        name, version = match[1], match[2]
        address = f"pkg:pypi/{name}@{version}"
        hashes = sorted(set(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))
        found.append(
            {
                "type": "library",
                "bom-ref": address,
                "name": name,
                "version": version,
                "purl": address,
                "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
            }
        )
    return found


def bases(backends: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The images that ours are built on, by digest."""
    document = tomllib.loads((ROOT / "docker" / "versions.toml").read_text(encoding="utf-8"))
    found = []
    for backend, section in document["backends"].items():
        if backends is not None and backend not in backends:
            continue
        for key in ("base", "counters"):
            if key not in section:
                continue
            name, tag = section[key].split(":")
            digest = section["digest" if key == "base" else "counters_digest"]
            short, path = name.rpartition("/")[2], name
            address = (
                f"pkg:oci/{short}@{digest.replace(':', '%3A')}?repository_url={path}&tag={tag}"
            )
            content = digest.removeprefix("sha256:")
            found.append(
                {
                    "type": "container",
                    "bom-ref": address,
                    "name": name,
                    "version": tag,
                    "purl": address,
                    "hashes": [{"alg": "SHA-256", "content": content}],
                }
            )
    return found


if __name__ == "__main__":
    sys.exit(main())

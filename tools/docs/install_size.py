"""Measure what an installation from the public index takes, for the documents.

    python -m tools.docs.install_size [--out FILE]

The light base is installed into a new environment: seconds and disk are its own. What the extras
download is resolved by pip and summed up from the sizes that the index states: nothing of it is
downloaded. With torch's CPU build they are installed, too. That build comes from another index, so
pip's own settings must find it: ``PIP_INDEX_URL`` or ``PIP_EXTRA_INDEX_URL`` name it. The file is
committed; ``python -m tools.docs.results`` writes its figures into pages.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tools.docs.figures.install import FILE
from tools.root import ROOT

PUBLIC = ("--isolated", "--index-url", "https://pypi.org/simple")
AS_SET = ()
"""Options of pip that take the packages from where its settings say."""


def requirements(*extras: str) -> list[str]:
    """Read what the harness requires.

    Args:
        *extras: Its extras.

    Returns:
        Requirements as pip takes them.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(one for extra in extras for one in optional[extra])]


def resolved(wanted: list[str], source: tuple[str, ...] = PUBLIC) -> list[dict[str, Any]]:
    """Ask pip which files it would download.

    Args:
        wanted: Requirements.
        source: Options of pip that say from where.

    Returns:
        Name, version and bytes of each.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip = [sys.executable, "-m", "pip", "install", *source]
        dry = ["--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *dry, *wanted], check=True, timeout=900)
        install = json.loads(report.read_text(encoding="utf-8"))["install"]
    return [
        {
            "name": one["metadata"]["name"],
            "version": one["metadata"]["version"],
            "bytes": _size(one["download_info"]["url"]),
        }
        for one in install
    ]


def _size(url: str) -> int:
    if url.startswith("file:"):
        return Path(urllib.request.url2pathname(urlsplit(url).path)).stat().st_size
    request = urllib.request.Request(url, method="HEAD")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return int(answer.headers["Content-Length"])


def installed(wanted: list[str], source: tuple[str, ...] = PUBLIC) -> dict[str, float]:
    """Install requirements into a new environment.

    Args:
        wanted: Requirements.
        source: Options of pip that say from where.

    Returns:
        Seconds that pip took, and bytes on disk without pip itself.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=300)
        before = _bytes(Path(folder))
        python = str(Path(folder) / "bin" / "python")
        pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", *source]
        began = time.monotonic()
        subprocess.run([*pip, *wanted], check=True, timeout=900)
        seconds = time.monotonic() - began
        return {"seconds": round(seconds, 1), "disk_bytes": _bytes(Path(folder)) - before}


def _bytes(folder: Path) -> int:
    files = (one for one in folder.rglob("*") if one.is_file() and not one.is_symlink())
    return sum(one.stat().st_size for one in files)


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the file.

    Args:
        arguments: Of the command line; those of the process without.

    Returns:
        0; 2 where pip finds no CPU build of torch.
    """
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs.install_size",
        description="Measure what an installation from the public index takes.",
    )
    parser.add_argument("--out", type=Path, default=FILE, metavar="FILE", help="%(default)s")
    out = parser.parse_args(arguments).out
    everything = requirements("asv", "triton")
    without_cuda = resolved(everything, AS_SET)
    torch = next(one["version"] for one in without_cuda if one["name"] == "torch")
    if not torch.endswith("+cpu"):
        parser.error(
            f"expected torch's CPU build where pip's settings look, found torch {torch}: "
            "name its index in PIP_INDEX_URL or PIP_EXTRA_INDEX_URL"
        )
    document = {
        "schema_version": 1,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "base": {"packages": resolved(requirements()), **installed(requirements())},
        "asv,triton": {"packages": resolved(everything)},
        "asv,triton on torch's CPU build": {
            "packages": without_cuda,
            **installed(everything, AS_SET),
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Makes what a release consists of: ``python -m tools.release files --tag v0.2.0 --out dist``.

``files`` builds the wheel and writes its bill of materials. ``image`` builds and pushes one image,
and writes its digest and bill. ``publish`` makes GitHub's release of them. ``release.yml`` runs
each in a job of its own, and attests between them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import warpwatch
from tools.bill_of_materials import bill
from tools.root import ROOT

# What a wheel's user may install, by its lock.
WHEEL_USES = ("reports", "gpu", "compile", "cuda")
IMAGE_USES = {"cpu": ("development", "cpu"), "cuda": ("image",), "rocm": ("image",)}
WHEEL_BILL = "warpwatch.cdx.json"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_REGISTRY = re.compile(r"[a-z0-9.:-]+(?:/[a-z0-9._-]+)+")


def main() -> int:
    """0 when it is made; a message where something does not agree or a program fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.release", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("action", choices=("files", "image", "publish"))
    parser.add_argument("--tag", required=True, help="the tag that is released: v0.2.0")
    parser.add_argument("--out", type=Path, default=Path("dist"), metavar="DIR")
    parser.add_argument("--backend", choices=sorted(IMAGE_USES), help="of the image")
    parser.add_argument("--registry", default="", metavar="HOST/OWNER", help="where it is pushed")
    parser.add_argument("--actor", default="", help="who pushes, with $GITHUB_TOKEN")
    args = parser.parse_args()
    problems = disagreements(args.tag)
    if problems:
        sys.exit("\n".join(f"error: {problem}" for problem in problems))
    args.out.mkdir(parents=True, exist_ok=True)
    if args.action == "files":
        files(args.out)
    elif args.action == "image":
        image(args.backend or parser.error("--backend: expected one"), args)
    else:
        publish(args.tag, args.out)
    return 0


def disagreements(tag: str, root: Path = ROOT) -> list[str]:
    """What in the checkout names another version than the tag."""
    version = tag.removeprefix("v")
    problems = []
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        problems.append(f"--tag: expected one such as v0.2.0, got {tag!r}")
    if warpwatch.__version__ != version:
        problems.append(f"warpwatch/__init__.py has version {warpwatch.__version__}, not {version}")
    if not notes(version, root):
        problems.append(f"CHANGELOG.md has no section [{version}]")
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    if f"\nversion: {version}\n" not in citation:
        problems.append(f"CITATION.cff has another version than {version}")
    return problems


def notes(version: str, root: Path = ROOT) -> str:
    """The section of a version in the changelog."""
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    match = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    )
    return match[1].strip() if match else ""


def files(out: Path) -> None:
    """The wheel, in a folder of its own that holds nothing else, and its bill."""
    # The same commit gives the same bytes: an archive holds the times of its files.
    when = _said("git", "log", "-1", "--format=%ct")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(out / "wheel"), str(ROOT)]
    subprocess.run(command, check=True, env=os.environ | {"SOURCE_DATE_EPOCH": when})
    _write(out / WHEEL_BILL, bill(list(WHEEL_USES), backends=()))


def image(backend: str, args: argparse.Namespace) -> None:
    """One image, pushed, with its digest as ``sha256sum`` writes it, and its bill."""
    name = f"{args.registry.lower()}/warpwatch"
    if not _REGISTRY.fullmatch(name):
        sys.exit(f"error: --registry: expected HOST/OWNER, got {args.registry!r}")
    tag = f"{name}:{args.tag.removeprefix('v')}-{backend}"
    build = [sys.executable, "-m", "warpwatch", "container", "build"]
    subprocess.run([*build, "--backend", backend, "--tag", tag], check=True, cwd=ROOT)
    # The token is never part of a command, which other processes see.
    login = ["docker", "login", name.partition("/")[0], "--username", args.actor]
    token = os.environ.get("GITHUB_TOKEN", "")
    subprocess.run([*login, "--password-stdin"], check=True, input=f"{token}\n", text=True)
    subprocess.run(["docker", "push", "--quiet", tag], check=True)
    listing = _said("docker", "image", "inspect", "--format", "{{json .RepoDigests}}", tag)
    digests = [one.removeprefix(f"{name}@") for one in json.loads(listing)]
    found = [match[1] for one in digests if (match := _DIGEST.fullmatch(one))]
    if len(found) != 1:
        sys.exit(f"error: expected one digest of {name}, docker says {listing}")
    (args.out / f"image-{backend}.sha256").write_text(f"{found[0]}  {name}\n", encoding="utf-8")
    document = bill(list(IMAGE_USES[backend]), backends=(backend,))
    _write(args.out / f"image-{backend}.cdx.json", document)


def publish(tag: str, out: Path) -> None:
    """GitHub's release: the wheel, the bills and the images' digests."""
    assets = sorted(str(path) for path in out.rglob("*") if path.is_file())
    command = ["gh", "release", "create", tag, "--verify-tag", "--title", tag, "--notes-file", "-"]
    text = notes(tag.removeprefix("v"))
    subprocess.run([*command, *assets], check=True, input=f"{text}\n", text=True)


def _said(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


def _write(path: Path, document: dict[str, object]) -> None:
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

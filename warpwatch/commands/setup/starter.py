"""What ``init --workflows`` writes: images, and workflows that call Warpwatch's own by version.

Jobs on hosted runners are called from Warpwatch's repository, at one version. Jobs on a GPU machine
are written out: an organisation's runner group admits only workflows of its own repositories.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import warpwatch

_STARTER = "starter"
_PARTS = ("docker", ".github/workflows")
# Of a checkout; a wheel is built without them (setup.py). The last four are called by version.
OWN = (
    "actionlint",
    "ci-packages.txt",
    "release.mk",
    "release.yml",
    "tests.yml",
    "tools.mk",
    "tools.txt",
    "warpwatch-compile.yml",
    "warpwatch-lane.yml",
    "warpwatch-publish.yml",
    "warpwatch-verdict.yml",
)
# What the targets of targets.mk write into a checkout, as lines of .gitignore.
IGNORED = (
    *("/.warpwatch-*/", "/.asv/", "/.lane/", "/.delivery/", "/.trusted/", "/.artifacts/"),
    *("/.merged/", "/.site/", "/reports/html/"),
)
_CALL = re.compile(r"uses: \./(\.github/workflows/(warpwatch-\w+\.yml)) #.*")
_SOURCE = re.compile(r"^WARPWATCH \?= .*$", re.MULTILINE)
_GIVEN = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+?)(?:@(?P<version>[\w./-]+))?")
_SHORTENED = re.compile(r"(?=.*[a-f])[0-9a-f]{7,39}")  # digits only may be the tag of a day
_ADDRESS = re.compile(
    r"(?:git\+)?(?:https://(?:[^/@]*@)?|ssh://git@|git@)(?P<host>[\w.-]+)[/:]"
    r"(?P<repository>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)


@dataclass(frozen=True)
class Origin:
    """Where Warpwatch's own workflows are: ``OWNER/NAME`` on a host, and the version of it."""

    repository: str
    version: str
    comment: str = ""
    """What a version that is a commit stands for."""
    host: str = "github.com"

    @property
    def address(self) -> str:
        """What pip installs the same version from, without a password."""
        return f"git+https://{self.host}/{self.repository}@{self.version}"


def origin_of(given: str, package: Path | None = None) -> Origin:
    """Where the workflows to call are.

    Args:
        given: ``OWNER/NAME``, with ``@VERSION`` for another than this one; empty: where this
            Warpwatch was installed from.
        package: The folder of the installed package (tests give another).

    Returns:
        The place.

    Raises:
        ValueError: It is not known, or not such a place.
    """
    release = f"v{warpwatch.__version__}"
    if given:
        match = _GIVEN.fullmatch(given)
        if match is None:
            raise ValueError(f"--from: expected OWNER/NAME or OWNER/NAME@VERSION, got {given!r}")
        version = match["version"] or release
        if _SHORTENED.fullmatch(version):
            raise ValueError(
                f"--from: GitHub calls workflows by all 40 digits of a commit, got {version!r}: "
                f"`git rev-parse {version}` prints them in a clone of Warpwatch"
            )
        return Origin(match["repository"], version)
    found = _installed_from() or _clone(package or Path(warpwatch.__file__).resolve().parents[1])
    if found is None:
        raise ValueError(
            "--from: expected OWNER/NAME of the repository on GitHub that holds Warpwatch; this "
            "one was not installed from there, so it is not known"
        )
    return found


def _installed_from() -> Origin | None:
    """What pip has written down of a package that came from a repository or from a clone."""
    try:
        text = metadata.distribution("warpwatch").read_text("direct_url.json")
        known = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    address = str(known.get("url", ""))
    if "dir_info" in known:
        return _clone(Path(address.removeprefix("file://")))
    match = _ADDRESS.fullmatch(address)
    commit = str(known.get("vcs_info", {}).get("commit_id", ""))
    if match is None or not commit:
        return None
    asked = str(known["vcs_info"].get("requested_revision", ""))
    return Origin(match["repository"], commit, asked if asked != commit else "", match["host"])


def _clone(folder: Path) -> Origin | None:
    address = _git(folder, "remote", "get-url", "origin")
    match = _ADDRESS.fullmatch(address)
    commit = _git(folder, "rev-parse", "HEAD")
    if match is None or not commit:
        return None
    tag = _git(folder, "describe", "--tags", "--exact-match")
    return Origin(match["repository"], commit, tag, match["host"])


def _git(folder: Path, *arguments: str) -> str:
    # Of a folder inside another repository git would tell that one's.
    if not (folder / ".git").exists():
        return ""
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def write(root: Path, origin: Origin) -> None:
    """Write the images and workflows; what exists is refused, all at once.

    Args:
        root: The project's folder.
        origin: Whose workflows they call.

    Raises:
        ValueError: A file exists already.
    """
    source = _source()
    files = [path for part in _PARTS for path in sorted((source / part).rglob("*"))]
    files = [one for one in files if not {*OWN, "__pycache__"} & {*one.relative_to(source).parts}]
    pairs = [(one, root / one.relative_to(source)) for one in files if one.is_file()]
    there = [str(target.relative_to(root)) for _, target in pairs if target.exists()]
    if there:
        raise ValueError(
            f"these files exist already, and nothing was written: {', '.join(there[:10])}"
            + (f" and {len(there) - 10} more" if len(there) > 10 else "")
        )
    for one, target in pairs:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(one, target)
        shutil.copymode(one, target)
        if one.suffix in (".yml", ".mk"):
            target.write_text(written(one.read_text(encoding="utf-8"), origin), encoding="utf-8")
    print(f"{len(pairs)} files written below docker and .github/workflows", file=sys.stderr)
    print(f"they call the workflows of {origin.repository} at {origin.version}", file=sys.stderr)
    if lines := " ".join(f"'{line}'" for line in _not_ignored(root)):
        print(
            "git does not ignore yet the folders that their steps write here; this adds them: "
            f"printf '%s\\n' {lines} >> .gitignore",
            file=sys.stderr,
        )


def _not_ignored(root: Path) -> list[str]:
    """Lines that ``.gitignore`` lacks; none outside of a repository."""
    lines = []
    for line in IGNORED:
        folder = line.replace("*", "venv").removeprefix("/")
        command = ["git", "-C", str(root), "check-ignore", "--quiet", "--no-index", "--", folder]
        if subprocess.run(command, capture_output=True).returncode == 1:
            lines.append(line)
    return lines


def written(text: str, origin: Origin) -> str:
    """A file of Warpwatch's as a project has it: by version in place of by folder."""
    comment = f" # {origin.comment}" if origin.comment else ""

    def call(match: re.Match[str]) -> str:
        if match[2] not in OWN:
            return match[0]
        return f"uses: {origin.repository}/{match[1]}@{origin.version}{comment}"

    return _SOURCE.sub(lambda _: f"WARPWATCH ?= {origin.address}", _CALL.sub(call, text))


def _source() -> Path:
    package = Path(__file__).resolve().parents[2]
    packed = package / _STARTER
    return packed if packed.is_dir() else package.parent  # a checkout has them at its root

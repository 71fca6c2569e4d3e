"""What may leave a results folder that foreign code could write: plain files within limits.

Whoever reads the folder afterwards, a report here or an upload on a runner, follows links and
opens what it finds. So what is neither a file of its own nor a folder goes before that.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# The judge's own limits, which reads what is delivered; not imported, because a workflow's plan is
# made where nothing but Python is installed.
MAX_BYTES = 256 * 1024 * 1024
MAX_FILES = 5_000
MANIFEST = "shard.json"

# What a lane hands over; the rest of the folder is asv's own working place.
HANDED_OVER = ("results", MANIFEST)
_MAX_DEPTH = 8
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Nothing is followed, and a pipe that takes a file's place in between does not make us wait.
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Stranger:
    """Something that no measuring job leaves, and what it is."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path.encode('unicode_escape').decode()[:200]} ({self.why})"


def sweep(folder: Path) -> list[Stranger]:
    """Remove what is no plain file or folder from what ``folder`` hands over; what that was.

    Where there was any, the manifest goes too: a job that tried this delivers nothing complete.
    """
    if folder.is_dir() and not folder.is_symlink():
        # A folder that nobody may enter could not be removed by the next job, which would end
        # there, and every one after it. chmod follows no link below its argument.
        subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], capture_output=True)
    found = [one for _, one in _entries(folder) if isinstance(one, Stranger)]
    for stranger in found:
        # rm copes with trees of any depth, and follows nothing either.
        subprocess.run(["rm", "-rf", "--", str(folder / stranger.path)], capture_output=True)
    if found:
        (folder / MANIFEST).unlink(missing_ok=True)
    return found


def deliver(
    folder: Path, out: Path, max_bytes: int = MAX_BYTES, max_files: int = MAX_FILES
) -> list[Stranger]:
    """Copy what ``folder`` hands over to ``out``, within the judge's limits; what was refused.

    Safe even while somebody still writes there: each file is judged by what was opened.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    refused: list[Stranger] = []
    count = total = 0
    for parent, entry in _entries(folder):
        if isinstance(entry, Stranger):
            refused.append(entry)
            continue
        count += 1
        if count > max_files:
            refused.append(Stranger(entry, f"one of more than {max_files:,} files"))
            break
        try:
            source = os.open(Path(entry).name, _OPEN, dir_fd=parent)
        except OSError as error:
            refused.append(Stranger(entry, f"cannot be read: {error.strerror}"))
            continue
        with os.fdopen(source, "rb") as file:
            found = os.fstat(file.fileno())
            why = _why_not(found)
            if not why and total + found.st_size > max_bytes:
                why = f"with it there are more than {max_bytes:,} bytes"
            if why:
                refused.append(Stranger(entry, why))
                continue
            target = out / entry
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read(found.st_size))
            total += found.st_size
    if refused:
        (out / MANIFEST).unlink(missing_ok=True)
    return refused


def _entries(folder: Path) -> Iterator[tuple[int, str | Stranger]]:
    """Plain files and strangers below ``folder``, each with the open folder it lies in."""
    try:
        top = os.open(folder, _OPEN | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        for name in HANDED_OVER:
            yield from _entry(top, name, name, 0)
    finally:
        os.close(top)


def _entry(parent: int, name: str, path: str, depth: int) -> Iterator[tuple[int, str | Stranger]]:
    try:
        found = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    # Undecodable bytes are not printable either. A `.git` would be a repository to the data branch.
    if not path.isprintable() or "\\" in path or name.startswith("."):
        yield parent, Stranger(path, "a name that no measuring job gives")
    elif not stat.S_ISDIR(found.st_mode):
        why = _why_not(found)
        yield parent, Stranger(path, why) if why else path
    elif depth == _MAX_DEPTH:
        yield parent, Stranger(path, f"more than {_MAX_DEPTH} folders deep")
    else:
        try:
            inside = os.open(name, _OPEN | os.O_DIRECTORY, dir_fd=parent)
        except OSError as error:
            yield parent, Stranger(path, f"cannot be read: {error.strerror}")
            return
        try:
            with os.scandir(inside) as entries:
                names = sorted(entry.name for entry in entries)
            for below in names:
                yield from _entry(inside, below, f"{path}/{below}", depth + 1)
        finally:
            os.close(inside)


def _why_not(found: os.stat_result) -> str:
    """What it is, unless it is a regular file with no second name."""
    kind = _KINDS.get(stat.S_IFMT(found.st_mode), "")
    if not kind and found.st_nlink > 1:
        return f"a hard link, one of {found.st_nlink} names of a file"
    return kind

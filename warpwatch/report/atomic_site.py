"""How a site reaches the disk: written beside the old one, then put in its place at once."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType

# Only a folder with this file in it is ever replaced: a wrong --out must not delete anyone's work.
STAMP = ".warpwatch-site"
_STALE_S = 3600
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


class FreshSite:
    """A site under construction next to ``out``; ``publish`` swaps the two, leaving drops it."""

    def __init__(self, out: Path):
        if out.exists() and not is_site(out) and (not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out}: is not a report of ours and not empty; choose another --out")
        self._out = out
        out.parent.mkdir(parents=True, exist_ok=True)
        for stale in out.parent.glob(f".{out.name}.new-*"):  # of a build that was killed
            if time.time() - stale.stat().st_mtime > _STALE_S:
                shutil.rmtree(stale, ignore_errors=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.new-", dir=out.parent))
        self.folder.chmod(0o755)
        self._made = {self.folder}
        self.written = self.kept = 0

    def __enter__(self) -> FreshSite:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def folders(self, *names: str) -> None:
        for name in names:
            self._parent(self.folder / name / "x")

    def write(self, path: str, content: str | bytes) -> None:
        target = self.folder / path
        self._parent(target)
        target.write_bytes(content if isinstance(content, bytes) else encoded(content))
        self.written += 1

    def keep(self, path: str) -> bool:
        """Takes a page of the old site over as it is; false where the old site has none."""
        target = self.folder / path
        self._parent(target)
        try:
            os.link(self._out / path, target)
        except FileNotFoundError:
            return False
        except OSError:  # no hard links here
            try:
                shutil.copyfile(self._out / path, target)
            except OSError:
                return False
        self.kept += 1
        return True

    def old(self, path: str) -> bytes:
        """A page of the old site, empty where it has none."""
        try:
            return (self._out / path).read_bytes()
        except OSError:
            return b""

    def publish(self, stamp: str) -> None:
        """Puts the new site in place of the old one; at no moment is there half of either."""
        (self.folder / STAMP).write_text(stamp)
        if not self._out.exists():
            self.folder.rename(self._out)
        elif not _exchange(self.folder, self._out):
            old = Path(tempfile.mkdtemp(prefix=f".{self._out.name}.old-", dir=self._out.parent))
            self._out.rename(old / "site")
            self.folder.rename(self._out)
            shutil.rmtree(old)

    def _parent(self, target: Path) -> None:
        if target.parent not in self._made:
            target.parent.mkdir(parents=True, exist_ok=True)
            self._made.add(target.parent)


def encoded(text: str) -> bytes:
    # Names of any origin may hold lone surrogates, which UTF-8 cannot.
    return text.encode("utf-8", "replace")


def is_site(out: Path) -> bool:
    return (out / STAMP).is_file()


def stamp_of(out: Path) -> str:
    """What the site was built from, empty where there is none."""
    try:
        return (out / STAMP).read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def _exchange(one: Path, other: Path) -> bool:
    """Swaps two folders in one step, where the system can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    paths = (os.fsencode(one), os.fsencode(other))
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)

"""Installs what a lock holds by two pips at once: ``python -m tools.install development``.

Most of what pip does is to unpack, which keeps one core at work for a minute, most of it for torch.
What torch, Triton and their largest neighbours hold is unpacked by one, the rest by another. Needs
nothing but Python, and is run before anything is installed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import locks
from tools.root import ROOT

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile")
# Half of the time that all take.
LARGEST = frozenset(("torch", "triton"))
_LOCK = "--requirement"


def halves(lock: str) -> tuple[str, str]:
    """The requirements of a lock in two files: the largest, and all others.

    Args:
        lock: Its text; a requirement begins a line, and what belongs to it is indented.

    Returns:
        The text of both, in the order of the lock.
    """
    entries = [one for one in locks.split(lock) if not one.startswith("#")]
    large = [one for one in entries if one.partition("==")[0] in LARGEST]
    parts = (large, [one for one in entries if one not in large])
    return "\n".join(parts[0]), "\n".join(parts[1])


def install(arguments: list[str]) -> int:
    """Have pip install what ``docker/pip_arguments.py`` says.

    Args:
        arguments: pip's own.

    Returns:
        The exit code; of two pips the first that is not 0.
    """
    if _LOCK not in arguments:  # pins without hashes, whose needs pip finds itself
        return subprocess.run([sys.executable, *PIP, *arguments]).returncode
    at = arguments.index(_LOCK) + 1
    parts = halves(Path(arguments[at]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        running = []
        for number, text in enumerate(parts):
            part = Path(folder, f"{number}.txt")
            part.write_text(text, encoding="utf-8")
            # Other builds of torch, which a second lock names, belong to the first.
            others = arguments[at + 1 :] if number == 0 else []
            # A lock holds all that is needed: two that looked for needs would install them twice.
            given = [*arguments[:at], str(part), *others, "--no-deps"]
            running.append(subprocess.Popen([sys.executable, *PIP, *given]))
        codes = [one.wait() for one in running]
    return next((code for code in codes if code), 0)


def main() -> int:
    """Install for one use, which the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tools.install", description=__doc__)
    parser.add_argument("use", help="a lock of docker/locks, such as development")
    use = parser.parse_args().use
    command = [sys.executable, str(ROOT / "docker" / "pip_arguments.py"), use]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return said.returncode or install(shlex.split(said.stdout))


if __name__ == "__main__":
    sys.exit(main())

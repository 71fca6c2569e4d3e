"""Keeps text of unknown origin from speaking to the runner that shows it.

A line such as ``::add-mask::`` or ``##[set-output …]`` is an order to GitHub's runner, whoever
printed it. Between ``::stop-commands::WORD`` and ``::WORD::`` the runner takes none; the word is
random, so nobody who prints in between knows it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr

# They print what measured code, its results or an artifact say.
_FOREIGN = (
    ("ci", "judge"),
    ("ci", "merge"),
    ("ci", "record"),
    ("container", "clean"),
    ("container", "deliver"),
    ("container", "run"),
)


@contextmanager
def unheeded(command: Sequence[str]) -> Iterator[None]:
    """Where ``command`` prints foreign text in a workflow, the runner takes no orders from it."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or tuple(command[:2]) not in _FOREIGN:
        yield
        return
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        # The runner reads two streams in any order: a line of the other could come too late.
        with redirect_stderr(sys.stdout):
            yield
    finally:
        # What was printed last may have ended in the middle of a line.
        print(f"\n::{word}::", flush=True)

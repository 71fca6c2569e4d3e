"""A lock is installed by two pips at once: together they install all of it, each thing once."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.root import ROOT
from tools import install

LOCK = (ROOT / "docker" / "locks" / "development.txt").read_text(encoding="utf-8")


def names(text: str) -> list[str]:
    return re.findall(r"^([A-Za-z0-9][\w.-]*)==", text, re.MULTILINE)


def test_the_halves_of_a_lock_are_the_whole() -> None:
    large, rest = install.halves(LOCK)
    assert set(names(large)) == install.LARGEST
    assert sorted(names(large) + names(rest)) == names(LOCK)
    hashes = [part.count("--hash=sha256:") for part in (large, rest, LOCK)]
    assert hashes[0] + hashes[1] == hashes[2] and min(hashes) > 0


@pytest.mark.parametrize(("failing", "code"), [("", 0), ("torch", 7), ("numpy", 7)])
def test_each_pip_has_its_half_and_what_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, code: int
) -> None:
    """In place of pip a program writes what it is given."""
    pip = tmp_path / "pip.py"
    pip.write_text(
        "import pathlib, sys\n"
        "given = sys.argv[1:]\n"
        "lock = pathlib.Path(given[given.index('--requirement') + 1])\n"
        f"place = pathlib.Path({str(tmp_path)!r}, lock.stem + '.given')\n"
        "place.write_text(lock.read_text() + '\\n# ' + ' '.join(given))\n"
        f"sys.exit(7 if {failing!r} and '\\n{failing}==' in '\\n' + lock.read_text() else 0)\n"
    )
    monkeypatch.setattr(install, "PIP", (str(pip),))
    lock = tmp_path / "development.txt"
    lock.write_text(LOCK)
    given = ["--require-hashes", "--requirement", str(lock), "--constraint", "cpu.txt"]
    assert install.install(given) == code
    large, rest = ((tmp_path / f"{part}.given").read_text() for part in range(2))
    assert "--constraint cpu.txt" in large and "--constraint" not in rest
    assert all("--no-deps" in part and "--require-hashes" in part for part in (large, rest))
    assert set(names(large)) == install.LARGEST and "numpy" in names(rest)


def test_pins_without_hashes_are_one_pips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip = tmp_path / "pip.py"
    pip.write_text("import sys\nsys.exit(len(sys.argv) - 1)\n")
    monkeypatch.setattr(install, "PIP", (str(pip),))
    assert install.install(shlex.split("torch==1.0 numpy==2.0")) == 2

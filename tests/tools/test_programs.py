"""Programs of tools/: each says how it is run and answers --help; no other one is named."""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
from pathlib import Path

import pytest

from tests.root import ROOT

NAMED = re.compile(r"\bpython -m (tools(?:\.[a-z_0-9]+)+)\b(?!\.\w)")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


def is_program(path: Path) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(one, ast.If) and "__name__" in ast.unparse(one.test) for one in body)


PROGRAMS = {
    module_of(path): path for path in sorted((ROOT / "tools").rglob("*.py")) if is_program(path)
}


@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_says_how_it_is_run_and_answers_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = ast.get_docstring(ast.parse(PROGRAMS[name].read_text(encoding="utf-8"))) or ""
    assert f"python -m {name}" in text
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    # A program that replaced this process would end all tests, and well.
    for kind in ("execv", "execve", "execvp", "execvpe"):
        monkeypatch.setattr(os, kind, None)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m {name} ")


def test_commands_that_are_named_are_programs() -> None:
    named = {}
    for folder, ending in ((".", "*.md"), ("docs", "**/*.md"), ("reports/published", "*.md")):
        for document in (ROOT / folder).glob(ending):
            for command in NAMED.findall(document.read_text(encoding="utf-8")):
                named[command] = document.name
    for package in ("kernels", "warpwatch", "benchmarks", "examples", "tools", "tests"):
        for path in (ROOT / package).rglob("*.py"):
            for command in NAMED.findall(path.read_text(encoding="utf-8")):
                named[command] = path.name
    assert "tools.evidence" in named
    assert {one: where for one, where in named.items() if one not in PROGRAMS} == {}

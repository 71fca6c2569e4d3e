"""The method's hash changes with what is measured, and with nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.instruments import commit, counters, rocprof
from benchmarks.instruments.method import method_hash, part_hash, version

CODE = '''
"""Measures."""
LIMIT = 3

def measure(call):
    """Times a call."""
    return call() * LIMIT
'''


def written(folder: Path, text: str) -> str:
    file = folder / "code.py"
    file.write_text(text, encoding="utf-8")
    return method_hash(str(file))


def test_comments_docstrings_and_lines_do_not_count(tmp_path: Path):
    other = CODE.replace("Times a call.", "Times one call of it.").replace(
        "LIMIT = 3", "\n\n# a comment\nLIMIT = 3"
    )
    assert written(tmp_path, other) == written(tmp_path, CODE)


def test_a_threshold_counts(tmp_path: Path):
    assert written(tmp_path, CODE.replace("= 3", "= 4")) != written(tmp_path, CODE)


def test_the_order_of_files_counts(tmp_path: Path):
    one, two = tmp_path / "one.py", tmp_path / "two.py"
    one.write_text("A = 1", encoding="utf-8")
    two.write_text("B = 2", encoding="utf-8")
    assert method_hash(str(one), str(two)) != method_hash(str(two), str(one))


def test_a_part_changes_with_what_it_names_alone(tmp_path: Path):
    file = tmp_path / "code.py"

    def of(text: str, *names: str) -> str:
        file.write_text(text, encoding="utf-8")
        return part_hash(str(file), *names)

    other_limit = CODE.replace("= 3", "= 4")
    assert of(other_limit, "measure") == of(CODE, "measure")
    assert of(other_limit, "LIMIT") != of(CODE, "LIMIT")
    method = "class Card:\n" + "".join(f"    {line}\n" for line in CODE.splitlines())
    assert of(method, "Card.measure") == of(CODE, "measure")
    assert of(method.replace("call()", "call(1)"), "Card.measure") != of(CODE, "measure")
    with pytest.raises(ValueError, match=r"code\.py defines no Card\.run: expected what a method"):
        of(method, "Card.run")


def test_a_metric_has_a_version_of_its_own_once_the_code_that_makes_it_changed():
    began_with = version("latency-1", "", "parts", "as they were").rpartition("-")[2]
    assert version("latency-1", began_with, "parts", "as they were") == "latency-1"
    assert version("latency-2", began_with, "parts", "as they were") == "latency-2"
    changed = version("latency-1", began_with, "parts", "as they are")
    assert changed.startswith("latency-1-") and changed != "latency-1"


def test_a_border_of_one_metric_leaves_its_instruments_others(monkeypatch: pytest.MonkeyPatch):
    usual = commit._methods()
    assert set(usual) == {"latency", "ncu", "gpm", "allocator", "accuracy"}
    monkeypatch.setitem(commit.INSTRUMENTS, "peak_share", ("latency", "latency-1-changed"))
    assert commit._methods() == {**usual, "peak_share": "latency-1-changed"}


def test_on_amd_the_counters_are_rocprofs_and_nothing_else_changes(monkeypatch: pytest.MonkeyPatch):
    usual = commit._methods()
    monkeypatch.setattr(counters, "on_hip", lambda: True)
    assert commit._methods() == {**usual, "rocprofv3": rocprof.METHOD_VERSION}

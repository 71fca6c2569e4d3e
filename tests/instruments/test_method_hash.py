"""The method's hash changes with what is measured, and with nothing else."""

from __future__ import annotations

from pathlib import Path

from benchmarks.instruments.method import method_hash

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

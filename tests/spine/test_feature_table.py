"""Every feature this project claims beside others is held by a test that exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path("docs/kernels/features.md")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`(?:, cases? `([^`]+)`)?")


def rows() -> list[list[str]]:
    table = PAGE.read_text(encoding="utf-8").split("## Sources")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def collected(files: set[str]) -> list[str]:
    """What pytest finds in ``files``: file::test[case]."""
    command = [sys.executable, "-m", "pytest", "-o", "addopts=", "--collect-only", "-q"]
    ran = subprocess.run([*command, *sorted(files)], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    return ran.stdout.splitlines()


def has_case(case: str, ids: list[str]) -> bool:
    """Whether a case is called so: ``D=72`` as D72, too."""
    return any(
        name in one.partition("[")[2] for one in ids for name in (case, case.replace("=", ""))
    )


def test_each_cell_of_ours_names_tests_that_exist() -> None:
    ours = [(feature, cell, TEST.findall(cell)) for feature, cell, *_ in rows()]
    found = collected({file for _, _, named in ours for file, _, _ in named})
    wrong = []
    for feature, cell, named in ours:
        if not named and cell != "not yet" and not cell.startswith("every test above"):
            wrong.append(f"{feature}: names no test")
        for file, test, case in named:
            ids = [one for one in found if one.split("[")[0] == f"{file}::{test}"]
            if not ids:
                wrong.append(f"{feature}: there is no {file}::{test}")
            elif case and not has_case(case, ids):
                wrong.append(f"{feature}: {file}::{test} has no case {case}")
    assert not wrong, "\n".join(wrong)


def test_the_table_is_whole() -> None:
    assert len(rows()) >= 20
    for row in rows():
        assert len(row) == 7 and all(row), row


def test_what_is_claimed_elsewhere_is_a_test_too() -> None:
    """Pages name tests by function, or by the start of one."""
    sources = "".join(file.read_text(encoding="utf-8") for file in Path("tests").rglob("*.py"))
    log = Path("docs/log")  # says what was, in the words of its day
    for file in [one for one in Path("docs").rglob("*.md") if not one.is_relative_to(log)]:
        page = file.read_text(encoding="utf-8")
        for name in re.findall(r"`(test_\w+)\*?`", page):
            assert f"def {name}" in sources or list(Path("tests").rglob(f"{name}.py")), (file, name)
        for name in re.findall(r"`(test_\w+\.py)`", page):
            assert list(Path("tests").rglob(name)), (file, name)


def test_no_attention_kernel_adds_by_atomics() -> None:
    """What is added in the order of arrival differs from run to run, but for integers: Hopper's
    backward pass adds those, by the copy engine (hopper/backward/row_stats.py)."""
    folder = Path("kernels/attention")
    files = list(folder.rglob("*.py"))
    assert len(files) > 10
    sources = {str(file.relative_to(folder)): file.read_text("utf-8") for file in files}
    assert [name for name, text in sources.items() if re.search(r"\batomic_\w+\(", text)] == []
    adding = [name for name, text in sources.items() if "create_async_tma_reduce" in text]
    assert adding == ["hopper/backward/one_pass/sums.py"]
    callers = [name for name, text in sources.items() if "add_to_global(" in text]
    assert callers == adding
    assert len(re.findall(r"(?<!def )\badd_to_global\(", sources[adding[0]])) == 1
    sums = "sums = torch.empty((all_rows, config.columns), dtype=torch.int32"
    assert sums in sources["hopper/backward/launch.py"]

"""The kernels' pages: examples run in the interpreter, and names of code are today's.

Pages: index.md, attention.md, decoding.md, matmul.md, fp8.md.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import kernels
from tests.documents.python_blocks import blocks, run
from tests.kernels.interpreted import Worker
from tests.root import ROOT

FOLDER = ROOT / "docs" / "kernels"
PAGES = sorted(FOLDER.rglob("*.md"))
WITH_EXAMPLES = [page for page in PAGES if any(one[0] == "python" for one in blocks(page))]
SOURCES = "".join(
    one.read_text(encoding="utf-8")
    for folder in ("kernels", "warpwatch", "tests", "tools")
    for one in (ROOT / folder).rglob("*.py")
)
# Words of code that a page explains: constants, functions, classes. Arguments are in examples.
NAMES = re.compile(
    r"`(_?[A-Z][A-Z_0-9]{2,}|_[a-z_]+|[A-Z][a-z]+[A-Z]\w+|attention_\w+|matmul_\w+)`"
)
NO_CODE = {"TRITON_INTERPRET", "ROWS_GUARANTEED_SAFE"}  # of Triton, of FlexAttention


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.close()


def without_a_gpu(page: Path) -> int:
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    return run(page)


def test_every_example_runs_in_the_interpreter(interpreter: Worker) -> None:
    ran = {page.name: interpreter.run(without_a_gpu, page) for page in WITH_EXAMPLES}
    assert len(WITH_EXAMPLES) >= 5 and all(int(examples) > 0 for examples in ran.values())


@pytest.mark.parametrize("name", kernels.__all__)
def test_docstrings_say_what_comes_in_and_out(name: str) -> None:
    function = getattr(kernels, name)
    text = inspect.getdoc(function) or ""
    summary, blank, *_ = text.splitlines()
    assert summary.endswith(".") and not blank
    parts = re.split(r"^(Args|Returns|Raises|Examples):$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    arguments = list(inspect.signature(function).parameters)
    assert re.findall(r"^    (\w+): ", sections.get("Args", ""), re.MULTILINE) == arguments
    assert {"Returns", "Examples"} | ({"Args", "Raises"} if arguments else set()) == set(sections)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(FOLDER)))
def test_a_block_runs_is_a_sketch_or_says_why_not(page: Path) -> None:
    kept = [
        f"line {line}"
        for language, line, _, before in blocks(page)
        if language not in ("python", "text") and not before.startswith("<!-- not run: ")
    ]
    assert kept == [], "write <!-- not run: REASON --> before the block"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(FOLDER)))
def test_names_of_code_are_todays(page: Path) -> None:
    named = set(NAMES.findall(page.read_text(encoding="utf-8"))) - NO_CODE
    gone = {one for one in named if not re.search(rf"\b{one}\b", SOURCES)}
    assert gone == set()


def test_every_timeline_is_shown() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [one.name for one in (ROOT / "docs" / "images" / "kernels").glob("*.svg")]
    assert [one for one in pictures if f"images/kernels/{one})" not in pages] == []


def test_every_public_function_has_a_page_and_an_example() -> None:
    table = (FOLDER / "index.md").read_text(encoding="utf-8")
    code = "".join(one[2] for page in WITH_EXAMPLES for one in blocks(page))
    for name in kernels.__all__:
        assert f"`{name}`" in table, name
        if name not in ("check_hopper_features", "triton_matmul"):
            assert f"{name}(" in code, name

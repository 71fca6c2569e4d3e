"""Code blocks of tutorials and guides run in their order, or say why they cannot."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.root import ROOT
from tools.docs.code import __main__ as code
from tools.docs.code import blocks, running
from tools.docs.style.pages import name

PAGES = code.all_pages()
RUN = [page for page in PAGES if any(one.runs for one in blocks.read(page).blocks)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("documents")


@pytest.fixture(scope="module")
def done() -> dict[Path, Path]:
    return {}


@pytest.mark.parametrize("page", [one for one in RUN if not blocks.read(one).by], ids=name)
def test_the_blocks_of_a_page_run(page: Path, home: Path, done: dict[Path, Path]) -> None:
    if page.resolve() not in done:  # another page began with it
        code.run_page(page, home, done)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_block_that_is_not_run_says_why(page: Path) -> None:
    found = [f"{name(page)}:{one.line}" for one in blocks.read(page).unexplained]
    assert found == [], "write <!-- not run: REASON --> before the block or below its heading"


@pytest.mark.parametrize("page", [one for one in PAGES if blocks.read(one).by], ids=name)
def test_a_page_with_a_test_of_its_own_is_named_there(page: Path) -> None:
    test = ROOT / blocks.read(page).by
    assert page.name in test.read_text(encoding="utf-8")


def test_the_first_report_is_shown_as_a_reader_sees_it(
    home: Path, done: dict[Path, Path], tmp_path: Path
) -> None:
    """All but the time, which is predicted of the code of one Triton, and what hashes of commits
    are part of."""
    tutorial = ROOT / "docs" / "tutorials" / "first-report.md"
    if tutorial not in done:
        code.run_page(tutorial, home, done)
    report, compare = ("report", "--out", str(tmp_path / "html")), ("compare", "--recorded")
    seen = set()
    for words in (report, (*compare, "HEAD~1", "HEAD")):
        process = subprocess.run(
            [sys.executable, "-m", "warpwatch", *words],
            cwd=done[tutorial],
            env=running.environment(home / "home"),
            capture_output=True,
            text=True,
            timeout=running.LONGEST_S,
        )
        seen |= {*map(_row, (process.stdout + process.stderr).splitlines())}
    copied = tmp_path / "copied"
    shutil.copytree(done[tutorial], copied, symlinks=True)
    history = ("history", "--again", "--commits", "1", "--bench", "^compiled")
    again = subprocess.run(
        [sys.executable, "-m", "warpwatch", *history],
        cwd=copied,
        env=running.environment(home / "home"),
        capture_output=True,
        text=True,
        timeout=running.LONGEST_S,
    )
    (end,) = re.findall("“.*?measured; ", again.stderr)
    assert re.findall("“.*?measured; ", tutorial.read_text(encoding="utf-8")) == [end]
    for page, count in ((tutorial, 5), (ROOT / "README.md", 1)):
        shown = [
            _row(line)
            for line in page.read_text(encoding="utf-8").splitlines()
            if line.startswith("▼ ") or line.endswith((" 1 finding", " could be judged"))
        ]
        lasting = [row for row in shown if "predicted_us" not in row]
        assert len(lasting) == count
        assert [row for row in lasting if row not in seen] == []


def _row(line: str) -> tuple[str, ...]:
    return tuple(line.partition(" finding ")[0].split())


PAGE = """# A page
<!-- not run: needs
a GPU -->

```console
$ nvidia-smi
```

```python
# file: folder/module.py
WORD = "found"
```

```bash
cd folder && python -c 'import module; print(module.WORD)'
```

## A section
<!-- not run: deletes files -->

```bash
rm -rf everything
```

## Another

```toml
a = 1
```

```text
out
```
"""


def test_blocks_are_commands_files_or_explained(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE + "<!-- run after: other.md -->\n<!-- run by: tests/x.py -->\n")
    steps = blocks.read(page)
    assert [one.runs for one in steps.blocks] == [False, False, True, False, False, False]
    assert [one.reason for one in steps.blocks][::3] == ["needs a GPU", "deletes files"]
    assert steps.blocks[1].file == "folder/module.py"
    assert steps.unexplained == ()
    assert (steps.after, steps.by) == (tmp_path / "other.md", "tests/x.py")
    page.write_text(PAGE.replace("<!-- not run: needs\na GPU -->", ""))
    assert [one.line for one in blocks.read(page).unexplained] == [4, 26]


def test_pages_run_after_one_another_and_failures_name_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, bad = (tmp_path / f"{one}.md" for one in ("first", "second", "bad"))
    first.write_text(PAGE)
    second.write_text("<!-- run after: first.md -->\n```bash\ncat folder/module.py\n```\n")
    bad.write_text("# Bad\n\n```bash\necho before\nfalse\n```\n")
    assert code.main(["--show", str(second), str(first)]) == 0
    out = capsys.readouterr().out
    assert 'WORD = "found"' in out and "first.md: ran, another page begins with it" in out
    assert code.main([str(bad)]) == 1
    assert f"{bad}:3: exit code 1\necho before\nfalse\n\nbefore" in capsys.readouterr().err
    assert running.LONGEST_S > 0

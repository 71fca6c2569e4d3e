"""Every page keeps the rules of style, and the check finds what breaks them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.docs.style import __main__ as style
from tools.docs.style import pages, prose, rules


@pytest.mark.parametrize("page", pages.all_pages(), ids=pages.name)
def test_a_page_keeps_the_rules(page: Path) -> None:
    found = rules.faults(prose.read(page), history=pages.of_history(page))
    assert [f"{pages.name(page)}:{fault.line}: {fault.what}" for fault in found] == []


def found_in(tmp_path: Path, text: str, *, history: bool = False) -> list[tuple[int, str]]:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    faults = rules.faults(prose.read(page), history=history)
    return [(fault.line, fault.what) for fault in faults]


def sentence(words: int) -> str:
    return "Word" + "\nword" * (words - 1) + ".\n"


def test_sentences_are_counted_without_code_tables_and_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading of several words\n\n"
        "Triton 3.7.1 is *one* version, e.g. of `many words of code`. "
        "The next\nsentence ends here!\n\n"
        "- An entry that ends with a full stop.\n- a label\n\n"
        "```python\nfirst. Second. Third.\n```\n\n"
        "| a | table. With |\n|---|---|\n| two | Sentences. Here |\n\n"
        "<!-- A comment. Another. -->\n",
        encoding="utf-8",
    )
    found = [(one.line, one.words) for one in prose.read(page).sentences]
    assert found == [(3, 8), (3, 5), (6, 8)]


def test_a_mean_above_the_bound_is_a_fault(tmp_path: Path) -> None:
    assert found_in(tmp_path, sentence(18)) == []
    [(line, fault)] = found_in(tmp_path, sentence(19))
    assert (line, fault.split(";")[0]) == (1, "19.0 words a sentence")


def test_long_sentences_are_faults_above_their_share(tmp_path: Path) -> None:
    long = sentence(41)
    one_of_40 = "\n".join([*[sentence(5)] * 39, long])
    assert found_in(tmp_path, one_of_40) == []
    [(line, fault)] = found_in(tmp_path, "\n".join([*[sentence(5)] * 20, long]))
    assert line == 20 * 6 + 1 and fault.startswith("a sentence of 41 words; 4.8 %")


@pytest.mark.parametrize(
    "habit",
    ["Told by turns.", "It lies beside it.", "It is asked for.", "Who is behind?", "Alone."],
)
def test_habits_are_faults(tmp_path: Path, habit: str) -> None:
    assert found_in(tmp_path, f"# Fine\n\n{habit}\n")
    assert found_in(tmp_path, f"# {habit}\n")
    assert found_in(tmp_path, f"```\n{habit}\n```\n") == []


def test_a_clause_with_what_is_a_fault_and_a_question_is_not(tmp_path: Path) -> None:
    assert found_in(tmp_path, "It says what is missing.\n")
    assert found_in(tmp_path, "# What it finds\n")
    assert (
        found_in(tmp_path, "# What does it find?\n\nAsk: what changed? Whatever, `what` is code.\n")
        == []
    )


def test_hashes_and_dates_belong_to_history(tmp_path: Path) -> None:
    text = "Since b8f8934.\n\nOn 2026-11-22.\n\nIn August 2025, too.\n\n22 Nov. it is.\n"
    assert [line for line, _ in found_in(tmp_path, text)] == [1, 3, 5, 7]
    assert found_in(tmp_path, text, history=True) == []
    assert found_in(tmp_path, "| of |\n|---|\n| 326ac4a |\n")
    assert found_in(tmp_path, "```\ncommit 326ac4a\n```\n") == []
    harmless = "At gfx90a and sm_90a, 1234567 bytes in e4m3 of version 3.7.1, mayor, fed1.\n"
    assert found_in(tmp_path, harmless) == []


def test_lines_are_bounded_outside_tables(tmp_path: Path) -> None:
    wide = "x" * 121
    assert [line for line, _ in found_in(tmp_path, f"A\n{wide}\n\n```\n{wide}\n```\n")] == [2, 5]
    assert found_in(tmp_path, f"| a |\n|---|\n| {wide} |\n") == []


def test_the_command_names_file_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("All is well.\n", encoding="utf-8")
    bad.write_text("All\n\nis said alone.\n", encoding="utf-8")
    assert style.main([str(good)]) == 0
    assert "3.0    0.0 %          1       0" in capsys.readouterr().out
    assert style.main(["--quiet", str(good), str(bad)]) == 1
    assert capsys.readouterr().out.startswith(f"{bad.resolve().as_posix()}:3: 'alone'")
    assert style.main([str(tmp_path / "absent.md")]) == 2

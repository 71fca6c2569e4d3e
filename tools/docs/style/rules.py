"""The rules of a page, and the places that break them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.docs.style.prose import Page

LONGEST_MEAN = 18.0
LONG = 40
MOST_LONG = 0.03
LONGEST_LINE = 120
HABITS = re.compile(r"\b(told|beside|by turns|behind|alone|asked for)\b", re.IGNORECASE)
# A question may begin with it. A clause may not: say *which*, *the commit that*, *how*.
_CLAUSE = re.compile(r"\b[Ww]hat\b")
_HASH = re.compile(r"(?<![\w#./-])(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}(?![\w-])")
_MONTHS = (
    "Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    "|Sep(?:t(?:ember)?)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
_DATE = re.compile(
    rf"\b(?:20\d\d-\d\d-\d\d|\d{{1,2}} (?:{_MONTHS})\b|(?:{_MONTHS}) (?:20\d\d|\d{{1,2}}))\b"
)


@dataclass(frozen=True)
class Measures:
    """The figures of a page that have a bound."""

    sentences: int
    mean_words: float
    long_share: float


@dataclass(frozen=True)
class Fault:
    """One place that breaks a rule."""

    line: int
    what: str


def measure(page: Page) -> Measures:
    """Measure the sentences of a page.

    Args:
        page: The page.

    Returns:
        Their number, mean length in words, and the share of those over 40 words.
    """
    words = [sentence.words for sentence in page.sentences]
    count = max(1, len(words))
    return Measures(len(words), sum(words) / count, sum(one > LONG for one in words) / count)


def faults(page: Page, *, history: bool = False) -> list[Fault]:
    """Find each place that breaks a rule.

    Args:
        page: The page.
        history: Whether hashes and dates belong on it, as on a page of results.

    Returns:
        The faults by line. An error of the whole page stands at its first line.
    """
    found = [*_of_the_page(page), *_words(page), *_lines(page)]
    if not history:
        found += _of_a_day(page)
    return sorted(found, key=lambda fault: fault.line)


def _of_the_page(page: Page) -> Iterator[Fault]:
    figures = measure(page)
    if figures.mean_words > LONGEST_MEAN:
        yield Fault(
            1, f"{figures.mean_words:.1f} words a sentence; at most {LONGEST_MEAN:.0f}: cut them"
        )
    if figures.long_share > MOST_LONG:
        for sentence in page.sentences:
            if sentence.words > LONG:
                share = f"{100 * figures.long_share:.1f} % of this page are over {LONG}"
                yield Fault(sentence.line, f"a sentence of {sentence.words} words; {share}")


def _words(page: Page) -> Iterator[Fault]:
    for sentence in (*page.sentences, *page.headings):
        for found in HABITS.findall(sentence.text):
            yield Fault(sentence.line, f"{found!r}: a habit of this project, use another word")
        if not sentence.text.rstrip("\"')]*").endswith("?") and _CLAUSE.search(sentence.text):
            yield Fault(sentence.line, f"a clause that begins with 'what': {sentence.text[:60]!r}")


def _lines(page: Page) -> Iterator[Fault]:
    for at, line in enumerate(page.lines, start=1):
        if len(line) > LONGEST_LINE and at not in page.tables:
            yield Fault(at, f"{len(line)} characters; at most {LONGEST_LINE} outside a table")


def _of_a_day(page: Page) -> Iterator[Fault]:
    for at, line in enumerate(page.lines, start=1):
        if at not in page.code:
            for found in _HASH.findall(line):
                yield Fault(at, f"the hash {found}: it belongs in docs/log or docs/results")
            for found in _DATE.findall(line):
                yield Fault(at, f"the date {found}: it belongs in docs/log or docs/results")

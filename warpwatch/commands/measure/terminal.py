"""What a terminal shows of asv's output, which the log keeps whole: progress, and failures once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

# asv's headings start with a dot, with or without the share that is done; its tables do not.
_HEADING = re.compile(r"(\[ *[\d.]+%\] )?·")
# A benchmark that went well says nothing new: its table is in the log.
_SHOWN = re.compile(r"^·|· For |Setting up|failed|skipped")
_FAILED = re.compile(r"\bfailed$")
_COMMIT = re.compile(r"· For .* commit ")
# What belongs to a benchmark: the table of its values, then its words with each parameter.
_PART = re.compile(r"(\[ *[\d.]+%\] )?···(·| =)")
_PARAMETERS = "For parameters: "
# asv's last words on a benchmark, after those on the last of its parameters.
_ENDED = "asv: benchmark failed"
# asv's own, which stand at the margin. Whoever interrupts it knows why it stops.
_TRACEBACK = "Traceback (most recent call last):"
_INTERRUPTED = "KeyboardInterrupt"
ALIKE = "more values failed with the same words: the log has all\n"


@dataclass
class Shown:
    """Takes the lines of one run of asv. A package that cannot be imported fails in each benchmark
    with each of its parameters: the same words are shown once a commit."""

    _shows: bool = False
    # Within a benchmark that failed: its heading until it is shown, and its words with one of its
    # parameters.
    _fails: bool = False
    _in_table: bool = False
    _heading: str = ""
    _part: list[str] = field(default_factory=list)
    _has_words: bool = False
    _seen: set[tuple[str, ...]] = field(default_factory=set)
    _alike: bool = False
    _traceback: list[str] = field(default_factory=list)

    def before(self, line: str) -> Iterator[str]:
        """The lines to show before ``line`` is taken: what it ends."""
        if _HEADING.match(line):
            yield from self._unended()
        if _PARAMETERS in line:
            yield from self._words()
        elif _HEADING.match(line) and not (self._fails and _PART.match(line)):
            yield from self._failure()
        if _COMMIT.search(line):
            yield from self.end()

    def take(self, line: str) -> Iterator[str]:
        """What to show of ``line`` itself."""
        if self._traceback or (line.startswith(_TRACEBACK) and not self._fails):
            self._traceback.append(line)
            if not line[:1].isspace() and not line.startswith(_TRACEBACK):
                if line.strip() == _INTERRUPTED:
                    self._traceback.clear()
                yield from self._unended()
            return
        if _PART.match(line) or _PARAMETERS in line:
            self._in_table = _PARAMETERS not in line
        if self._fails and (_PARAMETERS in line or _PART.match(line) or not _HEADING.match(line)):
            if not self._in_table:
                self._part.append(line)
            return
        if _HEADING.match(line):
            self._shows = _SHOWN.search(line) is not None
            if _FAILED.search(line.rstrip()):
                self._fails, self._heading, self._has_words = True, line, False
                self._in_table = False
                return
        if self._shows and line.strip():
            yield line

    def end(self) -> Iterator[str]:
        """What is left to show of a commit."""
        yield from self._unended()
        yield from self._failure()
        if self._alike:
            yield ALIKE
        self._alike = False
        self._seen.clear()

    def _unended(self) -> Iterator[str]:
        """A traceback of asv's, as far as it has come."""
        lines, self._traceback = self._traceback, []
        if self._shows:
            yield from (line for line in lines if line.strip())

    def _failure(self) -> Iterator[str]:
        """The end of a benchmark that failed; its heading alone where asv says nothing of it."""
        yield from self._words()
        if self._heading and not self._has_words:
            yield self._heading
        self._fails, self._heading = False, ""

    def _words(self) -> Iterator[str]:
        part, self._part = [line for line in self._part if line.strip()], []
        said = [line.strip() for line in part if _PARAMETERS not in line]
        words = tuple(line for line in said if not line.startswith(_ENDED))
        if not words:
            return
        if words in self._seen:
            self._alike = True
        else:
            self._seen.add(words)
            yield from filter(None, (self._heading, *part))
            self._heading = ""
        self._has_words = True

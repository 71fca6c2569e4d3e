"""How a template becomes a page: everything escaped, nothing from outside the site allowed."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from warpwatch.judge.model import names
from warpwatch.judge.series.addresses import digest, finding_path
from warpwatch.judge.series.changes import kind

from . import sentences, words
from .view import longer, many

HERE = Path(__file__).parent
# No inline script or style runs, and nothing is loaded but the site's own files.
POLICY = Markup(
    "default-src 'none'; style-src 'self'; script-src 'self'; base-uri 'none'; form-action 'none'"
)


_BLOCK = re.compile(r"\{% block (\w+) %\}\n?(.*?)\{% endblock %\}\n?", re.DOTALL)


def _flat(name: str) -> str:
    """A template with its blocks set into its base: inheritance, looked up anew for each of ten
    thousand pages, takes as long as what it inherits."""
    text = (HERE / "templates" / name).read_text("utf-8")
    extended = re.match(r'\{% extends "([\w.]+)" %\}\n', text)
    if extended is None:
        return text
    blocks: dict[str, str] = dict(_BLOCK.findall(text))
    imports = _BLOCK.sub("", text[extended.end() :])
    base = (HERE / "templates" / extended[1]).read_text("utf-8")
    return imports + _BLOCK.sub(lambda block: blocks.get(block[1], str(block[2])), base)


class _Compiled(jinja2.FileSystemBytecodeCache):
    """Compiled templates, which lie with Python's own compiled modules and are trusted as those.

    To compile them takes each process of a build as long as a hundred pages.
    """

    def __init__(self) -> None:
        super().__init__(str(HERE / "__pycache__"), f"%s.jinja-{version('jinja2')}.cache")

    def dump_bytecode(self, bucket: Bucket) -> None:
        if not sys.dont_write_bytecode:
            with suppress(OSError):  # the package may belong to somebody else
                super().dump_bytecode(bucket)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        bytecode_cache=_Compiled(),
        loader=jinja2.FunctionLoader(_flat),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,
    )
    environment.globals.update(
        policy=POLICY,
        sentences=sentences,
        count_of=many,
        longer=longer,
        overlaid=overlaid,
        breakable=breakable,
        names=names,
        words=words,
        shapes=words.SHAPES,
        kind=kind,
        workload_path=workload_path,
        commit_path=commit_path,
        finding_path=finding_path,
        machine_path=machine_path,
    )
    return environment


def render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


def workload_path(name: str) -> str:
    return f"w/{digest(name, 6)}.html"


def breakable(name: str) -> Markup:
    """A dotted name that may be broken where its parts end."""
    return Markup(re.sub(r"([._])", r"\1<wbr>", str(escape(name))))


def overlaid(path: str) -> str:
    """A series in the address of the page that overlays several."""
    return path.removeprefix("s/").replace(".html", "").replace("#", ".")


def commit_path(commit: str) -> str:
    return f"c/{commit[:12]}.html"


def machine_path(machine: str, environment: str) -> str:
    return f"m/{digest(json.dumps([machine, environment]), 6)}.html"


def roofline_path(name: str, home: str) -> str:
    return f"r/{digest(json.dumps([name, home]), 6)}.html"

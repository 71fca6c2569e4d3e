"""What was compiled before is not compiled again, however its source is written.

Triton knows a kernel by its source, down to the line it stands in: an edit of one branch compiles
every use of the kernel again. What its front end makes of one use holds only what that use has, and
neither files nor lines: where programs, options and compilers are equal, so is the code.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from warpwatch.config.package import CACHE_VARIABLE

# Nobody reads what passes between them.
_TEXTS = ("ttir", "ttgir", "ptx", "amdgcn")
# What the compiler said, beside each kernel. Triton hands a kernel out a moment before it is there:
# where another process has just compiled it, it is waited for.
_HEARD = "heard.json"
_HEARD_SECONDS = 10.0
_SYMBOL = re.compile(r'@(?:"[^"]*"|[\w$.-]+)')
# Only what a program defines for itself is named after its module. Other signs that look like a
# symbol may be part of what is computed: a predicate of inline assembly, an external function.
_HELPER = re.compile(r'tt\.func private (@(?:"[^"]*"|[\w$.-]+))')


class Reused:
    """Compilations in the folder of kept kernels; without one, none. Processes share it: whatever
    lies there was written at once.

    Given to Triton as its hook for the stages of a compilation; :meth:`heard` ends each.
    """

    def __init__(self) -> None:
        self._folder = os.environ.get(CACHE_VARIABLE)
        self._place: Path | None = None
        self._found: dict[str, Any] | None = None
        self._before: dict[str, Any] = {}
        self._made: dict[str, str] = {}

    def __call__(
        self,
        backend: Any = None,
        stages: dict[str, Callable[..., Any]] | None = None,
        options: Any = None,
        *_: Any,
    ) -> tuple[str, str]:
        self._place = self._found = None
        self._made = {}
        if stages is not None and self._folder:
            for name, stage in stages.items():
                stages[name] = partial(self._stage, (backend, options), name, stage)
        return "", ""  # what Triton adds to its own keys

    def _stage(
        self,
        compiler: tuple[Any, Any],
        name: str,
        stage: Callable[..., Any],
        program: Any,
        metadata: dict[str, Any],
    ) -> Any:
        if self._place is None:
            self._begin(*compiler, program, metadata)
        if self._found is not None:
            text = self._found["stages"].get(name, "")
            return base64.b64decode(text) if name == self._found["binary"] else text
        made = stage(program, metadata)
        if isinstance(made, bytes):
            self._made[name] = base64.b64encode(made).decode()
        elif name in _TEXTS:
            self._made[name] = str(made)
        return made

    def _begin(self, backend: Any, options: Any, program: Any, metadata: dict[str, Any]) -> None:
        from triton._C.libtriton import get_cache_invalidating_env_vars
        from triton.runtime.cache import triton_key

        source = without_paths(program.str_nodebug())
        parts = (source, triton_key(), backend.hash(), options.hash())
        variables = sorted(get_cache_invalidating_env_vars().items())
        key = "\n".join((*parts, repr(backend.target), repr(variables)))
        name = f"{hashlib.sha256(key.encode()).hexdigest()}.json"
        self._place = Path(str(self._folder), "compilations", name)
        self._before = dict(metadata)
        if self._place.is_file():
            self._found = json.loads(self._place.read_text(encoding="utf-8"))
            metadata.update(self._found["metadata"])

    def heard(
        self, folder: Path, metadata: Mapping[str, Any], said: tuple[str, float] | None
    ) -> tuple[str, float]:
        """What the compiler of the kernel in ``folder`` said and how long it took, when it did
        compile. ``said`` is that of now; none where Triton had the kernel already."""
        if said is None:
            deadline = time.monotonic() + _HEARD_SECONDS
            while not (folder / _HEARD).exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            log, seconds = json.loads((folder / _HEARD).read_text(encoding="utf-8"))
            return str(log), float(seconds)
        if self._found is not None:
            said = self._found["said"]
        elif self._place is not None:
            told = {
                name: value
                for name, value in metadata.items()
                if name not in self._before or self._before[name] != value
            }
            binary = list(self._made)[-1]
            kept = {"stages": self._made, "binary": binary, "metadata": told, "said": said}
            write_at_once(self._place, json.dumps(kept, default=vars))
        log, seconds = said
        write_at_once(folder / _HEARD, json.dumps([log, seconds]))
        return str(log), float(seconds)


def without_paths(program: str) -> str:
    """A program without the modules that its helpers lie in: a file that moves compiles no kernel
    again.

    Args:
        program: What Triton's front end made of a kernel, as text.

    Returns:
        The text with each helper's symbol numbered in the order of appearance.
    """
    helpers = set(_HELPER.findall(program))
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        symbol = match[0]
        if symbol not in helpers:
            return symbol
        return numbers.setdefault(symbol, f"@{len(numbers)}")

    return _SYMBOL.sub(numbered, program)


def write_at_once(path: Path, text: str) -> None:
    """No other process reads half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)

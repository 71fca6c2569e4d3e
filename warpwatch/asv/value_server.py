"""Hands out values that are measured already without a process for each.

asv forks a process a value. That is right where the process measures; the compiled suite's only
look a number up in what ``setup_cache`` left, nearly two thousand times a commit. asv's own process
does so here, by the suite's own functions. Whatever is unusual is left to asv: then what is said
and recorded of it is what asv makes of any benchmark.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import pickle
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from asv import runner

_MODULE = "compiled"
_CACHE = "cache.pickle"  # asv's name for what ``setup_cache`` returned


class HandingServer(runner.ForkServer):  # type: ignore[misc]  # asv ships no types
    """asv's fork server, asked only for what has to be run."""

    def run(
        self,
        name: str,
        params_str: str,
        profile_path: str,
        result_file_name: str,
        timeout: float,
        cwd: str,
    ) -> tuple[str, int]:
        """asv's: the output and the exit code; the value goes to ``result_file_name`` as JSON."""
        if profile_path == "None" and _is_ours(Path(self.benchmark_dir)):
            found = value(name, Path(cwd))
            if found is not None:
                Path(result_file_name).write_text(json.dumps(found), encoding="utf-8")
                return "", 0
        answer: tuple[str, int] = super().run(
            name, params_str, profile_path, result_file_name, timeout, cwd
        )
        return answer


def _is_ours(suite: Path) -> bool:
    """Whether the suite's module is made by :mod:`warpwatch.asv.suite.compiled`."""
    try:
        text = (suite / f"{_MODULE}.py").read_text(encoding="utf-8")
    except OSError:
        return False
    return "from warpwatch.asv.suite import compiled\n" in text


def use() -> None:
    """From now on asv hands out values so where it is to fork."""
    runner.ForkServer = HandingServer


def value(name: str, folder: Path) -> float | None:
    """What the benchmark ``name`` (asv's: ``module.Class.method-index``) says of what
    ``setup_cache`` left in ``folder``; ``None`` where asv has to run it: it is of another suite, it
    fails, or this process does not see it as the measuring one does."""
    benchmark, _, index = name.rpartition("-")
    module, _, method = benchmark.partition(".")
    if module != _MODULE or not index.isdigit():
        return None
    try:
        left = (folder / _CACHE).stat()
        known = _read(folder, left.st_ino, left.st_mtime_ns)
        asked = _benchmark(method)
        if asked is None:
            return None
        function, parameters = asked
        with contextlib.redirect_stderr(io.StringIO()):  # asv's process says it again
            found = function(known, *parameters[int(index)])
    except Exception:
        return None
    return found if isinstance(found, int | float) else None


# asv keeps the folder until all benchmarks of one commit are done.
_last: tuple[tuple[Path, int, int], Mapping[Any, Any]] | None = None


def _read(folder: Path, inode: int, changed: int) -> Mapping[Any, Any]:
    global _last
    key = (folder, inode, changed)
    if _last is None or _last[0] != key:
        _last = key, pickle.loads((folder / _CACHE).read_bytes())
    return _last[1]


@cache
def _benchmark(method: str) -> tuple[Any, list[tuple[Any, ...]]] | None:
    """The function called ``Class.method`` and the parameters of its values."""
    classes = _classes()
    if classes is None:
        return None
    name, _, function = method.partition(".")
    found = classes[name]()
    return getattr(found, function), list(itertools.product(*found.params))


@cache
def _classes() -> Mapping[str, type[Any]] | None:
    """The suite as a measuring process has it; none where this process cannot have the same: its
    workloads import what only the measuring process finds."""
    try:
        from .suite import compiled

        return compiled.classes(_MODULE)
    except Exception:
        return None

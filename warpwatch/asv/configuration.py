"""The configuration that asv runs with: the project's own, or one that is written for it."""

from __future__ import annotations

import json
from pathlib import Path

from asv import util

from warpwatch import project
from warpwatch.config.package import load

_IMPORT = "from warpwatch.asv.suite import {0}\n"
_GIVEN = "\nglobals().update({0}.classes(__name__))\n"
_MODULES = {name: (_IMPORT + _GIVEN).format(name) for name in ("compiled", "host", "peers")} | {
    "gpu": _IMPORT.format("measured")
    + "from warpwatch.config.package import workloads\n"
    + "\nglobals().update(measured.classes(__name__, workloads().all_workloads()))\n"
}


def options() -> list[str]:
    """Say which configuration asv is to use in the project's folder.

    Returns:
        Nothing where the project has an ``asv.conf.json`` that names Warpwatch's plugin; else
        ``--config`` and a file below ``.asv``, written anew with a suite next to it.
    """
    own = project.asv_configuration()
    if own.parent == project.folder():
        results = project.folder() / str(_content(own).get("results_dir", "results"))
        if results.resolve() != project.results().resolve():
            raise ValueError(
                f'{own}: expected "results_dir": ".asv/results", where reports look, got '
                f"{_content(own).get('results_dir')!r}"
            )
        return []
    return ["--config", str(_written(project.folder() / ".asv"))]


def _content(path: Path) -> dict[str, object]:
    try:
        found = util.load_json(str(path), js_comments=True)
    except (util.UserError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
    return found if isinstance(found, dict) else {}


def _written(folder: Path) -> Path:
    package = load()
    suite = folder / "suite"
    suite.mkdir(parents=True, exist_ok=True)
    _keep(folder / ".gitignore", "*\n")  # whatever the project's own file says
    _keep(suite / "__init__.py", "")
    for name, text in _MODULES.items():
        _keep(suite / f"{name}.py", text)
    content = {
        "version": 1,
        "project": package.name,
        "repo": str(package.repository_path),
        "branches": ["HEAD"],
        "dvcs": "git",
        "plugins": [project.ASV_PLUGIN],
        "environment_type": "kernels-overlay",
        "launch_method": "forkserver",
        "benchmark_dir": str(suite),
        "env_dir": str(folder / "env"),
        "results_dir": str(folder / "results"),
        "html_dir": str(folder / "html"),
        "hash_length": 8,
        "default_benchmark_timeout": 300,
        "build_cache_size": 0,
    }
    path = folder / project.ASV_FILE
    _keep(path, json.dumps(content, indent=1) + "\n")
    return path


def _keep(path: Path, text: str) -> None:
    """Write a file only where it changes: several runs of asv may read it."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")

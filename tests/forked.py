"""Runs ``warpwatch`` in forks of one process that has imported torch and Triton.

A user's command imports both, which takes a processor some three seconds. Where tests ask for many
commands these seconds are most of their time; that a process of its own does the same is shown by
those that start one.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from multiprocessing import get_context
from pathlib import Path

PRELOADED = ["torch", "triton", "triton.language", "warpwatch.commands.compiled.simulate"]


def warpwatch(
    *arguments: str, folder: Path, environment: dict[str, str] | None = None, seconds: float = 600
) -> subprocess.CompletedProcess[str]:
    """As ``python -m warpwatch`` with these arguments in this folder."""
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)  # once; it stays as long as the tests run
    environment = dict(os.environ) if environment is None else environment
    with tempfile.TemporaryDirectory(prefix="forked-") as place:
        out, err = Path(place, "out"), Path(place, "err")
        process = context.Process(
            target=_become,
            args=(arguments, str(folder), environment, _installed(), (str(out), str(err))),
        )
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(arguments, seconds)
        texts = [file.read_text(encoding="utf-8") for file in (out, err)]
        return subprocess.CompletedProcess(arguments, process.exitcode, *texts)


@functools.cache
def _installed() -> list[str]:
    """Where a new process looks for packages, but for its folder and what its environment adds."""
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import json, sys; print(json.dumps(sys.path))"],
        env=plain,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    paths: list[str] = json.loads(found.stdout)
    return paths


def _become(
    arguments: tuple[str, ...],
    folder: str,
    environment: dict[str, str],
    installed: list[str],
    words: tuple[str, str],
) -> None:
    for number, place in enumerate(words, start=1):
        file = os.open(place, os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    added = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
    sys.path[:] = [folder, *added, *installed]
    sys.argv[:] = ["warpwatch", *arguments]
    from warpwatch.__main__ import main

    sys.exit(main())

"""A pull request's results, and the judge started on them as the workflow starts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.workflows import stand_in
from tests.workflows.stand_in import BASE, HEAD, MACHINE, result
from warpwatch.__main__ import main
from warpwatch.ci import artifact

GOOD_BASE = result(BASE, [0, 0, 8], [3, 3, 2])
SAME_HEAD = result(HEAD, [0, 0, 8], [3, 3, 2])
WORSE_HEAD = result(HEAD, [0, 96, 8], [3, 1, 2])
ONE_OF_ONE = artifact.name_of("cpu", 1, 1)


def judge(
    folder: Path, base: dict[str, Any] | None = GOOD_BASE, shards: int = 1, **event: Any
) -> int:
    trusted = folder / "trusted"
    if not trusted.exists():
        stand_in.write_trusted(trusted, base)
    versions = folder / "versions.toml"
    versions.write_text(f'[backends.cpu]\nshards = {shards}\nmachine = "{MACHINE}"\n')
    file = stand_in.write_event(folder, **event)
    arguments = ["ci", "judge", "--event", str(file), "--lane", "cpu", "--versions", str(versions)]
    arguments += ["--trusted", str(trusted / "results"), "--out", str(folder / "verdict.json")]
    return main(arguments)

"""A plugin of pytest: of every test function it leaves the first case.

For the second run of tests that ran outside already, in an image: what they prove of the kernels
does not depend on the image. What the image can lack (a module, a compiler, a place to write, a
process that may be started) each function meets with its first case as with its sixtieth.
"""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[str, pytest.Item] = {}
    for item in items:
        first.setdefault(item.nodeid.partition("[")[0], item)
    kept = list(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept

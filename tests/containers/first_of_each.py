"""A plugin of pytest: of every test file it leaves one case for each set of fixtures asked for.

For the second run of tests that ran outside already, in an image: what they prove of the kernels
does not depend on the image. What the image can lack (a module, a compiler, a place to write, a
process that may be started) is what files import and fixtures start, which their first case meets
as their hundredth does.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)  # among what -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[tuple[object, ...], pytest.Item] = {}
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        asked = frozenset(getattr(item, "fixturenames", ())).difference(given)
        first.setdefault((item.path, asked), item)
    kept = list(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept

"""A plugin of pytest: of all test files it leaves one case for each set of fixtures requested.

For the second run of tests that ran outside already, in an image: what they prove of the kernels
does not depend on the image. The image can lack a module, a compiler, a place to write or a process
that may be started. Files import modules, which collecting them does, and fixtures start the rest,
which one case meets as a hundred do. A file that compiles for targets starts the compilers.
"""

from __future__ import annotations

import pytest

COMPILES = "test_compiled_matmul"  # the cheapest that does


@pytest.hookimpl(trylast=True)  # among what -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[object, pytest.Item] = {}
    for item in items:
        given = getattr(getattr(item, "callspec", None), "params", {})
        asked = frozenset(getattr(item, "fixturenames", ())).difference(given)
        if "compiled" not in item.path.stem:
            first.setdefault(asked, item)
        elif item.path.stem == COMPILES:
            first.setdefault(COMPILES, item)
    kept = list(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept

"""A plugin of pytest: of every test file it leaves one case for each set of fixtures asked for.

For the second run of tests that ran outside already, in an image: what they prove of the kernels
does not depend on the image. What the image can lack (a module, a compiler, a place to write, a
process that may be started) is what files import and fixtures start, which their first case meets
as their hundredth does.

Files that compile for targets all ask the same of it: the compilers, in processes of their own. One
of them runs, the cheapest; the others are imported, like every file.
"""

from __future__ import annotations

import pytest

COMPILING, CHOSEN = "compiled", "test_compiled_matmul"


def is_left_out(stem: str) -> bool:
    """Whether another file stands for this one."""
    return COMPILING in stem and stem != CHOSEN


@pytest.hookimpl(trylast=True)  # among what -m has left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    first: dict[tuple[object, ...], pytest.Item] = {}
    for item in items:
        if is_left_out(item.path.stem):
            continue
        given = getattr(getattr(item, "callspec", None), "params", {})
        asked = frozenset(getattr(item, "fixturenames", ())).difference(given)
        first.setdefault((item.path, asked), item)
    kept = list(first.values())
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept

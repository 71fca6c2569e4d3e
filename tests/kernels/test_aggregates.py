"""Aggregates of kernels: the constructor that their fields make, and what Triton knows of it."""

import inspect
from typing import Any

from triton.experimental.gluon import language as gl

from kernels.device.aggregates import aggregate


def constructor(kinds: dict[str, Any], **computed: str) -> Any:
    return aggregate(type("Cut", (), {"__annotations__": kinds, **computed})).hash_attrs[0]


def test_the_constructor_takes_fields_in_their_order() -> None:
    kinds = {"rows": gl.tensor, "WIDTH": gl.constexpr, "HALF": gl.constexpr}
    assert inspect.getsource(constructor(kinds, HALF="WIDTH // 2").fn).splitlines() == [
        "def __init__(self, rows, WIDTH):",
        "    self.rows = rows",
        "    self.WIDTH = gl.constexpr(WIDTH)",
        "    self.HALF = gl.constexpr(WIDTH // 2)",
    ]


def test_one_that_a_class_writes_stays() -> None:
    def own(self: Any, rows: Any) -> None:
        self.rows = rows

    assert constructor({"rows": gl.tensor}, __init__=own) is own


def test_triton_tells_aggregates_of_other_fields_apart() -> None:
    """Else a kernel whose aggregate has changed would be served from the cache."""
    one, other = {"a": gl.tensor, "b": gl.tensor}, {"b": gl.tensor, "a": gl.tensor}
    assert constructor(one).cache_key == constructor(one).cache_key
    assert constructor(one).cache_key != constructor(other).cache_key

"""How a kernel is cut, handed to it."""

from __future__ import annotations

from typing import Any


def constants(config: Any, *names: str) -> dict[str, Any]:
    """Fields of a configuration as the constants of a kernel, which are named alike in capitals."""
    return {name.upper(): getattr(config, name) for name in names}

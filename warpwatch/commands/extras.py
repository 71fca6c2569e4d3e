"""What the extras of the distribution bring, and who needs them."""

from __future__ import annotations

from importlib import util

_INSTALLS = {
    "torch": "warpwatch[triton]",
    "triton": "warpwatch[triton]",
    "asv": "warpwatch[asv]",
    "asv_runner": "warpwatch[asv]",
    "docker": "warpwatch[containers]",
    "pynvml": "warpwatch[gpu]",
}


def remedy(module: str) -> str | None:
    """Say how a module is installed.

    Args:
        module: What is imported, such as ``torch``.

    Returns:
        The command, or ``None`` for a module that no extra brings.
    """
    extra = _INSTALLS.get(module.split(".")[0])
    return None if extra is None else f"pip install '{extra}'"


def require(*modules: str) -> None:
    """Refuse to go on without some modules; nothing is imported.

    Args:
        modules: What the command imports later, perhaps in other processes.

    Raises:
        ValueError: One of them is missing; the message says how it is installed.
    """
    for module in modules:
        if util.find_spec(module) is None:
            raise ValueError(
                f"this command needs {module}, which is not installed: {remedy(module)}"
            )

"""Functions of Gluon by the names that kernels call them by, whatever this Triton calls them."""

from __future__ import annotations

# By module: what Triton 3.6 and 3.7 call a function, and 3.9, where the older name only raises.
_RENAMED = {
    "hopper.tma": {
        "async_copy_global_to_shared": "async_load",
        "async_copy_shared_to_global": "async_store",
    },
    "ampere.async_copy": {"async_copy_global_to_shared": "async_load"},
}


def keep_names() -> None:
    """Let the older names mean the functions: one source compiles under every supported Triton."""
    import importlib

    for path, names in _RENAMED.items():
        module = importlib.import_module(f"triton.experimental.gluon.language.nvidia.{path}")
        for older, newer in names.items():
            if hasattr(module, newer):
                setattr(module, older, getattr(module, newer))

"""Which GPU is active."""

import triton


def arch():
    """``sm_90``, ``gfx942`` ..."""
    target = triton.runtime.driver.active.get_current_target()
    return f"sm_{target.arch}" if target.backend == "cuda" else str(target.arch)


def has_tma():
    name = arch()
    return name.startswith("sm_") and int(name[3:]) >= 90

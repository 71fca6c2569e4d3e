"""Whether parts of the L2 that were set aside can be made cold here.

Before each cold sample the driver is asked to give up persisting lines. Should it refuse, what a
call had carved out would stay: then cold times may be warm, which is said once and noted.
"""

from __future__ import annotations

from typing import Any

KEPT = "the driver does not reset what persists in the L2"
_NOT_SUPPORTED = 801  # CUDA_ERROR_NOT_SUPPORTED: no card of this kind carves anything out


def refused(driver: Any) -> str:
    """What to say of ``driver`` (libcuda, with a current context; ``None`` on HIP), nothing where
    it resets carve-outs or has none."""
    code = 0 if driver is None else int(driver.cuCtxResetPersistingL2Cache())
    if code in (0, _NOT_SUPPORTED):
        return ""
    return (
        f"{KEPT} (CUDA error {code}): cold times of calls that set a part of it aside may be warm"
    )

"""asv's view of host overhead: what one call costs the CPU until it is queued; needs no GPU."""

from __future__ import annotations

from warpwatch.asv.suite import host

globals().update(host.classes(__name__))

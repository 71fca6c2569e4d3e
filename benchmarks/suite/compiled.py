"""asv's view of the compiled instrument: what each workload's code is on each target."""

from __future__ import annotations

from warpwatch.asv.suite import compiled

globals().update(compiled.classes(__name__))

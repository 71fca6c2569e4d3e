"""asv's view of the peers: code that no commit of ours changes."""

from __future__ import annotations

from warpwatch.asv.suite import peers

globals().update(peers.classes(__name__))

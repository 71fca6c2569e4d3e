"""The versions that series of measured metrics carry: of an instrument's files, and of code beside
them that some of its metrics rest on.
"""

from __future__ import annotations

from pathlib import Path

from warpwatch.devices import ceilings as measured_ceilings
from warpwatch.devices import datasheet
from warpwatch.instruments import method
from warpwatch.instruments.counters import gpm, range_profiler
from warpwatch.instruments.gpu import ceilings, latency, measuring, off_kernel, staying

# The hashes are those that series began with, or of code since that reads the same of whatever it
# reads (then what changed stands beside it). Any other is another version, of these metrics alone.
TIMES = method.version(
    "latency-ec414eeda652",
    "fc5e6bef4442",  # one list of words for a lost device; calls that wait are not held for longer
    latency.METHOD_VERSION,
)
SHARES = method.version(
    TIMES,
    "d7cd2ab0c05d",  # allow_tf32 given back where a product raises; a restarted worker's ceilings
    method.part_hash(measuring.__file__, "peak_shares", "dtype_of"),
    method.part_hash(datasheet.__file__, "Device.peak"),
    method.part_hash(measured_ceilings.__file__, "Ceilings.peak"),
    method.method_hash(ceilings.__file__),
)
BYTES = method.version(
    "allocator-1",
    "50aefc863344",
    method.part_hash(
        str(Path(latency.__file__).with_name("card") / "through_torch.py"), "TorchGpu.peak_bytes"
    ),
)
SAMPLED = method.version(
    "gpm-ab082e2aa2ee",
    "760e37c2ed8f",  # what was not read is refused
    gpm.METHOD_VERSION,
)
COUNTED = method.version(
    "cupti-1",
    "edcf9396225a",
    range_profiler.METHOD_VERSION,
    method.part_hash(staying.__file__, "Staying._counted", "COPIES"),
)
OFF_KERNEL = f"{off_kernel.METHOD_VERSION}-{TIMES}-{COUNTED}"

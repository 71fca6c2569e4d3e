"""The compiling process: takes (workload, target) pairs on stdin, writes one measurement a line.

A process of its own, so that base and head are each compiled with nothing of the other loaded.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from . import compile_pairs


def main() -> int:
    pairs = [(str(workload), str(target)) for workload, target in json.loads(sys.stdin.read())]
    for _, measurement in compile_pairs.compiled_pairs(pairs):
        print(json.dumps(asdict(measurement), default=str), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

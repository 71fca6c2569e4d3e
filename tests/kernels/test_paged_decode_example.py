"""The example runs as a user runs it, and agrees with attention that has no cache."""

from __future__ import annotations

import re
import subprocess
import sys


def test_paged_decoding_scores_what_no_cache_scores() -> None:
    done = subprocess.run(
        [sys.executable, "examples/paged_decode.py", "--new", "2", "--chunk", "32"],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    decoded = re.findall(r"^ *(\d+) tokens, then \[\d+, \d+\]$", done.stdout, re.MULTILINE)
    assert len(decoded) == 3 and all(20 <= int(length) <= 40 for length in decoded)
    assert "largest difference from no cache" in done.stdout

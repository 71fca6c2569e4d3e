"""The example runs, and agrees with attention that has no cache."""

from __future__ import annotations

import re

from tests.kernels.interpreted import Worker, program
from tests.root import ROOT


def test_paged_decoding_scores_what_no_cache_scores(interpreter: Worker) -> None:
    example = str(ROOT / "examples" / "paged_decode.py")
    code, said = interpreter.run(program, example, "--new", "2", "--chunk", "32")
    assert code == 0, said
    decoded = re.findall(r"^ *(\d+) tokens, then \[\d+, \d+\]$", said, re.MULTILINE)
    assert len(decoded) == 3 and all(20 <= int(length) <= 40 for length in decoded)
    assert "largest difference from no cache" in said

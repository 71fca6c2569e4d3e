"""The exhibits, by what became worse."""

from __future__ import annotations

from . import calls, machine_code
from .case import Case

CASES: tuple[Case, ...] = (*machine_code.CASES, *calls.CASES)

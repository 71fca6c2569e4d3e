"""How a mistake of a user is held to one clear error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# A call, the error it raises, and what the error says.
Mistake = tuple[Callable[[], Any], type[Exception], str]


def told(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call raises that error, in one line, where CPU tensors are refused."""
    call, error, message = mistake
    monkeypatch.setattr("kernels.runtime.targets.accepts_cpu_tensors", lambda: False)
    with pytest.raises(error, match=message) as raised:
        call()
    assert "\n" not in str(raised.value)

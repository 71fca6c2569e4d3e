"""Lets ``torch.compile`` work in a recorded call, for the GPU that is not there.

Dynamo traces the function and Inductor generates its kernels, both as on a card. The generated host
code then runs as any other does: its launches and torch's own operations are recorded.

Nothing of this is loaded, and nothing of torch changed, before a function is given to
``torch.compile``. All of it ends with the recording.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch

from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda
from warpwatch.instruments.compiled.record.torch import ops as torch_ops

if TYPE_CHECKING:
    from warpwatch.instruments.compiled.record.driver import RecordingDriver
    from warpwatch.instruments.compiled.record.known_values import Known


class Follower:
    """Follows ``torch.compile`` through one recording."""

    def __init__(self) -> None:
        self._ends = ExitStack()
        self._recorder: RecordingDriver
        self._known: Known
        self._traces = self._generates = False

    def begin(self, recorder: RecordingDriver, known: Known) -> None:
        """Follow from now on.

        Args:
            recorder: Hears of what is compiled.
            known: Says which tensors lie on the host.
        """
        self._recorder, self._known = recorder, known
        wrappers: tuple[Any, ...] = (torch._TorchCompileInductorWrapper, torch._TorchCompileWrapper)
        for wrapper in wrappers:
            self._replace(wrapper, "__init__", self._before(wrapper.__init__))
        # A function may have been given to torch.compile before the recording began.
        if "torch._dynamo.eval_frame" in sys.modules:
            self._trace()

    def close(self) -> None:
        """Leave torch as it was, without anything that it compiled here."""
        self._ends.close()

    def _before(self, make: Any) -> Any:
        """Torch makes one wrapper for each function that is given to ``torch.compile``."""

        def making(wrapper: Any, *args: Any, **kwargs: Any) -> None:
            self._trace()
            make(wrapper, *args, **kwargs)

        return making

    def _trace(self) -> None:
        """From now on Dynamo traces for the device."""
        if self._traces:
            return
        self._traces = True
        with _outside():
            import torch._dynamo as dynamo

            try:
                from . import tracing
            except ImportError as error:
                self._recorder.remark(f"{_unknown(error)}: it runs as written")
                self._ends.enter_context(dynamo.config.patch(disable=True))
                return
            dynamo.reset()
        self._ends.callback(dynamo.reset)
        self._ends.enter_context(tracing.on_device(self._known))
        wrapper: Any = torch._TorchCompileInductorWrapper
        self._replace(wrapper, "__call__", self._in_place_of(wrapper.__call__))

    def _in_place_of(self, compile_graph: Any) -> Any:
        """Inductor's part: it gets each graph that Dynamo traced."""

        def compiling(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            self._generate()
            from . import generating

            return generating.compiled(self._recorder, compile_graph, wrapper, *args, **kwargs)

        return compiling

    def _generate(self) -> None:
        """From now on Inductor generates for the device."""
        if self._generates:
            return
        with _outside():
            config: Any = importlib.import_module("torch._inductor.config")
            # It starts its processes when it is imported.
            with config.patch(compile_threads=1):
                try:
                    from . import generating
                except ImportError as error:
                    raise torch_cuda.NotAnsweredError(_unknown(error)) from error
        self._generates = True
        self._ends.enter_context(generating.for_target(self._recorder))

    def _replace(self, owner: Any, name: str, value: Any) -> None:
        self._ends.enter_context(mock.patch.object(owner, name, value))


@contextmanager
def _outside() -> Iterator[None]:
    """What is imported inside keeps nothing of the recording."""
    with torch_cuda.unanswered(), torch_ops.unwatched():
        yield


def _unknown(error: ImportError) -> str:
    return f"torch.compile of torch {torch.__version__} is not known here ({error})"

"""The launches of kernels that Inductor generated.

Inductor compiles every configuration of a kernel and times them. Here one is recorded, as it is of
Triton's own tuners (:mod:`..autotune`), and the search space is noted.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch._inductor.config as inductor_config
import triton

from warpwatch.instruments.compiled.record import autotune

if TYPE_CHECKING:
    from warpwatch.instruments.compiled.record.driver import RecordingDriver


class Launched:
    """Launches generated kernels on a recorder."""

    def __init__(self, recorder: RecordingDriver) -> None:
        self._recorder = recorder
        # A tuner is kept, so that its number stays its own.
        self._made: dict[tuple[int, str], tuple[Any, Callable[..., Any]]] = {}

    def method(self) -> Callable[..., Any]:
        """What serves as ``CachingAutotuner.run``."""

        def run(tuner: Any, *args: Any, stream: Any, **kwargs: Any) -> Any:
            # An allocator that is set for this launch is set for no other.
            return contextvars.copy_context().run(self._launch, tuner, args, kwargs, stream)

        return run

    def _launch(self, tuner: Any, args: Any, kwargs: Any, stream: Any) -> Any:
        triton.set_allocator(_reserved)
        kwargs.pop("benchmark_run", None)

        def launch(config: Any) -> Any:
            launcher = self._launcher(tuner, config)
            return launcher and launcher(*args, **kwargs, stream=stream)

        if len(tuner.configs) == 1:
            return launch(tuner.configs[0])
        name, key = str(tuner.fn.__name__), str(tuner.size_hints)
        return autotune.first_that_fits(self._recorder, (name, key), tuner.configs, launch)[1]

    def _launcher(self, tuner: Any, config: Any) -> Callable[..., Any] | None:
        """What launches one configuration, ``None`` where it does not compile."""
        found = self._made.get((id(tuner), str(config)))
        if found is not None:
            return found[1]
        # The other launchers are of C++ and load what they launch.
        with inductor_config.patch(use_static_cuda_launcher=False):
            made = self._recorder.compile(
                lambda _: tuner._precompile_config(config).make_launcher(), tuner.fn
            )
        if made is not None:
            self._made[id(tuner), str(config)] = tuner, made
        return made  # type: ignore[no-any-return]


def _reserved(size: int, align: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, dtype=torch.int8, device="cuda")

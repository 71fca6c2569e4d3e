"""Which configuration of an autotuned kernel is recorded, and what its search space is.

Nothing can be timed here. A choice that was made on a card, and is kept in the lock file, is taken
while the space still holds it. Else it is the first configuration that survives the kernel's own
pruning, compiles and fits. The whole space is noted either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from triton.runtime.autotuner import Autotuner

from warpwatch.config import choices
from warpwatch.instruments.compiled.formats.recording import Failure, HarnessError, Tuned

if TYPE_CHECKING:
    from .driver import RecordingDriver

# The number of the configuration that every tuner takes in this process, for who ranks them all.
only: int | None = None
_FIRST = "the first that fits"
_LOCKED = "the one chosen on a card"
_GONE = "the first that fits (the one chosen on a card is not in the space any more)"


@contextmanager
def derived(active: Callable[[], RecordingDriver | None]) -> Iterator[None]:
    """Inside, tuners of the classes that libraries derive choose as Triton's own does, while the
    driver that ``active`` names records."""

    def follow(tuners: Any, /, **options: Any) -> None:
        super(Autotuner, tuners).__init_subclass__(**options)
        own = vars(tuners).get("run")
        if own is None:
            return

        def tuning(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            recorder = active()
            if recorder is None:
                return own(tuner, *args, **kwargs)
            return run(recorder, own, tuner, *args, **kwargs)

        tuners.run = tuning

    tuner: Any = Autotuner
    before = vars(tuner).get("__init_subclass__")
    tuner.__init_subclass__ = classmethod(follow)
    try:
        yield
    finally:
        del tuner.__init_subclass__
        if before is not None:  # one recording stands in another
            tuner.__init_subclass__ = before


def run(
    recorder: RecordingDriver,
    original: Callable[..., Any],
    tuner: Any,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """``Autotuner.run`` without timing: see the module."""
    if len(tuner.configs) == 1:
        return original(tuner, *args, **kwargs)
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    configs = list(tuner.prune_configs(kwargs))

    def launch(config: Any) -> Any:
        full = {**tuner.nargs, **kwargs, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(full)
        return tuner.fn.run(*args, **kwargs, **config.all_kwargs())

    name, key = tuner.base_fn.__name__, choices.key_of(tuner, args, kwargs)
    # Host code asks for the configuration: its error would hide the kernel's where none fits.
    tuner.best_config, result = first_that_fits(recorder, (name, key), configs, launch)
    tuner.nargs = None
    return result


def first_that_fits(
    recorder: RecordingDriver,
    tuned: tuple[str, str],
    configs: list[Any],
    launch: Callable[[Any], Any],
) -> tuple[Any, Any]:
    """Launch configurations one after the other until one compiles and fits.

    Args:
        recorder: Notes the search space, and the failures.
        tuned: The kernel's name, and the key of the call.
        configs: The search space.
        launch: Launches one configuration.

    Returns:
        The configuration, the first of all where none fits, and the result of its launch.

    Raises:
        HarnessError: The lock file cannot be read.
    """
    name, key = tuned
    try:
        locked = choices.locked(recorder.target.name, name, key)
    except ValueError as error:
        raise HarnessError(str(error)) from error  # a fault of the lock file, not of the kernel
    ordered, why = _ordered(configs, locked)
    failures = recorder.failures
    kept, first = list(failures), None
    for number, config in enumerate(ordered):
        before = len(failures)
        result = launch(config)
        if len(failures) == before:
            failures[:] = kept
            taken = why if not number else _FIRST
            recorder.notes.append(
                f"{name}: {len(configs)} configurations, recorded {taken}: {config}"
            )
            space = tuple(str(one) for one in configs)
            recorder.tuned.append(Tuned(name, key, space, str(config), taken))
            return config, result
        first = first or failures[before]
    failures[:] = [*kept, _of_none(first, ordered)] if first else kept
    return ordered[0], None


def _of_none(first: Failure, tried: list[Any]) -> Failure:
    """The failure of the first configuration, where there is none that compiles and fits."""
    of_all = f"none of {len(tried)} configurations" if len(tried) > 1 else "one configuration"
    error = f"{of_all}; {tried[0]}: {first.error}"
    return replace(first, error=error[:300])


def _ordered(configs: list[Any], locked: str) -> tuple[list[Any], str]:
    """The configurations in the order in which they are tried, and why the first is that."""
    if only is not None:
        return [configs[min(only, len(configs) - 1)]], f"number {only + 1}"
    if not locked:
        return configs, _FIRST
    chosen = [one for one in configs if str(one) == locked]
    if not chosen:
        return configs, _GONE
    return [*chosen, *(one for one in configs if one is not chosen[0])], _LOCKED

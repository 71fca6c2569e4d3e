"""What every test shares: skips that say why, and the markers that must run under CI."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
from collections.abc import Generator, Iterator

import pytest

# As warpwatch.config.package names it, which this file must load without.
CACHE_VARIABLE = "WARPWATCH_COMPILER_CACHE"
# .ci/run names here the markers whose tests must run where it runs: a skip is then a failure.
MUST_RUN = frozenset(os.environ.get("WARPWATCH_MUST_RUN", "").split())
# As tests.meetings reads it.
EVERY_PAIR = bool(os.environ.get("WARPWATCH_EVERY_PAIR"))
# Compilers and interpreters make millions of objects that stay: to look through them as often as
# Python does by itself takes a fiftieth of a process' time.
gc.set_threshold(50_000, 20, 20)
# What takes minutes, the longest first: begun last, one of them would end alone.
LONGEST = (
    "test_tritons",
    "test_fixed_set",
    "test_images",
    "test_attention_scores_compiled",
    "test_bound",
    "test_strangers",
    "test_hopper_compiled_fp8",
    "test_documents",
    "test_lane",
    "test_browser",
    "test_prepared",
    "test_kept",
    "test_compiled_kernels",
    "test_hopper_compiled_backward",
    "test_demo",
    "test_attention_scores",
    "test_compiled_exact",
    "test_tune",
    "test_asv",
    "test_compiled_narrow",
    "test_traced",
    "test_residents",
    "test_upgrade",
    "test_hopper_compiled_forward",
    "test_engine",
    "test_exact_gradients",
    "test_unused_rows",
    "test_packed_few",
    "test_prior",
    "test_bisect",
)


_SERVER = contextlib.ExitStack()


def pytest_sessionstart(session: pytest.Session) -> None:
    """One process that has imported the compilers serves all tests, as it serves a history."""
    if not hasattr(session.config, "workerinput"):  # the processes of one run share it
        from warpwatch.instruments.compiled.measure import compile_server

        _SERVER.enter_context(compile_server.serving())


def pytest_sessionfinish() -> None:
    _SERVER.close()


def _gpu_missing() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no GPU that torch can use"


def _browser_missing() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return None if any(map(shutil.which, names)) else f"none of {', '.join(names)} on the PATH"


def _container_missing() -> str | None:
    lacking = [name for name in ("buildah", "podman", "runc") if shutil.which(name) is None]
    return f"not on the PATH: {', '.join(lacking)}" if lacking else None


_CHECKS = {"gpu": _gpu_missing, "browser": _browser_missing, "container": _container_missing}


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of a test marked ``sampled`` keep the first of every few neighbouring cases, which compile
    forms of one kernel; of one or two cases, all. ``make test-every-pair`` keeps all of any test.
    """
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out = set()
    for alike in cases.values():
        marker = alike[0].get_closest_marker("sampled")
        if marker is not None and len(alike) > 2:
            left_out |= set(alike) - set(alike[:: marker.kwargs.get("of", 5)])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(trylast=True)  # among what -k and -m have left
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not EVERY_PAIR:
        _sample(config, items)
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(order)))
    for marker, check in _CHECKS.items():
        marked = [item for item in items if item.get_closest_marker(marker)]
        reason = check() if marked else None
        for item in marked:
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    must_run = [marker for marker in MUST_RUN if item.get_closest_marker(marker)]
    if report.skipped and must_run:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} is marked {must_run[0]!r} and must run here, but it was skipped: "
            f"{report.longrepr}"
        )
    return report


@pytest.fixture(scope="session", autouse=True)
def compiled_once(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """What one test of this run has compiled, the others read: each compilation takes seconds.
    A folder that the environment names holds it beyond this run."""
    if os.environ.get(CACHE_VARIABLE):
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):  # the processes of one run share it
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, str(folder / "compiled"))
        yield

"""Which CUPTI is loaded, of those that a machine has, and what is said where there is none."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from tests.instruments.played_cupti import Card, Library
from warpwatch.instruments.counters import cupti
from warpwatch.instruments.counters.ncu import CountersRefusedError
from warpwatch.instruments.counters.range_profiler import RangeProfiler


@pytest.fixture
def library() -> Library:
    return Library(Card())


class Loader:
    """Stands for ``ctypes.CDLL``: what can be loaded, and what was."""

    def __init__(self, library: Library, *there: str) -> None:
        self.library, self.there = library, there
        self.loaded: list[str] = []

    def __call__(self, path: str, mode: int = 0) -> Library:
        name = f"loaded {path}" if mode & os.RTLD_NOLOAD else path
        if name not in self.there:
            raise OSError(f"{name}: planted")
        self.loaded.append(name)
        return self.library


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with the packages of CUDA 12 and toolkits of CUDA 12 and 13."""
    packages, toolkits = tmp_path / "nvidia", tmp_path / "local"
    for file in (
        packages / "cuda_cupti" / "lib" / "libcupti.so.12",
        packages / "cuda_cupti" / "lib" / "libnvperf_host.so",
        toolkits / "cuda-12.8" / "extras" / "CUPTI" / "lib64" / "libcupti.so.12",
        toolkits / "cuda-13.0" / "extras" / "CUPTI" / "lib64" / "libcupti.so.13",
        toolkits / "cuda-13.1" / "extras" / "CUPTI" / "lib64" / "libcupti.so.13",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (packages / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(cupti, "TOOLKITS", toolkits)
    return tmp_path


def test_a_cupti_that_is_loaded_already_is_taken(
    installed: Path, library: Library, monkeypatch: pytest.MonkeyPatch
):
    loader = Loader(library, "loaded libcupti.so.12", "libcupti.so.13")
    monkeypatch.setattr(ctypes, "CDLL", loader)
    assert cupti.load()._library is library
    assert loader.loaded == ["loaded libcupti.so.12"]


def test_the_newest_cupti_that_loads_is_taken_with_what_lies_beside_it(
    installed: Path, library: Library, monkeypatch: pytest.MonkeyPatch
):
    lib = installed / "nvidia" / "cuda_cupti" / "lib"
    toolkits = [
        str(installed / "local" / name / "extras" / "CUPTI" / "lib64" / "libcupti.so.13")
        for name in ("cuda-13.0", "cuda-13.1")
    ]
    package = [str(lib / "libcupti.so.12"), str(lib / "libnvperf_host.so")]
    loader = Loader(library, *package)
    monkeypatch.setattr(ctypes, "CDLL", loader)
    assert cupti.load()._library is library
    assert loader.loaded == package
    loader = Loader(library, *package, *toolkits)
    monkeypatch.setattr(ctypes, "CDLL", loader)
    cupti.load()
    assert loader.loaded == toolkits[1:]


def test_a_library_beside_that_does_not_load_is_left_to_cupti(
    installed: Path, library: Library, monkeypatch: pytest.MonkeyPatch
):
    lib = installed / "nvidia" / "cuda_cupti" / "lib"
    monkeypatch.setattr(ctypes, "CDLL", Loader(library, str(lib / "libcupti.so.12")))
    assert cupti.load()._library is library


def test_where_no_cupti_is_the_places_are_named(
    installed: Path, library: Library, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ctypes, "CDLL", Loader(library))
    with pytest.raises(CountersRefusedError) as refused:
        cupti.load()
    said = str(refused.value)
    assert said.startswith("no libcupti.so.13 or libcupti.so.12 in ")
    assert "install nvidia-cuda-cupti" in said
    for place in (
        installed / "nvidia" / "cu13" / "lib",
        installed / "local" / "cuda-12.8" / "extras" / "CUPTI" / "lib64",
        installed / "local" / "cuda*" / "lib64",
        "libcupti.so.12: planted",
    ):
        assert str(place) in said


def test_a_loaded_library_is_found_where_the_kernel_says():
    path = Path(cupti._path_of("libc.so.6"))
    assert path.is_absolute() and path.name == "libc.so.6"


def test_without_a_driver_no_library_is_looked_for(
    library: Library, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ctypes, "CDLL", loader := Loader(library, "libcupti.so.13"))
    with pytest.raises(CountersRefusedError, match=r"^no NVIDIA driver: libcuda.so.1: planted$"):
        RangeProfiler()
    assert loader.loaded == []

"""Triton's CUDA driver over ``libcuda.c``, for one target.

The C half of Triton is built and linked against a driver that keeps the parameters of a launch and
does nothing. CPU tensors pass for device tensors.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("libcuda.c")


def _build(folder: Path) -> Path:
    from triton.backends import nvidia

    include = Path(str(nvidia.__path__[0]), "include")
    library = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-O1", "-w", f"-I{include}", str(SOURCE)]
    subprocess.run([*command, "-Wl,-soname,libcuda.so.1", "-o", str(library)], check=True)
    return library


class Library:
    """What launches left in the driver."""

    def __init__(self, path: Path) -> None:
        self._c = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self._c.stub_launches.restype = ctypes.c_long
        self._c.stub_read.restype = ctypes.c_size_t

    def keep(self, sizes: Sequence[int]) -> None:
        """Keep the first parameters of every launch, which have these sizes in bytes."""
        self._c.stub_expect(len(sizes), (ctypes.c_int * len(sizes))(*sizes))
        self._c.stub_clear()

    def kept(self) -> bytes:
        """Grids and parameters since :meth:`keep`."""
        room = ctypes.create_string_buffer(65536)
        return room.raw[: self._c.stub_read(room)]

    @property
    def launches(self) -> int:
        return int(self._c.stub_launches())


@contextmanager
def active(arch: int = 90) -> Iterator[Library]:
    """Makes the driver Triton's active one, for the compute capability ``arch``."""
    with tempfile.TemporaryDirectory(prefix="libcuda-") as name:
        path = _build(Path(name))
        os.environ["TRITON_LIBCUDA_PATH"] = name
        library = Library(path)
        from triton.backends.nvidia import driver as nvidia
        from triton.runtime import driver as config

        found: Any = nvidia.CudaDriver.__new__(nvidia.CudaDriver)
        found.utils, found.launcher_cls = nvidia.CudaUtils(), nvidia.CudaLauncher
        found.get_device_capability = lambda device=None: divmod(arch, 10)
        found.get_current_device = lambda: 0
        found.set_current_device = lambda device: None
        found.get_current_stream = lambda device=None: 0
        found.records_launches = True  # CPU tensors are welcome
        before = config._active
        config.set_active(found)
        try:
            yield library
        finally:
            config._active = before
            del os.environ["TRITON_LIBCUDA_PATH"]

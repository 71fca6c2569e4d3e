"""Measures the roofs of a card that no datasheet describes: large products, and streams of memory.

A worker does so once, before anything else, in less than a second of the GPU; what is found is said
beside every share that is taken of it (:class:`warpwatch.devices.Ceilings`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from warpwatch import devices
from warpwatch.devices import Ceiling, Ceilings
from warpwatch.instruments.gpu.card.interface import Call, DeviceLostError, Gpu, says_lost

from .latency import Sample

# Products of n x n matrices, as long as one takes no longer than this: the next takes eight times
# as long, and a card that slow is busy with the smaller one.
SIZES = (2048, 4096, 8192)
LONG_US = 20_000.0
SAMPLES = 5
STREAM_BYTES = 1 << 30

Product = Callable[[int], Call]
Stream = Callable[[int], tuple[Call, int]]

_measured: dict[str, Ceilings] = {}


def roof(card: str) -> devices.Roof | None:
    """What shares of peak on ``card`` are of: its datasheet, or the ceilings that this process
    measured on it."""
    return devices.identify(card) or _measured.get(card)


def measured_on(
    gpu: Gpu,
    products: Mapping[str, Product],
    streams: Iterable[Stream],
    before: Ceilings | None = None,
) -> Ceilings | None:
    """The ceilings of ``gpu``, measured when a process first asks; ``None`` for a card that has a
    datasheet. What a process ``before`` this one measured on such a card is taken instead: shares
    of one run are of the same. ``products`` make the call of an n x n product by dtype, ``streams``
    one that moves about so many bytes and says how many. What fails has no ceiling; a lost device
    is raised."""
    card = gpu.card
    if devices.identify(card.name) is not None:
        return None
    if before is not None and before.card == card.name:
        _measured[card.name] = before
    if card.name not in _measured:
        peaks = {dtype: _peak(gpu, product) for dtype, product in products.items()}
        size = min(STREAM_BYTES, card.memory_bytes // 8)
        rates = [rate for stream in streams if (rate := _gbps(gpu, stream, size)) is not None]
        known = {dtype: peak for dtype, peak in peaks.items() if peak is not None}
        _measured[card.name] = Ceilings(card.name, known, max(rates, default=None))
    return _measured[card.name]


def _peak(gpu: Gpu, product: Product) -> Ceiling | None:
    best: Ceiling | None = None
    for n in SIZES:
        try:
            fastest = _fastest(gpu, product(n), cold=False)
        except Exception as error:  # the library may raise anything for what it does not have
            _raise_if_lost(error)
            break
        tflops = 2 * n**3 / fastest.us / 1e6
        if best is None or tflops > best.tflops:
            best = Ceiling(tflops, fastest.mhz / 1000 if fastest.mhz else None)
        if fastest.us > LONG_US:
            break
    return best


def _gbps(gpu: Gpu, stream: Stream, size: int) -> float | None:
    try:
        call, moved = stream(size)
        return moved / _fastest(gpu, call, cold=True).us / 1e3
    except Exception as error:  # most likely there is no memory for it
        _raise_if_lost(error)
        return None


def _fastest(gpu: Gpu, call: Call, *, cold: bool) -> Sample:
    gpu.run(call, calls=1, cold=False)  # what is loaded and compiled is in no sample
    samples = []
    for _ in range(SAMPLES):
        interval = gpu.run(call, calls=1, cold=cold)
        us = interval.elapsed_us - gpu.overhead_us()
        samples.append(Sample(us, interval.held, interval.spin_mhz, interval.clocks))
    fastest = min(samples, key=lambda one: one.us)
    if fastest.us <= 0:
        raise ValueError("a call that takes no time does no work")
    return fastest


def _raise_if_lost(error: Exception) -> None:
    if isinstance(error, DeviceLostError) or says_lost(str(error)):
        raise DeviceLostError(str(error)) from error


def torch_products() -> dict[str, Product]:
    """cuBLAS's or hipBLAS's products through torch, of the dtypes that workloads have."""
    import torch

    from warpwatch.workload.fp8 import fp8_flavour

    def drawn(n: int, dtype: torch.dtype) -> list[torch.Tensor]:
        # As workloads draw them: a product of zeros takes less power and runs at a higher clock.
        generator = torch.Generator("cuda").manual_seed(0)
        return [torch.randn(n, n, generator=generator, device="cuda").to(dtype) for _ in "ab"]

    def plain(dtype: torch.dtype, n: int, *, tf32: bool = False) -> Call:
        a, b = drawn(n, dtype)
        out = torch.empty(n, n, dtype=dtype, device="cuda")
        allowed = torch.backends.cuda.matmul

        def call() -> None:
            before, allowed.allow_tf32 = allowed.allow_tf32, tf32
            try:
                torch.matmul(a, b.t(), out=out)
            finally:
                allowed.allow_tf32 = before

        return call

    def fp8(n: int) -> Call:
        a, b = drawn(n, fp8_flavour())
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16
        )

    return {
        "bf16": partial(plain, torch.bfloat16),
        "fp16": partial(plain, torch.float16),
        "tf32": partial(plain, torch.float32, tf32=True),
        "fp32": partial(plain, torch.float32),
        "fp8": fp8,
    }


def torch_streams() -> list[Stream]:
    """Reading so many bytes once, and copying half as many."""
    import torch

    def read(size: int) -> tuple[Call, int]:
        source = torch.ones(size // 4, device="cuda")
        result = torch.empty((), device="cuda")
        return lambda: torch.sum(source, dim=0, out=result), size // 4 * 4

    def copy(size: int) -> tuple[Call, int]:
        source = torch.ones(size // 8, device="cuda")
        target = torch.empty_like(source)
        return lambda: target.copy_(source), size // 8 * 8

    return [read, copy]

"""Recording a call: what Triton and torch would have done, without a GPU."""

from __future__ import annotations

import contextlib
import operator
import re
import subprocess
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as HopperDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.root import ROOT
from warpwatch.config import targets
from warpwatch.config.package import CACHE_VARIABLE
from warpwatch.instruments.compiled.formats.recording import DescriptorArgument, HarnessError
from warpwatch.instruments.compiled.measure import reading
from warpwatch.instruments.compiled.record import addresses, driver
from warpwatch.instruments.compiled.record.call import record
from warpwatch.instruments.compiled.record.torch import cuda as torch_cuda

H200 = targets.get("sm_90")
MI300X = targets.get("gfx942")


@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    tl.store(y + offsets, tl.load(x + offsets, mask=inside) * factor, mask=inside)


def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    y = torch.empty_like(x)
    scale[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), factor, BLOCK=256, num_warps=2)
    return y


@pytest.mark.parametrize("target", [H200, MI300X], ids=lambda target: target.name)
def test_a_launch_shows_its_grid_arguments_options_and_code(target: targets.Target) -> None:
    recording = record(lambda: scaled(torch.empty(1000, device="cuda")), target)
    (launch,) = recording.launches
    assert launch.grid == (4, 1, 1)
    assert launch.arguments["n"] == 1000
    assert launch.arguments["factor"] == 2.0
    assert launch.arguments["BLOCK"] == 256
    assert launch.arguments["x"].shape == (1000,)
    assert launch.kernel.num_warps == 2
    assert launch.kernel.name == "scale"
    assert launch.kernel.binary.startswith(b"\x7fELF")
    assert recording.failures == ()


def test_texts_are_read_where_triton_is_set_to_keep_binaries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("TRITON_STORE_BINARY_ONLY", "1")
    (launch,) = record(lambda: scaled(torch.empty(1000, device="cuda")), H200).launches
    assert ".entry scale" in launch.kernel.texts["ptx"]
    assert "tt.func" in launch.kernel.texts["ttgir"]


def test_arguments_are_specialised_as_on_a_device() -> None:
    def call(count: int) -> None:
        scaled(torch.empty(count, device="cuda"))

    (aligned,) = record(lambda: call(1024), MI300X).launches
    assert aligned.attributes["x"] == (("tt.divisibility", 16), ("tt.pointer_range", 32))
    assert aligned.attributes["n"] == (("tt.divisibility", 16),)
    assert "buffer_load" in aligned.kernel.texts["amdgcn"]
    (odd,) = record(lambda: call(1001), H200).launches
    assert odd.attributes["x"] == (("tt.divisibility", 16),)
    assert "n" not in odd.attributes


def test_memory_beyond_two_gigabytes_is_not_a_buffer() -> None:
    big = torch.empty(1 << 30, dtype=torch.float32)  # four gigabytes, never touched
    (launch,) = record(lambda: scaled(big), MI300X).launches
    assert launch.attributes["x"] == (("tt.divisibility", 16),)
    assert "buffer_load" not in launch.kernel.texts["amdgcn"]


def test_torch_copies_are_counted_and_views_are_free() -> None:
    x = torch.empty(64, 32, 8, dtype=torch.float16)
    views = record(lambda: x.transpose(0, 1)[2:].unsqueeze(0).expand(4, -1, -1, -1), H200)
    assert views.torch_ops == ()
    (copy,) = record(lambda: x.transpose(0, 1).contiguous(), H200).torch_ops
    assert (copy.name, copy.copied_bytes, copy.launches) == ("aten.clone", x.numel() * 2, 1)


def test_host_code_finds_a_gpu_of_the_target() -> None:
    answers: dict[str, object] = {}

    def call() -> None:
        x = torch.zeros(4, device="cuda")
        answers["is_cuda"] = x.is_cuda, x.device.type, torch.empty_like(x).is_cuda
        answers["capability"] = torch.cuda.get_device_capability(x.device)
        answers["sms"] = torch.cuda.get_device_properties(0).multi_processor_count
        answers["hip"] = torch.version.hip is not None

    record(call, MI300X)
    assert answers == {
        "is_cuda": (True, "cuda", True),
        "capability": (9, 4),
        "sms": 304,
        "hip": True,
    }


def test_what_waits_for_the_device_is_an_operation_that_takes_no_time() -> None:
    def call() -> None:
        torch.cuda.synchronize()
        torch.cuda.current_stream().synchronize()
        torch.cuda.Stream().record_event().synchronize()
        torch.cuda.Event().synchronize()

    found = record(call, H200).torch_ops
    event, stream = "torch.cuda.Event.synchronize", "torch.cuda.Stream.synchronize"
    assert [one.name for one in found] == ["torch.cuda.synchronize", stream, event, event]
    assert {(one.launches, one.bytes_moved, one.copied_bytes) for one in found} == {(0, 0, 0)}


def test_the_document_states_which_questions_are_answered() -> None:
    text = (ROOT / "docs" / "explanation" / "compiled-instrument.md").read_text(encoding="utf-8")
    stated = text[text.index("- `torch.cuda` answers") : text.index("Every other function")]
    assert re.findall(r"`(\w+)`", stated) == list(torch_cuda.ANSWERED)


def test_every_other_question_is_refused_by_name() -> None:
    public = {
        name
        for name, value in vars(torch.cuda).items()
        if isinstance(value, types.FunctionType)
        and value.__module__.startswith("torch.cuda")
        and not name.startswith("_")
    }
    asked = sorted(public - set(torch_cuda.ANSWERED))
    assert {"mem_get_info", "memory_allocated", "utilization", "initial_seed"} <= set(asked)
    refused: dict[str, str] = {}

    def call() -> None:
        names = [*asked, "memory.mem_get_info", "CUDAGraph", "graph", "MemPool", "nvtx.range_push"]
        for name in names:
            with pytest.raises(torch_cuda.NotAnsweredError) as error:
                operator.attrgetter(name)(torch.cuda)()
            refused[name] = str(error.value)
        with pytest.raises(torch_cuda.NotAnsweredError, match=r"Event\.elapsed_time"):
            torch.cuda.Event(enable_timing=True).elapsed_time(torch.cuda.Event())

    record(call, H200)
    assert len(refused) == len(asked) + 5
    for name, text in refused.items():
        assert text.startswith(f"torch.cuda.{name} is not answered while launches are recorded")


def test_everything_is_put_back() -> None:
    before = triton.runtime.driver._active, torch.cuda.is_available, torch.version.hip
    with pytest.raises(ZeroDivisionError):
        record(lambda: 1 / 0, H200)
    assert (triton.runtime.driver._active, torch.cuda.is_available, torch.version.hip) == before
    assert torch.zeros(1).is_cuda is False


def test_a_kernel_that_does_not_compile_is_one_failure_and_the_rest_goes_on() -> None:
    @triton.jit
    def broken(x, BLOCK: tl.constexpr):
        tl.store(x + tl.arange(0, BLOCK), tl.arange(0, 2 * BLOCK))

    def call() -> None:
        x = torch.empty(64)
        broken[(1,)](x, BLOCK=32)
        scaled(x)

    recording = record(call, H200)
    assert [failure.kernel for failure in recording.failures] == ["broken"]
    assert [launch.kernel.name for launch in recording.launches] == ["scale"]


@triton.jit
def doubled(x):
    return x * 2 + nowhere  # noqa: F821  (the mistake under test)


def test_a_compile_error_says_where_it_is_also_in_a_function_the_kernel_calls() -> None:
    @triton.jit
    def calling(x):
        tl.store(x, doubled(tl.load(x)))

    (failure,) = record(lambda: calling[(1,)](torch.empty(64)), H200).failures
    assert failure.kernel == "calling"
    assert failure.error == (
        "CompilationError: line 2 of doubled: NameError('nowhere is not defined')"
    )


@triton.jit
def greedy(a, b, c, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    at = i[:, None] * SIZE + i[None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


def launch_greedy() -> None:
    a = torch.empty(256, 256)
    greedy[(1,)](a, a, torch.empty_like(a), SIZE=256, num_warps=8)


@triton.jit
def increment(x, N: tl.constexpr):
    tl.store(x + tl.arange(0, N), tl.load(x + tl.arange(0, N)) + 1)


def launch_wide() -> None:
    increment[(1,)](torch.empty(8192), N=8192, num_warps=64)


@triton.jit
def three_accumulators(a, b, c, n, K: tl.constexpr, N: tl.constexpr):
    i, j, k = tl.arange(0, 128), tl.arange(0, N), tl.arange(0, K)
    at_b = b + k[:, None] * N + j[None, :]
    one = tl.zeros([128, N], tl.float32)
    two, three = one, one
    for at in range(0, n):
        b_a = tl.load(a + i[:, None] * K + k[None, :] + at)
        one = tl.dot(b_a, tl.load(at_b + at), one)
        two = tl.dot(b_a, tl.load(at_b + at + 1), two)
        three = tl.dot(b_a, tl.load(at_b + at + 2), three)
    tl.store(c + i[:, None] * N + j[None, :], one + two * 2 + three * 3)


def launch_three_accumulators() -> None:
    a = torch.empty(1 << 16, dtype=torch.bfloat16)
    three_accumulators[(1,)](a, a, torch.empty(128, 256), 9, K=32, N=256, num_warps=8, num_stages=1)


@pytest.mark.parametrize(
    ("launch", "target", "limit"),
    [
        (launch_greedy, "gfx942", "262144 bytes of shared memory a block, mi300x has 65536"),
        (launch_greedy, "sm_90", "524288 bytes of shared memory a block, h200 has 232448"),
        (launch_wide, "sm_90", "2048 threads a block, h200 has 1024"),
        (launch_wide, "gfx942", "4096 threads a block, mi300x has 1024"),
        (launch_three_accumulators, "sm_100", "768 columns of tensor memory a block, b200 has 512"),
    ],
)
def test_what_does_not_fit_the_device_is_refused_at_every_launch(
    launch: Callable[[], None], target: str, limit: str
) -> None:
    def twice() -> None:
        launch()  # compiles
        launch()  # finds what Triton keeps

    recording = record(twice, targets.get(target))
    assert [one.stage for one in recording.failures] == ["resources"] * 2
    for one in recording.failures:
        said, _, configuration = one.error.partition(" (")
        assert said == f"launch refused: {limit}"
        assert re.search(r"num_warps=\d+, num_stages=\d+\)$", configuration)
    assert recording.launches == ()


@triton.jit
def copy_tiles(source, out, ROWS: tl.constexpr, N: tl.constexpr):
    i = tl.program_id(0) * ROWS
    device_side = tl.make_tensor_descriptor(out, [256, N], [N, 1], [ROWS, N])
    device_side.store([i, 0], source.load([i, 0]))


@pytest.mark.parametrize(
    ("target", "instruction"),
    [("sm_90", "UTMALDG"), ("sm_80", "LDG"), ("gfx942", "load")],
)
def test_tensor_descriptors_of_host_and_device_are_recorded(target: str, instruction: str) -> None:
    def call() -> None:
        x = torch.empty(256, 64, dtype=torch.float16)
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
        source = TensorDescriptor.from_tensor(x, [32, 64])
        copy_tiles[(8,)](source, torch.empty_like(x), ROWS=32, N=64)

    recording = record(call, targets.get(target))
    assert recording.failures == ()
    (launch,) = recording.launches
    described = launch.arguments["source"]
    assert isinstance(described, DescriptorArgument)
    assert (described.shape, described.block_shape) == ((256, 64), (32, 64))
    (found,) = reading.read((launch,))
    assert any(instruction in one.opcode for one in found.code.program.instructions)
    # Read once, written once.
    traffic = found.bound.units_us["memory"]
    assert traffic == pytest.approx(
        2 * 256 * 64 * 2 / {"sm_90": 4.8e6, "sm_80": 2.039e6}.get(target, 5.3e6)
    )


@gluon.jit
def copy_by_tma(source, out):
    tile = gl.allocate_shared_memory(source.dtype, source.block_type.shape, source.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, source.block_type.nbytes)
    tma.async_copy_global_to_shared(source, [0, 0], ready, tile)
    mbarrier.wait(ready, 0)
    tma.async_copy_shared_to_global(out, [0, 0], tile)
    tma.store_wait(0)


def test_gluon_kernels_are_recorded() -> None:
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)

    def call() -> None:
        x = torch.empty(64, 64, dtype=torch.float16)
        source, out = (
            HopperDescriptor.from_tensor(one, [64, 64], layout) for one in (x, torch.empty_like(x))
        )
        copy_by_tma[(1,)](source, out, num_warps=4)

    recording = record(call, H200)
    assert recording.failures == ()
    (found,) = reading.read(recording.launches)
    assert found.code.async_copy_level == 2
    assert found.bound.units_us["memory"] == pytest.approx(2 * 64 * 64 * 2 / 4.8e6)


def test_a_mistake_of_the_recorder_is_raised_whatever_host_code_catches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def mistaken(value: object, known: object) -> None:
        raise KeyError("no such argument")

    def careless() -> None:
        with contextlib.suppress(Exception):
            scaled(torch.empty(1000, device="cuda"))

    monkeypatch.setattr(driver, "describe", mistaken)
    with pytest.raises(HarnessError, match="noting a launch of scale: KeyError"):
        record(careless, H200)


def test_a_compiler_that_finds_no_room_is_no_failure_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    monkeypatch.setenv("WARPWATCH_COMPILER_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HarnessError, match="compiling scale: NotADirectoryError"):
        record(lambda: scaled(torch.empty(1000, device="cuda")), H200)


def test_compilers_find_their_memory_where_they_found_it_before() -> None:
    def places() -> str:
        command = ["grep", "-E", r"heap|stack|libc", "/proc/self/maps"]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=600
        ).stdout

    def personality() -> int:
        return int(Path("/proc/thread-self/personality").read_text(encoding="ascii"), 16)

    before = personality()
    with addresses.fixed():
        if not personality() & 0x0040000:
            pytest.skip("this system lets no process choose where its memory lies")
        assert len({places() for _ in range(3)}) == 1
    assert personality() == before

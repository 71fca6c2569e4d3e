"""Probe of the CUPTI range profiler on a GPU: python probe_cupti.py [variant]."""

import collections
import os
import statistics
import subprocess
import sys
import time
import traceback

VARIANTS = (
    "user-replay",
    "no-availability",
    "kernel-replay-auto-range",
    "user-range-kernel-replay",
    "many-passes",
    "twice",
    "torch-profiler",
    "under-ncu",
)
MANY = (
    "sm__cycles_active.avg",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
)


def main():
    if len(sys.argv) > 1:
        return child(sys.argv[1])
    for variant in VARIANTS:
        print(f"\n######## {variant}", flush=True)
        command = [sys.executable, "-X", "faulthandler", os.path.abspath(__file__), variant]
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=70
            )
            print(done.stdout)
            print(
                f"-- exit code {done.returncode}, {time.perf_counter() - begin:.1f} s", flush=True
            )
        except subprocess.TimeoutExpired as late:
            out = late.stdout or b""
            print(out.decode(errors="replace") if isinstance(out, bytes) else out)
            print("-- TIMED OUT", flush=True)


def step(name, do):
    print(f"\n== {name}", flush=True)
    begin = time.perf_counter()
    try:
        result = do()
        print(f"   ({(time.perf_counter() - begin) * 1e3:.1f} ms)", flush=True)
        return result
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        sys.stdout.flush()


def loaded():
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "cupti" in line or "nvperf" in line}
    print("   loaded:", sorted(path for path in paths if path.startswith("/")))


def child(variant):
    import torch

    print("torch", torch.__version__, torch.cuda.get_device_name(0))
    loaded()
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    from warpwatch.instruments.counters import cupti, range_profiler

    spent = collections.defaultdict(list)
    plain = cupti.Cupti.call

    def timed(self, function, **fields):
        begin = time.perf_counter()
        try:
            return plain(self, function, **fields)
        finally:
            spent[function].append((time.perf_counter() - begin) * 1e3)

    cupti.Cupti.call = timed
    work = Work(torch)
    kind = kinds(range_profiler, cupti)[variant]
    kind(torch, work, range_profiler)
    print("\n== milliseconds in CUPTI by function (calls, first, median, total)")
    for function, row in spent.items():
        print(
            f"   {function:48} {len(row):5} {row[0]:9.3f} "
            f"{statistics.median(row):9.3f} {sum(row):9.1f}"
        )


class Work:
    def __init__(self, torch):
        self.torch = torch
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        a, b, c, d = make(4096, 4096), make(4096, 4096), make(512, 512), make(512, 512)
        q, k, v = (make(4, 16, 2048, 64) for _ in range(3))
        x = torch.zeros(64 * 2**20, device="cuda")
        y = make(2048, 2048)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        self.calls = {
            "matmul 4096": lambda: a @ b,
            "matmul 512": lambda: c @ d,
            "sdpa": lambda: sdpa(q, k, v, is_causal=True),
            "add_ on 256 MiB (512 MiB of dram)": lambda: x.add_(1),
            "three kernels": lambda: torch.softmax(y.add(1) @ y, -1),
        }
        size = torch.cuda.get_device_properties(0).L2_cache_size
        buffer = torch.ones(int(2.5 * size) // 4, device="cuda")
        out = torch.empty((), device="cuda")
        self.clear = lambda: torch.sum(buffer, dim=0, out=out)
        self.tiny = torch.zeros(64, device="cuda")
        for call in self.calls.values():
            call()
        self.clear()
        torch.cuda.synchronize()

    def events(self, call, n):
        torch = self.torch
        found = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            for _ in range(n):
                call()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) * 1e3 / n)
        return found

    def times(self, when):
        """Device time of the large matmul, and what launches cost the host."""
        row = [f"{when:34}"]
        for name, call, n in (
            ("matmul 4096", self.calls["matmul 4096"], 20),
            ("matmul 512", self.calls["matmul 512"], 100),
            ("tiny add_", lambda: self.tiny.add_(1), 300),
        ):
            us = self.events(call, n)
            self.torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(1000 if n > 20 else 20):
                call()
            queued = (time.perf_counter() - begin) * 1e6 / (1000 if n > 20 else 20)
            self.torch.cuda.synchronize()
            row.append(
                f"{name}: events {statistics.median(us):8.2f} us (best {min(us):8.2f}), "
                f"host queues one in {queued:7.2f} us;"
            )
        print("  ", " ".join(row), flush=True)

    def cold_us(self, call):
        """Event time of one call after the cache was cleared, held by a spin."""
        torch = self.torch
        found = []
        for _ in range(9):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(1_000_000)
            self.clear()
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            found.append(begin.elapsed_time(end) * 1e3)
        return statistics.median(found)


def show(name, counted, wall):
    repeats = len(counted)
    print(f"   -- {name}: {repeats} repeats, {wall * 1e3 / max(repeats, 1):.2f} ms of wall a call")
    for metric in counted[0]:
        values = [one[metric] for one in counted]
        mean = statistics.fmean(values)
        spread = (max(values) - min(values)) / mean if mean else float("nan")
        sigma = statistics.pstdev(values) / mean if mean else float("nan")
        print(
            f"      {metric:64} spread {100 * spread:7.3f} % sigma {100 * sigma:6.3f} % "
            + " ".join(f"{value:.6g}" for value in values)
        )
    sys.stdout.flush()


def count_all(profiler, work, repeats=10, before=True):
    for name, call in work.calls.items():

        def one(name=name, call=call):
            begin = time.perf_counter()
            counted = profiler.count(call, repeats, work.clear if before else None)
            wall = time.perf_counter() - begin
            show(name, counted, wall)
            print(f"      cold event time {work.cold_us(call):.2f} us")

        step(f"count {name}{'' if before else ', warm cache'}", one)


def opened(make):
    profiler = step("open", make)
    if profiler is not None:
        print("   path", profiler.path, "version", profiler.version, "chip", profiler.chip)
        print("   passes", profiler.passes, "configuration", len(profiler._config), "bytes")
        loaded()
    return profiler


def thorough(torch, work, module):
    step("times before", lambda: (work.times("before"), work.times("before, again")))
    profiler = opened(module.RangeProfiler)
    if profiler is None:
        return
    step("times", lambda: work.times("enabled, nothing counted yet"))
    count_all(profiler, work)
    step("times", lambda: work.times("enabled, stopped"))

    def singly():
        begin = time.perf_counter()
        call = work.calls["matmul 4096"]
        counted = [profiler.count(call, 1, work.clear)[0] for _ in range(10)]
        show("matmul 4096, one count() for each repeat", counted, time.perf_counter() - begin)

    step("one at a time", singly)
    count_all(profiler, work, 5, before=False)

    def failing():
        def bad():
            raise ValueError("planted")

        try:
            profiler.count(bad, 2, work.clear)
        except ValueError as error:
            print("   raised as planned:", error)
        show("after a call that raised", profiler.count(work.calls["matmul 512"], 3), 0.0)

    step("a call that raises", failing)
    step("times", lambda: work.times("enabled, stopped, again"))
    step("close", profiler.close)
    step("times", lambda: (work.times("closed"), work.times("closed, again")))
    time.sleep(2)
    step("times", lambda: work.times("closed, 2 s later"))
    again = opened(module.RangeProfiler)
    if again is not None:
        step("counted again", lambda: show("512", again.count(work.calls["matmul 512"], 5), 0.0))
        step("close", again.close)
        step("times", lambda: work.times("closed twice"))
        library = again._cupti._library
        step("cuptiFinalize", lambda: print("   result", library.cuptiFinalize()))
        step("times", lambda: work.times("finalized"))
        third = opened(module.RangeProfiler)
        if third is not None:
            step("after it", lambda: show("512", third.count(work.calls["matmul 512"], 5), 0.0))
            step("close", third.close)

    def outcome():
        from types import SimpleNamespace

        workload = SimpleNamespace(
            name="probe",
            missing="",
            inputs=lambda *_, **__: {},
            call=lambda _: work.calls["sdpa"](),
        )
        found = module.count_in_process(workload, 3)
        print(found.status, found.detail, found.samples, found.evidence)

    step("count_in_process", outcome)


def brief(torch, work, module, kind):
    profiler = opened(kind)
    if profiler is not None:
        count_all(profiler, work)
        step("times", lambda: work.times("enabled, stopped"))
        step("close", profiler.close)
        step("times", lambda: work.times("closed"))


def twice(torch, work, module):
    first, second = opened(module.RangeProfiler), opened(module.RangeProfiler)
    for profiler in (first, second):
        if profiler is not None:
            step("count", lambda: show("512", profiler.count(work.calls["matmul 512"], 3), 0.0))
    for profiler in (second, first):
        if profiler is not None:
            step("close", profiler.close)


def with_torch_profiler(torch, work, module):
    from torch.profiler import ProfilerActivity, profile

    def kineto():
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            work.calls["matmul 512"]()
            torch.cuda.synchronize()
        print("   kineto saw", [one.key for one in found.key_averages()][:6])

    def count():
        with module.RangeProfiler() as profiler:
            show("512", profiler.count(work.calls["matmul 512"], 3), 0.0)

    step("count first", count)
    step("kineto", kineto)
    step("count after kineto", count)

    def within():
        with profile(activities=[ProfilerActivity.CUDA]):
            count()

    step("count within kineto", within)
    step("kineto again", kineto)


def under_ncu(torch, work, module):
    import shutil

    if os.environ.get("PROBE_INNER"):

        def count():
            with module.RangeProfiler() as profiler:
                show("512", profiler.count(work.calls["matmul 512"], 3), 0.0)

        return step("count under ncu", count)
    found = shutil.which("ncu")
    print("   ncu:", found)
    if found:
        command = [found, "--profile-from-start=off", sys.executable, __file__, "under-ncu"]
        done = subprocess.run(
            command,
            env={**os.environ, "PROBE_INNER": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        print(done.stdout)


def kinds(module, cupti):
    class Unasked(module.RangeProfiler):
        def _available(self):
            return None

    class Auto(module.RangeProfiler):
        range, replay = cupti.AUTO_RANGE, cupti.KERNEL_REPLAY

        def count(self, call, repeats, before=None, synchronize=None):
            import torch

            counted = []
            for _ in range(repeats):
                image = self._arm(16)
                if before is not None:
                    before()
                torch.cuda.synchronize()
                self._ask("Start")
                call()
                torch.cuda.synchronize()
                self._ask("Stop")
                self._ask("DecodeData")
                kernels = self._read(image, None)
                if not counted:
                    print("      kernels of the first call:", kernels)
                counted.append({name: sum(one[name] for one in kernels) for name in self.metrics})
            return counted

    class Kernel(module.RangeProfiler):
        replay = cupti.KERNEL_REPLAY

    def of(kind):
        return lambda torch, work, module: brief(torch, work, module, kind)

    return {
        "user-replay": thorough,
        "no-availability": of(Unasked),
        "kernel-replay-auto-range": of(Auto),
        "user-range-kernel-replay": of(Kernel),
        "many-passes": of(lambda: module.RangeProfiler(MANY)),
        "twice": twice,
        "torch-profiler": with_torch_profiler,
        "under-ncu": under_ncu,
    }


if __name__ == "__main__":
    main()

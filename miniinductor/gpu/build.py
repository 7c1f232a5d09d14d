"""Triton sources in, callable kernels out: compiled in parallel processes, tuned, kept on disk.

In:   `codegen.common.Kernel`s and the device.  Out: one callable per kernel: tensors and, on a GPU,
      the stream.

    >>> [kernel] = build_triton_kernels([kernel], torch.device("cuda", 0))
    >>> kernel(x, out, torch._C._cuda_getCurrentRawStream(0))

On a GPU: each (source, block sizes) is machine code in `config.cache_dir/<key>.cubin`; a warm start
loads that and never imports triton.  A kernel that moves many bytes is timed with each of its block
sizes, and the winner is remembered in `<key>.best`.  A launch is one C call (`launcher.c`).

Sizes that are arguments: machine code is kept per what a call may assume of them (`Assumed`), a
launcher per tuple of sizes.
# PyTorch: guards that sizes are below 2**31, and takes no variant by divisibility; Triton's own jit does the latter.

On the CPU, with TRITON_INTERPRET=1: the same source runs in Triton's interpreter, program by
program, on numpy arrays.

Mirrors torch/_inductor/runtime/triton_heuristics.py, static_cuda_launcher.py and async_compile.py.
"""

import atexit
import functools
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import os
import random
import subprocess
import sys
import threading
from typing import NamedTuple

import torch

from .. import config
from ..foreign import ours
from ..runtime.build import CompilerError, cache_folder, strip_comments, write_whole
from .helpers import with_wide_indices

WORKER = os.path.join(os.path.dirname(__file__), "worker.py")
MOST_SIZES = 1000  # launchers that are kept of a kernel whose sizes are arguments
TUNED_BYTES = 1 << 25  # kernels that move less (ten microseconds) take the first configuration
ROUNDS = (
    (9, 1.03, 0.05),
    (25, 1.01, 0.1),
    (75, 0, 0),
)  # timed so often; again those that are so close, if they take so many milliseconds
SIGNATURE = {
    torch.bool: "i1",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.uint8: "u8",
    torch.uint16: "u16",
    torch.uint32: "u32",
    torch.uint64: "u64",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
}


def why_not(device):
    """Why Triton kernels cannot be built for this device, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (Linux: pip install triton)"
    interpreting = os.environ.get("TRITON_INTERPRET") == "1"
    if device.type == "cpu":
        return (
            None
            if interpreting
            else "Triton kernels run on the CPU only in its interpreter: set TRITON_INTERPRET=1"
        )
    if interpreting:
        return "TRITON_INTERPRET=1 is set: kernels run on the CPU only"
    return None if device.type == "cuda" and torch.version.cuda else f"Triton kernels for {device}"


def build_triton_kernels(kernels, device, bytes_moved=()):
    """Kernels -> callables, in the same order.  Raises CompilerError with Triton's message."""
    reason = why_not(device)
    if reason:
        raise CompilerError(reason)
    named = [(k, named_source(k)) for k in kernels]
    if device.type == "cpu":
        return [InterpretedKernel(k, source) for k, source in named]
    unique = {}
    for (kernel, source), moved in zip(named, bytes_moved or itertools.repeat(0)):
        unique.setdefault(source_key(kernel, source), CudaCode(kernel, source, device, moved))
    codes = sorted(
        unique.values(), key=lambda code: -len(code.source)
    )  # what takes longest must not come last
    errors = compile_all([job for code in codes for job in code.jobs()])
    with torch.cuda.device(device):  # loading and timing happen there, whichever the caller's is
        for code in unique.values():
            code.choose(errors)
        calls = {key: code.callable() for key, code in unique.items()}
    return [calls[source_key(kernel, source)] for kernel, source in named]


def named_source(kernel):
    return kernel.source.replace("NAME(", kernel.summary + "_kernel(", 1)


def source_key(kernel, source):
    launch = kernel.launch
    return digest(strip_comments(source, "#"), launch.dtypes, launch.configs, launch.sizes)


def digest(*parts):
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:40]


def source_file(source):
    """A kernel must stand in a file: Triton reads its text."""
    path = os.path.join(cache_folder(), f"triton_{digest(source)[:24]}.py")
    if not os.path.exists(path):
        write_whole(path, source.encode())
    return path


def arguments_of(longer, kernel):
    """A function that gives the arguments of the kernel for longer rows, from those of `kernel`:
    both name theirs in the order they need them."""
    places = [kernel.arguments.index(argument) for argument in longer.arguments]
    return lambda arguments: [
        *[arguments[place] for place in places],
        *arguments[len(kernel.arguments) :],
    ]


# --- on a GPU -------------------------------------------------------------------------------------
class Assumed(NamedTuple):
    """What machine code may assume.  pointers, sizes: all are multiples of 16 (bytes; elements), so
    that 16 bytes are moved at once."""

    pointers: bool = True
    sizes: bool = False
    wide: bool = False  # nothing: indices of 64 bits


class CudaCode:
    """One source on one device: its configurations, their machine code, the chosen one."""

    def __init__(self, kernel, source, device, moved):
        self.kernel, self.source, self.moved = kernel, source, moved
        self.device = device.index or 0
        properties = torch.cuda.get_device_properties(self.device)
        self.capability = properties.major * 10 + properties.minor
        self.context = f"{properties.name} {triton_version()}"
        self.functions, self.longer = {}, None
        self.configs = list(kernel.launch.configs)
        self.best_file = os.path.join(cache_folder(), self.key("best") + ".best")
        known = self.known_best()
        if known is not None:
            self.configs = [known]
        elif moved < TUNED_BYTES and not config.max_autotune:
            self.configs = self.configs[:1]

    def key(self, *parts):
        return digest(
            strip_comments(self.source, "#"), self.kernel.launch.dtypes, self.context, *parts
        )

    def known_best(self):
        try:
            with open(self.best_file) as file:
                name = file.read()
        except ours(OSError):
            return None
        return next((c for c in self.configs if str(c) == name), None)

    def cubin(self, cfg, assumed):
        return os.path.join(cache_folder(), self.key(cfg, cfg.num_stages, *assumed) + ".cubin")

    def assumed(self, values):
        """What holds of aligned tensors with these sizes."""
        symbolic = self.kernel.launch.symbols
        return Assumed(
            True,
            bool(symbolic) and all(n % 16 == 0 for n in values),
            bool(symbolic) and self.kernel.launch.is_wide(values),
        )

    def jobs(self):
        """What has to be compiled before the first call: every configuration for this run's sizes,
        the first one for others, too."""
        here = self.assumed(self.kernel.launch.hints)
        wanted = [
            *[(cfg, here) for cfg in self.configs],
            (self.configs[0], here._replace(sizes=False)),
        ]
        return [
            self.job(*one) for one in dict.fromkeys(wanted) if not os.path.exists(self.cubin(*one))
        ]

    def job(self, cfg, assumed):
        launch, blocks = self.kernel.launch, dict(cfg.blocks)
        names = [p.strip() for p in self.source.split("_kernel(", 1)[1].split(")", 1)[0].split(",")]
        pointers, symbols = names[: len(launch.dtypes)], launch.symbols
        types = {p: "*" + SIGNATURE[d] for p, d in zip(pointers, launch.dtypes)} | {
            s: "i64" if assumed.wide else "i32" for s in symbols
        }
        return {
            "path": source_file(with_wide_indices(self.source) if assumed.wide else self.source),
            "name": self.kernel.summary + "_kernel",
            "aligned": [*pointers] * assumed.pointers + [*symbols] * assumed.sizes,
            "signature": types | {b: "constexpr" for b in blocks},
            "constants": blocks,
            "num_warps": cfg.num_warps,
            "num_stages": cfg.num_stages,
            "asserts": launch.asserts,
            "capability": self.capability,
            "cubin": self.cubin(cfg, assumed),
            "triton_cache": os.path.join(cache_folder(), "triton"),
        }

    def function(self, cfg, assumed):
        """(loaded function, what a launch needs to know), compiled now if it was not."""
        from ..runtime import _launcher

        path = self.cubin(cfg, assumed)
        if path not in self.functions:
            if not os.path.exists(path):
                for error in compile_all([self.job(cfg, assumed)]).values():
                    raise CompilerError(error)
            with open(path, "rb") as file:
                about, code = json.loads(file.readline()), file.read()
            self.functions[path] = (
                _launcher.load_cubin(code, about["name"], about["shared"], self.device),
                about,
            )
        return self.functions[path]

    def load(self, cfg, assumed, values=()):
        """The kernel with these block sizes, for these sizes, ready to call."""
        from ..runtime import _launcher

        function, about = self.function(cfg, assumed)
        grid = (*self.kernel.launch.grid(cfg, values), 1)[:2]
        if grid[1] > 65535 or grid[0] > 2**31 - 1:
            raise CompilerError(f"{about['name']}: a grid of {grid} programs")
        return _launcher.CudaKernel(
            function,
            self.kernel.summary,
            self.device,
            *grid,
            about["threads"],
            about["shared"],
            self.unaligned(cfg, assumed, values) if assumed.pointers else None,
        )

    def unaligned(self, cfg, assumed, values):
        """The kernel for pointers that are not 16-byte aligned: compiled when it is first
        called."""
        kernel = functools.cache(lambda: self.load(cfg, assumed._replace(pointers=False), values))
        return lambda *arguments: kernel()(*arguments)

    def launcher(self, values):
        """What to call with tensors of these sizes."""
        launch = self.kernel.launch
        if launch.longer is not None and launch.at(*values)[0]["r"] > self.best.block("r"):
            if self.longer is None:
                [self.longer] = build_triton_kernels(
                    [launch.longer], torch.device("cuda", self.device)
                )
            reordered = arguments_of(launch.longer, self.kernel)
            return lambda *arguments: self.longer(*reordered(arguments))
        return (
            self.load(self.best, self.assumed(values), values)
            if 0 not in launch.grid(self.best, values)
            else lambda *arguments: None
        )

    def choose(self, errors):
        """Load; where there are several configurations, time them."""
        loaded, reason, hints = {}, None, self.kernel.launch.hints
        here = self.assumed(hints)
        for cfg in self.configs:
            if self.cubin(cfg, here) in errors:
                reason = errors[self.cubin(cfg, here)]
                continue
            try:
                loaded[cfg] = self.load(cfg, here, hints)
            except ours(OSError, RuntimeError) as error:  # it needs more than a processor has
                reason = error
        if not loaded:
            raise CompilerError(
                f"Triton refused a generated kernel (kept as {source_file(self.source)}): {reason}"
            )
        self.best = next(iter(loaded))
        if len(loaded) > 1:
            times = self.timed(loaded)
            self.best = min(times, key=times.get)
            write_whole(self.best_file, str(self.best).encode())

    def timed(self, loaded):
        """Milliseconds of each configuration that may be the best."""
        device, launch = torch.device("cuda", self.device), self.kernel.launch
        tensors = examples(
            [((n,), (1,), dtype) for n, dtype in zip(launch.at(*launch.hints)[1], launch.dtypes)],
            device,
        )
        if tensors is None:
            return {cfg: i for i, cfg in enumerate(loaded)}
        calls = {
            cfg: functools.partial(call, *tensors, *launch.hints) for cfg, call in loaded.items()
        }
        for rounds, close, long in ROUNDS:
            times = event_times(calls, device, rounds)
            best = min(times.values())
            calls = {cfg: call for cfg, call in calls.items() if times[cfg] < close * best}
            if best < long or len(calls) < 2:
                return times

    def callable(self):
        """What to call with tensors, sizes where they are arguments, and a stream."""
        count = len(self.kernel.launch.symbols)
        if not count:
            return self.launcher(())
        self.at_sizes, sizes = functools.lru_cache(MOST_SIZES)(self.launcher), slice(-1 - count, -1)
        return lambda *arguments: self.at_sizes(arguments[sizes])(*arguments)


@torch.no_grad()
def examples(layouts, device):
    """Tensors of these (size, stride, dtype): normal numbers (of a generator of their own: the
    user's must not notice), indices 0, which are in range.  None where there is no memory for
    them."""
    generator = torch.Generator(device).manual_seed(0)
    try:
        flat = [
            torch.zeros(
                1 + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else 0,
                dtype=dtype,
                device=device,
            )
            for size, stride, dtype in layouts
        ]
    except torch.cuda.OutOfMemoryError:
        return None
    return [
        (t.normal_(generator=generator) if t.is_floating_point() else t).as_strided(size, stride)
        for t, (size, stride, _) in zip(flat, layouts)
    ]


def event_times(calls, device, rounds):
    """Milliseconds of each call(stream), interleaved, the lower quartile: what disturbs can only
    add: {name: ms}.

    What one leaves in the cache helps the next: with many rounds each follows all others; with few
    the order stays, so that none follows itself."""
    stream, pairs, order = (
        torch.cuda.current_stream(device),
        {name: [] for name in calls},
        random.Random(0),
    )
    for _ in range(rounds):
        for name, call in (
            order.sample([*calls.items()], len(calls)) if rounds > 9 else calls.items()
        ):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(
                20_000 if rounds < 10 else 100_000
            )  # launches must not be part of the time
            start.record(stream)
            call(stream.cuda_stream)
            end.record(stream)
            pairs[name].append((start, end))
    stream.synchronize()
    return {
        name: sorted(s.elapsed_time(e) for s, e in found[2:])[rounds // 4]
        for name, found in pairs.items()
    }


def race(calls, source, layouts, device):
    """Milliseconds of each call(tensors, stream), remembered on disk.  layouts: name -> Layout of
    the tensors they take."""
    about = torch.cuda.get_device_properties(device).name, triton_version(), torch.__version__
    path = os.path.join(
        cache_folder(), digest(strip_comments(source, "#"), layouts, *about) + ".race"
    )
    try:
        with open(path) as file:
            return json.load(file)
    except ours(OSError, ValueError):
        pass
    tensors = examples(
        [(tuple(map(int, l.size)), tuple(map(int, l.stride)), l.dtype) for l in layouts.values()],
        device,
    )
    if tensors is None:
        return {name: len(name) for name in calls}
    with torch.no_grad(), torch.cuda.device(device):
        times = event_times(
            {
                name: functools.partial(call, dict(zip(layouts, tensors)))
                for name, call in calls.items()
            },
            device,
            rounds=25,
        )
    write_whole(path, json.dumps(times).encode())
    return times


@functools.lru_cache(None)
def triton_version():
    return importlib.metadata.version("triton")


# --- worker processes -----------------------------------------------------------------------------
_workers, _lock = [], threading.RLock()


def start_workers(count):
    """Start worker processes, at most one per processor.  Started before kernels are written they
    are ready when those are: Triton takes a second to import and to look at itself."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    with _lock:
        while len(_workers) < min(count, os.cpu_count() or 1):
            _workers.append(
                subprocess.Popen(
                    [sys.executable, WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    env=environment,
                    stderr=subprocess.DEVNULL,
                )
            )


@atexit.register
def stop_workers():
    while _workers:
        worker = _workers.pop()
        worker.stdin.close()
        worker.wait()


def compile_all(jobs):
    """Compile in parallel: {cubin: error} of the jobs that failed."""
    if not jobs:
        return {}
    errors, waiting = {}, iter(jobs)
    with _lock:
        start_workers(len(jobs))

        def serve(worker):
            while True:
                with turn:
                    job = next(waiting, None)
                if job is None:
                    return
                worker.stdin.write(json.dumps(job) + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
                error = json.loads(answer).get("error") if answer else "the compiler process died"
                if error:
                    errors[job["cubin"]] = error

        turn = threading.Lock()
        threads = [threading.Thread(target=serve, args=(worker,)) for worker in _workers]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:  # the threads go on: no later job may get an answer that is theirs
            for worker in _workers:
                worker.kill()
            _workers.clear()
            raise
        _workers[:] = [w for w in _workers if w.poll() is None]
    return errors


# --- in the interpreter ---------------------------------------------------------------------------
class InterpretedKernel:
    """A kernel that Triton's interpreter runs, program by program."""

    def __init__(self, kernel, source):
        self.kernel, self.source, self.function = kernel, source, None
        self.config = kernel.launch.configs[0]

    @functools.cached_property
    def longer(self):
        return InterpretedKernel(self.kernel.launch.longer, named_source(self.kernel.launch.longer))

    def __call__(self, *tensors):
        if self.function is None:
            from .interpreter import load_interpreted

            self.function = load_interpreted(
                source_file(self.source), self.kernel.summary + "_kernel"
            )
        launch = self.kernel.launch
        values = tensors[len(tensors) - len(launch.symbols) :]
        if launch.longer is not None and launch.at(*values)[0]["r"] > self.config.block("r"):
            return self.longer(*arguments_of(launch.longer, self.kernel)(tensors))
        grid = launch.grid(self.config, values)
        if 0 not in grid:
            try:
                self.function[grid](*tensors, **dict(self.config.blocks))
            except ours(Exception) as error:
                if "index out of range" in str(error):
                    raise IndexError(
                        f"index out of range in self (in compiled kernel {self.kernel.summary})"
                    ) from None
                raise

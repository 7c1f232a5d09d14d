"""Triton sources in, callable kernels out: compiled in parallel processes, tuned, kept on disk.

In:   the device, `Kernel`s (codegen/kernels.py), how many bytes each moves.  Out: one callable per
      kernel: tensors and, on a GPU, the stream.

    >>> [kernel] = build_triton_kernels(torch.device("cuda", 0), [kernel], [1 << 20])
    >>> kernel(x, out, torch._C._cuda_getCurrentRawStream(0))

On a GPU: each (source, block sizes) is machine code in `config.cache_dir/<key>.cubin`; a warm start
loads that and never imports triton.  A kernel that moves many bytes is timed with each of its block
sizes, and the winner is remembered in `<key>.best`.  A launch is one C call (`launcher.c`).

Sizes that are arguments: machine code is kept per what a call may assume of them (`Assumed`), a
launcher per tuple of sizes.
# PyTorch: guards that sizes are below 2**31, and takes no variant by divisibility; Triton's own jit
# does the latter.

Worker processes (worker.py) compile side by side; `start_workers` starts them as soon as somebody
knows that kernels will come.

On the CPU, with TRITON_INTERPRET=1: the same source runs in Triton's interpreter, program by
program, on numpy arrays.

Mirrors torch/_inductor/runtime/triton_heuristics.py, static_cuda_launcher.py and async_compile.py.
"""

import atexit
import base64
import concurrent.futures
import functools
import importlib.metadata
import importlib.util
import json
import math
import os
import queue
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from ... import config
from ...devices import FLOAT8
from ...errors import ours
from ...toolchain import CompilerError, cannot_write, digest, disk, strip_comments, write_whole
from ..kernels import Kernel
from .kernel_text import with_wide_indices
from .tile_plan import Config, is_interpreting

OfStream: TypeAlias = Callable[[int], object]  # queues work on the stream with this handle
WORKER = os.path.join(os.path.dirname(__file__), "worker.py")
ROUNDS = 25  # in which a configuration is timed
MOST_SIZES = 1000  # launchers that are kept of a kernel whose sizes are arguments
TUNED = 1 << 24  # bytes moved, or elements computed, from which on all configurations are timed
SHARE = 0.01  # of the work of a graph: a kernel with less has its first configuration
# dtype -> what Triton calls it in a signature
SHORT = "bool:i1 float16:fp16 bfloat16:bf16 float32:fp32 float64:fp64"
SHORT += " uint8:u8 uint16:u16 uint32:u32 uint64:u64 int8:i8 int16:i16 int32:i32 int64:i64"
SIGNATURE = {
    getattr(torch, name): short for name, short in (one.split(":") for one in SHORT.split())
}
SIGNATURE |= dict.fromkeys(FLOAT8, "u8")


def why_not(device: torch.device) -> str | None:
    """Why Triton kernels cannot be built for this device, or None."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed (Linux: pip install triton)"
    if device.type == "cpu":
        advice = "Triton kernels run on the CPU only in its interpreter: set TRITON_INTERPRET=1"
        return None if is_interpreting() else advice
    if is_interpreting():
        return "TRITON_INTERPRET=1 is set: kernels run on the CPU only"
    return None if device.type == "cuda" and torch.version.cuda else f"Triton kernels for {device}"


def build_triton_kernels(
    device: torch.device, kernels: Sequence[Kernel], bytes_moved: Sequence[int]
) -> list[Callable]:
    """Kernels -> callables, in the same order.  Raises CompilerError with Triton's message."""
    reason = why_not(device)
    if reason:
        raise CompilerError(reason)
    named = [(k, named_source(k)) for k in kernels]
    if device.type == "cpu":
        return [InterpretedKernel(k, source) for k, source in named]
    keys = [source_key(*one) for one in named]
    tuned = worth_tuning(keys, [work_of(*one) for one in zip(kernels, bytes_moved)])
    unique = {key: CudaCode(*one, device, key in tuned) for key, one in zip(keys, named)}
    # what takes longest must not come last
    codes = sorted(unique.values(), key=lambda code: -len(code.source))
    errors = compile_and_keep([job for code in codes for job in code.jobs()])
    with torch.cuda.device(device):  # loading and timing happen there, whichever the caller's is
        for code in unique.values():
            code.choose(errors)
        calls = {key: code.callable() for key, code in unique.items()}
    return [calls[key] for key in keys]


def worth_tuning(keys: Sequence[str], work: Sequence[int]) -> set[str]:
    """Of which kernels all configurations are compiled and timed: those that have much to do, and
    a share of what the graph has to do.  keys: the same for kernels with the same source."""
    in_all: Counter[str] = Counter()
    for key, here in zip(keys, work):
        in_all[key] += here
    least = SHARE * sum(work)
    return {key for key, here in zip(keys, work) if here >= TUNED and in_all[key] >= least}


def work_of(kernel: Kernel, bytes_moved: int) -> int:
    """Bytes that it moves or elements that it computes, whichever is more."""
    sizes, _ = kernel.launch.at(*kernel.launch.hints)
    return max(bytes_moved, math.prod(sizes.get(axis, 1) for axis in "yxr"))


def named_source(kernel: Kernel) -> str:
    return kernel.source.replace("NAME(", kernel.summary + "_kernel(", 1)


def source_key(kernel: Kernel, source: str) -> str:
    launch = kernel.launch
    about = launch.pointers, launch.configs, launch.sizes
    return digest(strip_comments(source, "#"), *about)


def source_file(source: str) -> str:
    """The path of a file with this kernel: Triton reads a kernel's text from its file."""
    path = os.path.join(disk().folder(), f"triton_{digest(source)[:24]}.py")
    if not os.path.exists(path):
        write_whole(path, source.encode())
    return path


def keep(name: str, content: bytes) -> None:
    """Write a file to the cache on disk.  Raises CompilerError where that fails."""
    try:
        disk().write(name, content)
    except ours(OSError) as error:
        raise cannot_write(name, error) from error


# --- processes that compile -----------------------------------------------------------------------
_workers: list[subprocess.Popen] = []
_lock = threading.RLock()


def start_workers(count: int) -> None:
    """Start worker processes, at most one per processor that this process may use.  They are ready
    when kernels are written if they start before that: Triton takes a second to import and to hash
    its own files."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    with _lock:
        while len(_workers) < min(count, len(os.sched_getaffinity(0))):
            _workers.append(
                subprocess.Popen(
                    [sys.executable, WORKER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    env=environment,
                )
            )


@atexit.register
def stop_workers() -> None:
    while _workers:
        worker = _workers.pop()
        if worker.stdin is not None:
            worker.stdin.close()
        worker.wait()


def compile_all(jobs: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Compile in parallel: {name under which it is kept: the worker's answer}."""
    free: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()

    def compiled(job: dict[str, Any]) -> dict[str, Any]:
        worker = free.get()
        try:
            return answer_of(worker, job)
        finally:
            free.put(worker)

    with _lock:
        start_workers(len(jobs))
        for worker in _workers:
            free.put(worker)
        done = False
        with concurrent.futures.ThreadPoolExecutor(max(1, len(_workers))) as pool:
            try:
                running = {job["kept"]: pool.submit(compiled, job) for job in jobs}
                waited = concurrent.futures.wait(running.values(), config.compiler_seconds)
                done = not waited.not_done
            finally:  # no later job may get an answer that is meant for these
                if not done:
                    for worker in _workers:
                        worker.kill()  # then their answers end, and the threads
                    _workers.clear()
        _workers[:] = [worker for worker in _workers if worker.poll() is None]
    if not done:
        text = f"Triton did not end within {config.compiler_seconds} seconds"
        return {name: {"error": text} for name in running}
    return {name: one.result() for name, one in running.items()}


def answer_of(worker: subprocess.Popen, job: dict[str, Any]) -> dict[str, Any]:
    assert worker.stdin is not None and worker.stdout is not None
    try:
        worker.stdin.write(json.dumps(job) + "\n")
        worker.stdin.flush()
        answer = worker.stdout.readline()
    except ours(OSError):  # it was killed
        answer = ""
    return json.loads(answer) if answer else {"error": "the compiler process died"}


def compile_and_keep(jobs: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Compile, and keep the machine code on disk: {name: error} of the jobs that failed.  Raises
    CompilerError."""
    unique = {job["kept"]: job for job in jobs}  # kernels may share machine code
    answers = compile_all(list(unique.values()))
    for name, answer in answers.items():
        if "error" not in answer:
            about = json.dumps(answer["about"]).encode()
            keep(name, about + b"\n" + base64.b64decode(answer["code"]))
    return {name: answer["error"] for name, answer in answers.items() if "error" in answer}


# --- on a GPU -------------------------------------------------------------------------------------
class Assumed(NamedTuple):
    """What machine code may assume: multiples of 16 let it move 16 bytes at once."""

    pointers: bool = True  # all are multiples of 16 bytes
    sizes: bool = False  # all are multiples of 16 elements
    wide: bool = False  # some index needs 64 bits


class CudaCode:
    """One source on one device: its configurations, their machine code, the chosen one."""

    def __init__(self, kernel: Kernel, source: str, device: torch.device, is_tuned: bool):
        self.kernel, self.source, self.launch = kernel, source, kernel.launch
        self.device = device.index or 0
        properties = torch.cuda.get_device_properties(self.device)
        self.capability = properties.major * 10 + properties.minor
        about = f"{properties.name} {importlib.metadata.version('triton')}"
        self.identity = (strip_comments(source, "#"), self.launch.pointers, about)
        self.here = self.assumed(self.launch.hints)  # of this run's sizes
        # cubin -> (loaded function, what a launch needs to know)
        self.functions: dict[str, tuple[int, dict[str, Any]]] = {}
        self.configs: list[Config] = list(self.launch.configs)
        self.best_file = self.file("best", suffix=".best")
        name = disk().read(self.best_file)
        known = [c for c in self.configs if str(c).encode() == name]
        if known or not (is_tuned or config.max_autotune):
            self.configs = (known or self.configs)[:1]

    def file(self, *parts: object, suffix: str) -> str:
        return digest(*self.identity, *parts) + suffix

    # -- machine code ------------------------------------------------------------------------------
    def cubin(self, cfg: Config, assumed: Assumed) -> str:
        return self.file(cfg, cfg.num_stages, *assumed, suffix=".cubin")

    def assumed(self, values: Sequence[int]) -> Assumed:
        """What holds for aligned tensors with these sizes."""
        if not self.launch.symbols:
            return Assumed()
        multiples = all(n % 16 == 0 for n in values)
        return Assumed(sizes=multiples, wide=self.launch.is_wide(values))

    def jobs(self) -> list[dict[str, Any]]:
        """What has to be compiled before the first call: every configuration for this run's sizes,
        and the first one for other sizes, too."""
        wanted = [(cfg, self.here) for cfg in self.configs]
        wanted.append((self.configs[0], self.here._replace(sizes=False)))
        missing = [one for one in dict.fromkeys(wanted) if disk().read(self.cubin(*one)) is None]
        return [self.job(*one) for one in missing]

    def job(self, cfg: Config, assumed: Assumed) -> dict[str, Any]:
        launch, blocks = self.launch, dict(cfg.blocks)
        types = {p: "*" + SIGNATURE[dtype] for p, dtype in launch.pointers.items()}
        sizes = list(map(str, launch.symbols))
        types |= dict.fromkeys(sizes, "i64" if assumed.wide else "i32")
        aligned = [*launch.pointers] if assumed.pointers else []
        source = with_wide_indices(self.source, blocks) if assumed.wide else self.source
        return {
            "path": source_file(source),
            "name": self.kernel.summary + "_kernel",
            "aligned": [*aligned, *sizes] if assumed.sizes else aligned,
            "signature": types | {b: "constexpr" for b in blocks},
            "constants": blocks,
            "num_warps": cfg.num_warps,
            "num_stages": cfg.num_stages,
            "asserts": launch.asserts,
            "capability": self.capability,
            "kept": self.cubin(cfg, assumed),
            "triton_cache": os.path.join(disk().folder(), "triton"),
        }

    def function(self, cfg: Config, assumed: Assumed) -> tuple[int, dict[str, Any]]:
        """(loaded function, what a launch needs to know), compiled now if it was not."""
        from . import _launcher  # type: ignore[attr-defined]

        name = self.cubin(cfg, assumed)
        if name not in self.functions:
            content = disk().read(name)
            if content is None:
                for error in compile_and_keep([self.job(cfg, assumed)]).values():
                    raise CompilerError(error)
                content = disk().read(name) or b""
            line, _, code = content.partition(b"\n")
            about = json.loads(line)
            function = _launcher.load_cubin(code, about["name"], about["shared"], self.device)
            self.functions[name] = function, about
        return self.functions[name]

    # -- launches ----------------------------------------------------------------------------------
    def load(self, cfg: Config, assumed: Assumed, values: Sequence[int] = ()) -> Callable:
        """The kernel with these block sizes, for these sizes, ready to call."""
        from . import _launcher  # type: ignore[attr-defined]

        function, about = self.function(cfg, assumed)
        programs = self.launch.programs(cfg, values)
        if programs > 2**31 - 1:
            raise CompilerError(f"{about['name']}: {programs} programs")
        unaligned = self.unaligned(cfg, assumed, values) if assumed.pointers else None
        block = about["threads"], about["shared"]
        name = self.kernel.summary
        return _launcher.CudaKernel(function, name, self.device, programs, *block, unaligned)

    def unaligned(self, cfg: Config, assumed: Assumed, values: Sequence[int]) -> Callable:
        """The kernel for pointers that are not 16-byte aligned: compiled when it is first
        called."""
        kernel = functools.cache(lambda: self.load(cfg, assumed._replace(pointers=False), values))
        return lambda *arguments: kernel()(*arguments)

    def launcher(self, values: Sequence[int]) -> Callable:
        """What to call with tensors of these sizes."""
        if not self.launch.programs(self.best, values):
            return lambda *arguments: None  # a kernel of no elements
        return self.load(self.best, self.assumed(values), values)

    def callable(self) -> Callable:
        """What to call with tensors, sizes where they are arguments, and a stream."""
        count = len(self.launch.symbols)
        if not count:
            return self.launcher(())
        at_sizes, sizes = functools.lru_cache(MOST_SIZES)(self.launcher), slice(-1 - count, -1)
        return lambda *arguments: at_sizes(arguments[sizes])(*arguments)

    # -- the best configuration --------------------------------------------------------------------
    def choose(self, errors: Mapping[str, str]) -> None:
        """Load the configurations; time them, if there are several; set `best`.

        errors: name of a cubin -> why it could not be compiled."""
        loaded: dict[Config, Callable] = {}
        reason: object = None
        for cfg in self.configs:
            name = self.cubin(cfg, self.here)
            if name in errors:
                reason = errors[name]
                continue
            try:
                loaded[cfg] = self.load(cfg, self.here, self.launch.hints)
            except ours(OSError, RuntimeError) as error:  # it needs more than a processor has
                reason = error
        if not loaded:
            kept = source_file(self.source)
            raise CompilerError(f"Triton refused a generated kernel (kept as {kept}): {reason}")
        self.best = next(iter(loaded))
        if len(loaded) > 1:
            times = self.timed(loaded)
            self.best = min(times, key=times.__getitem__)
            keep(self.best_file, str(self.best).encode())

    def timed(self, loaded: Mapping[Config, Callable]) -> Mapping[Config, float]:
        """Milliseconds of each configuration; without memory for that, their places in the list."""
        hints = self.launch.hints
        _, extents = self.launch.at(*hints)
        dtypes = self.launch.pointers.values()
        try:
            tensors = [example(n, dtype, self.device) for n, dtype in zip(extents, dtypes)]
        except torch.cuda.OutOfMemoryError:
            return {cfg: number for number, cfg in enumerate(loaded)}
        ready = {c: functools.partial(call, *tensors, *hints) for c, call in loaded.items()}
        return event_times(ready)


def example(numel: int, dtype: torch.dtype, device: int) -> torch.Tensor:
    """A tensor to time a kernel with: normal numbers, of a generator of their own, since the user's
    must not advance; indices are 0, which is in range."""
    flat = torch.zeros(numel, dtype=dtype, device=device)
    generator = torch.Generator(flat.device).manual_seed(0)
    is_wide = dtype.is_floating_point and dtype not in FLOAT8
    return flat.normal_(generator=generator) if is_wide else flat


def event_times(calls: Mapping[Config, OfStream]) -> dict[Config, float]:
    """The lower quartile of each call's milliseconds, since disturbances only add time.  The calls
    take turns in a random order, since what one leaves in the cache helps the next."""
    stream, order = torch.cuda.current_stream(), random.Random(0)
    pairs: dict[Config, list] = {cfg: [] for cfg in calls}
    for _ in range(ROUNDS):
        for cfg in order.sample(list(calls), len(calls)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(100_000)  # launches must not be part of the time
            start.record(stream)
            calls[cfg](stream.cuda_stream)
            end.record(stream)
            pairs[cfg].append((start, end))
    stream.synchronize()
    return {
        cfg: sorted(start.elapsed_time(end) for start, end in found[2:])[ROUNDS // 4]
        for cfg, found in pairs.items()
    }


# --- in the interpreter ---------------------------------------------------------------------------
class InterpretedKernel:
    """A kernel that Triton's interpreter runs, program by program."""

    def __init__(self, kernel: Kernel, source: str):
        self.kernel, self.source, self.launch = kernel, source, kernel.launch

    @functools.cached_property
    def function(self) -> Any:
        from .interpreter import load_interpreted

        return load_interpreted(source_file(self.source), self.kernel.summary + "_kernel")

    def __call__(self, *arguments: Any) -> None:
        values = arguments[len(arguments) - len(self.launch.symbols) :]
        cfg = self.launch.configs[0]
        programs = self.launch.programs(cfg, values)
        if not programs:
            return
        given = [a.view(torch.uint8) if getattr(a, "dtype", 0) in FLOAT8 else a for a in arguments]
        try:
            self.function[programs,](*given, **dict(cfg.blocks))
        except ours(Exception) as error:
            if "index out of range" not in str(error):
                raise
            about = f"in compiled kernel {self.kernel.summary}"
            raise IndexError(f"index out of range in self ({about})") from None

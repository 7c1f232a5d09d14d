"""Measuring: interleaved rounds, medians, ratios with their spread; compile times with fresh
caches.

In:   variants of one computation, {name: callable}.  Out: `Timing`s.

    >>> timings = interleave({"eager": f, "ours": g})
    >>> ratio(timings, "eager", "ours")         # eager / ours, per round: median, quartiles
    (1.9, 1.85, 1.97)

One round runs every variant once (a batch of calls long enough to time), so that a slow moment of
the machine hits all of them; the ratio is taken within a round.
"""

from typing import Any
from collections.abc import Callable, Iterator, Mapping
import contextlib
import ctypes
import math
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import unittest.mock
from dataclasses import dataclass

try:
    import fcntl
except ImportError:  # not Linux
    fcntl = None

import torch

from .error_bound import too_far


@dataclass
class Timing:
    """Seconds per call, one figure per round."""

    seconds: list

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def interleave(
    variants: Mapping[str, Callable],
    budget: float = 3.0,
    rounds: tuple[int, int] = (7, 40),
    shuffled: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each of `variants` in turn, about `budget` seconds in all.  shuffled: in another order
    each round, so that none of many alike variants always runs behind the one that leaves the
    caches empty.  clock: with one thread on a shared machine `time.process_time`, which stands
    still while another process has the processor.

    One call before each batch is not timed: what ran before may have given memory back to the
    system (eager, with its many temporaries, does), and the first to take it again would pay for
    everybody's pages.  A round in which the system gave one of our processors to another process (a
    whole time slice, often longer than the batch) counts only where too few others are left.
    """
    batch = {}
    for name, function in variants.items():
        function()
        start = time.perf_counter()
        function()
        batch[name] = max(1, int(2e-3 / max(time.perf_counter() - start, 1e-7)))
    every, undisturbed, start = [], [], time.perf_counter()
    while len(every) < rounds[0] or (
        time.perf_counter() - start < budget and len(undisturbed) < rounds[1]
    ):
        row, before = {}, preemptions()
        order = list(variants.items())
        if shuffled:
            random.Random(len(every)).shuffle(order)
        for name, function in order:
            function()
            begin = clock()
            for _ in range(batch[name]):
                function()
            row[name] = (clock() - begin) / batch[name]
        every.append(row)
        if preemptions() == before:
            undisturbed.append(row)
    chosen = undisturbed if len(undisturbed) >= rounds[0] else every
    return {name: Timing([row[name] for row in chosen]) for name in variants}


def preemptions() -> int:
    """How often a thread of this process lost its processor to another."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def keep_freed_memory() -> bool:
    """Let malloc keep what is freed and map nothing apart (M_TRIM_THRESHOLD, M_MMAP_MAX of glibc),
    for every variant alike.

    By default it gives the end of the heap back to the system when that grows beyond a limit.
    Which variant then pays for fresh pages at each call (4096 faults for 16 MiB, many times what
    the kernel costs) depends on where its result happens to lie.  False: not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return bool(mallopt and mallopt(-1, 2**31 - 1) and mallopt(-4, 0))


def ratio(timings: Mapping[str, Timing], slow: str, fast: str) -> tuple[float, float, float]:
    """Median and quartiles of slow / fast over the rounds: above 1, `fast` is faster."""
    values = sorted(a / b for a, b in zip(timings[slow].seconds, timings[fast].seconds))
    low, middle, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return middle, low, high


def on_this_gpu(suite: str, only: str) -> str:
    """What one row of a GPU suite prints on this machine, or that there is no GPU.  In a process of
    its own: a notebook may have told Triton to interpret."""
    if not torch.cuda.is_available():
        return "no GPU here"
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks", "--suite", suite, "--only", only]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    return ran.stdout + (ran.stderr[-2000:] if ran.returncode else "")


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    whose = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    own, children = map(resource.getrusage, whose)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@dataclass
class CompileTime:
    wall: float
    cpu: float


def timed_first_call(function: Callable) -> tuple[Any, CompileTime]:
    """(result, CompileTime) of a call that compiles."""
    cpu, start = cpu_seconds(), time.perf_counter()
    result = function()
    return result, CompileTime(time.perf_counter() - start, cpu_seconds() - cpu)


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """New, empty cache folders for both compilers, and none of their worker processes kept (`with`
    block)."""
    import miniinductor

    empty = tempfile.TemporaryDirectory(prefix="minidynamo-bench-", ignore_cleanup_errors=True)
    with (
        empty as folder,
        miniinductor.config.patch(cache_dir=os.path.join(folder, "ours")),
        unittest.mock.patch.dict(os.environ, TORCHINDUCTOR_CACHE_DIR=os.path.join(folder, "peer")),
    ):
        yield


def largest_difference(a: Any, b: Any) -> float:
    """Largest absolute difference between two results (tensors, tuples, ModelOutputs)."""
    pairs = [(x, y) for x, y in zip(tensors_of(a), tensors_of(b), strict=True) if x.numel()]
    return max(((x.double() - y.double()).abs().max().item() for x, y in pairs), default=0.0)


def relative_error(found: Any, expected: Any) -> float:
    """Norm of the difference over the norm, of all floating-point tensors together; of expected
    zeros the norm itself."""
    every = zip(tensors_of(found), tensors_of(expected), strict=True)
    pairs = [(a.double(), b.double()) for a, b in every if a.is_floating_point()]
    apart = sum((a - b).norm().item() ** 2 for a, b in pairs)
    whole = sum(b.norm().item() ** 2 for _, b in pairs)
    return math.sqrt(apart / whole if whole else apart)


def agrees(a: Any, b: Any) -> bool:
    """Are two results the same but for rounding?  (error_bound.py says when.)"""
    for x, y in zip(tensors_of(a), tensors_of(b), strict=True):
        times = 40 if x.dtype == torch.float32 else 1
        if too_far(y, x, times, because="dozens of layers, each of which rounds again"):
            return False
    return True


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_of(item)]
    return []


def peer_compile(function: Callable, **options: Any) -> Callable:
    """The real torch.compile, told to compile in this process (its default worker pool would hide
    CPU time)."""
    import torch._inductor.config as inductor_config

    inductor_config.compile_threads = 1
    return torch.compile(function, **options)

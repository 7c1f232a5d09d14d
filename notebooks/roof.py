"""The limit of memory on this machine, as chapters 11 and 15 measure it.

In:   programs to time beside it, on tensors of `SHAPE`.
Out:  a `Roof`: what moves bytes fastest, its bytes per second, the seconds of each program.

    x, y = large(), large()
    roof = measure_roof({"gelu": lambda: gelu(x)})
    print(2 * BYTES / roof.seconds["gelu"] / roof.bandwidth)    # gelu reads x, and writes as much

A tensor of `SHAPE` has 64 MB, more than a cache keeps, so its numbers come from memory.  The
programs take turns on one thread.  The clock counts the processor's time, and the best round of
each program counts: so other processes disturb the figures least.
"""

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.runner import interleave

SHAPE = (16384, 1024)
BYTES = 4 * SHAPE[0] * SHAPE[1]  # of one tensor, in float32


class Roof(NamedTuple):
    fastest: str
    bandwidth: float
    seconds: dict[str, float]


def large() -> torch.Tensor:
    """Random numbers of `SHAPE`."""
    return torch.randn(SHAPE)


def measure_roof(programs: dict[str, Callable], budget: float = 5.0) -> Roof:
    """The best rate of copying, adding and summing, and the time of each of `programs`."""
    one, other, out = large(), large(), torch.empty(SHAPE)
    limits = {  # how many tensors it reads and writes, the program
        "copying": (2, lambda: out.copy_(one)),
        "adding": (3, lambda: torch.add(one, other, out=out)),
        "summing rows": (1, lambda: one.sum(-1)),
    }
    memory = {name: run for name, (_, run) in limits.items()}
    timings = interleave(memory | programs, budget=budget, clock=time.process_time)
    seconds = {name: min(timing.seconds) for name, timing in timings.items()}
    rates = {name: moved * BYTES / seconds[name] for name, (moved, _) in limits.items()}
    fastest = max(rates, key=lambda name: rates[name])
    return Roof(fastest, rates[fastest], {name: seconds[name] for name in programs})


def this_machine() -> str:
    """The processor, how many cores this process may use, torch."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    about = Path("/proc/cpuinfo")
    lines = about.read_text().splitlines() if about.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.processor() or platform.machine()
    return f"{processor}, {cores} cores, torch {torch.__version__}"

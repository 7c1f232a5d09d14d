"""How long each kernel takes, of ours and of the library, and how many bytes it moves meanwhile.

In:   a program of miniinductor's, whose CLOCK is `with_clock`.   Out: a `Sheet` for each compiled
      half: for each line of its wrapper that calls a kernel a `Step` of seconds and bytes.

    >>> e = minidynamo.explain(f, measure=True)(x)
    >>> sheet = sheet_of(e.main.record.backend_record)
    >>> [step.seconds > 0 for step in sheet.steps.values()]
    [True]

A kernel is measured when the wrapper calls it for the first time: some runs on copies of its
arguments, which hold what they held, so that what is written twice is written to nobody; then it
runs as always.  Random numbers are put back.  On a GPU events of the stream tell the time.
`copy_rate` is what this machine can move: the roof that kernels which only read and write have.
# PyTorch: torch/_inductor/wrapper_benchmark.py (`benchmark_all_kernels`) runs kernels again on
# random arguments, after the program.
"""

import dataclasses
import functools
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree

from miniinductor.errors import ours
from miniinductor.records import CompileRecord
from miniinductor.runtime.memory import Program

RUNS = 15
LONGEST = 0.2  # seconds for the runs of one kernel, but for the first one
COPIED = {"cpu": 2**25, "cuda": 2**28}  # bytes, which no cache holds
LOOK_UPS = ("embedding", "gather", "index", "index_select", "take")
WRAPPER = "<miniinductor wrapper>"


@dataclass
class Step:
    """What one line of a wrapper calls.  seconds: the lower quartile of its runs; moved: bytes of
    the tensors that it is given and gives, at most: of a table that is looked up only the rows."""

    name: str
    seconds: float
    moved: int


@dataclass
class Sheet:
    """What was measured of one compiled half, by line of the wrapper."""

    steps: dict[int, Step] = field(default_factory=dict)
    device: torch.device = torch.device("cpu")


SHEETS: dict[int, Sheet] = {}  # id of a CompileRecord -> its sheet, while it lives


def sheet_of(record: Any) -> Sheet | None:
    """What was measured of a half, if that was asked for."""
    return SHEETS.get(id(record))


def with_clock(program: Program, record: CompileRecord) -> Program:
    """The program; its kernels are measured."""
    sheet = SHEETS[id(record)] = Sheet(device=program.device)
    weakref.finalize(record, SHEETS.pop, id(record), None).atexit = False
    clock = Clock(program.device, sheet)
    kernels = {kernel.name for kernel in record.kernels}
    scope = {
        name: clock.around(name, value)
        if name in kernels or is_eager_kernel(name, value)
        else value
        for name, value in program.scope.items()
    }
    return dataclasses.replace(program, scope=scope)


def is_eager_kernel(name: str, value: Any) -> bool:
    """Of what a wrapper names: is it an operation of torch's?"""
    return isinstance(value, torch._ops.OpOverload) or (
        name.startswith("torch_") and callable(value)
    )


@dataclass
class Clock:
    """Measures the calls of one wrapper on its device."""

    device: torch.device
    sheet: Sheet

    def around(self, name: str, function: Callable) -> Callable:
        """The function, which is measured when a line calls it for the first time."""

        @functools.wraps(function, updated=())
        def called(*arguments: Any, **named: Any) -> Any:
            caller = sys._getframe(1)
            line = caller.f_lineno
            if caller.f_code.co_filename == WRAPPER and line not in self.sheet.steps:
                try:
                    if not self.is_recording():
                        self.sheet.steps[line] = self.measured(name, function, arguments, named)
                except ours(RuntimeError, IndexError, MemoryError):
                    pass  # no memory for copies; or the call itself is wrong, and will say so
            return function(*arguments, **named)

        return called

    def is_recording(self) -> bool:
        """Work that becomes a CUDA graph cannot be timed."""
        return self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()

    def measured(self, name: str, function: Callable, arguments: tuple, named: dict) -> Step:
        before, tree = pytree.tree_flatten((arguments, named))
        copies = [copied(value) for value in before]
        twins = [pair for pair in zip(copies, before) if isinstance(pair[0], torch.Tensor)]
        spent: list[float] = []
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.no_grad():
            for number in range(RUNS + 1):
                for copy, value in twins:
                    storage(copy).copy_(storage(value))
                again, named_again = pytree.tree_unflatten(copies, tree)
                seconds, result = self.timed(functools.partial(function, *again, **named_again))
                spent += [seconds] if number else []  # the first run loads it
                if sum(spent) > LONGEST:
                    break
        quartile = sorted(spent)[len(spent) // 4]  # what else runs can only make it slower
        moved = bytes_of([*copies, result])
        if getattr(function, "__name__", "").partition(".")[0] in LOOK_UPS:  # not the whole table
            moved = min(moved, 2 * bytes_of(result) + bytes_of(small(copies)))
        return Step(name, quartile, moved)

    def timed(self, call: Callable[[], Any]) -> tuple[float, Any]:
        if self.device.type != "cuda":
            start = time.perf_counter()
            result = call()
            return time.perf_counter() - start, result
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # an empty queue would let the events wait for Python, not for the kernel
        torch.cuda._sleep(100_000)
        first.record()
        result = call()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) / 1e3, result


def small(values: list[Any]) -> list[Any]:
    """The places among what a look-up is given."""
    return [t for t in values if isinstance(t, torch.Tensor) and not t.is_floating_point()]


def storage(tensor: torch.Tensor) -> torch.Tensor:
    """The memory from a tensor's first element to its last, in one dimension."""
    spans = ((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    length = 1 + sum(spans) if tensor.numel() else 0
    return tensor.detach().as_strided((length,), (1,))


def copied(value: Any) -> Any:
    """A tensor in memory of its own, in the same layout; anything else as it is."""
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return value
    return torch.empty_like(storage(value)).as_strided(value.shape, value.stride())


def bytes_of(values: Any) -> int:
    """Bytes of all tensors within, each once."""
    tensors = {id(t): t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)}
    places = {(t.data_ptr(), t.numel()): t.numel() * t.dtype.itemsize for t in tensors.values()}
    return sum(places.values())


@functools.cache
def copy_rate(kind: str) -> float:
    """Bytes a second that a copy of a large tensor reads and writes on this machine.  kind: a type
    of device."""
    clock = Clock(torch.device(kind), Sheet())
    source = torch.zeros(COPIED.get(kind, COPIED["cpu"]), dtype=torch.uint8, device=kind)
    target = torch.empty_like(source)
    spent = [clock.timed(functools.partial(target.copy_, source))[0] for _ in range(RUNS)]
    return 2 * source.numel() / min(spent[1:])

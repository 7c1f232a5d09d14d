"""Reads and writes of interpreted Triton kernels must stay within the tensors that a kernel was
given: memcheck for kernels that see no GPU.

    checked_memory.install(monkeypatch)
"""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from miniinductor.sizes.symbols import extent


def install(monkeypatch: Any) -> None:
    """Check every kernel, until monkeypatch undoes it."""
    from triton.runtime import interpreter

    memory, call = CheckedMemory(interpreter._interpreter), interpreter.GridExecutor.__call__

    def checked_call(self: Any, *arguments: Any, **named: Any) -> Any:
        with memory.only([*arguments, *named.values()]):
            return call(self, *arguments, **named)

    monkeypatch.setattr(interpreter, "_interpreter", memory)
    monkeypatch.setattr(interpreter.GridExecutor, "__call__", checked_call)


class CheckedMemory:
    """Triton's module of reads and writes; they must stay within the tensors that a kernel was
    given (memcheck for kernels that see no GPU)."""

    def __init__(self, own: Any) -> None:
        self.own, self.running = own, threading.local()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    @contextlib.contextmanager
    def only(self, arguments: Sequence[object]) -> Iterator[None]:
        """A `with` block in which a kernel of this thread runs on these."""
        tensors = [t for t in arguments if isinstance(t, torch.Tensor) and t.numel()]
        sizes = [(extent(t.shape, t.stride()) or 0) * t.element_size() for t in tensors]
        spans = sorted((t.data_ptr(), t.data_ptr() + n) for t, n in zip(tensors, sizes))
        starts, ends = np.array(spans, np.uint64).reshape(-1, 2).T
        self.running.spans = starts, np.maximum.accumulate(ends)  # tensors may overlap
        try:
            yield
        finally:
            del self.running.spans

    def check(self, addresses: np.ndarray, mask: np.ndarray, size: int) -> None:
        used = addresses[mask.astype(bool)]
        if used.size and hasattr(self.running, "spans"):  # else a kernel that Triton alone runs
            starts, ends = self.running.spans
            span = np.searchsorted(starts, used, side="right") - 1
            if span.min() < 0 or (used + np.uint64(size) > ends[span]).any():
                raise IndexError("memory outside of the kernel's tensors")

    def load(self, addresses: np.ndarray, mask: np.ndarray, other: Any, dtype: Any) -> Any:
        self.check(addresses, mask, np.dtype(dtype).itemsize)
        return self.own.load(addresses, mask, other, dtype)

    def store(self, addresses: np.ndarray, values: np.ndarray, mask: np.ndarray) -> Any:
        self.check(addresses, mask, values.itemsize)
        return self.own.store(addresses, values, mask)

    def atomic_rmw(self, operation: Any, addresses: Any, values: Any, mask: Any, order: Any) -> Any:
        self.check(addresses, mask, values.itemsize)
        return self.own.atomic_rmw(operation, addresses, values, mask, order)

"""Lazy tensors: collect operations; when a value is needed, look the collected graph up by its
hash.

In:   ordinary code on `lazy(tensor)`.  Out: ordinary values, computed late.

    >>> x = lazy(torch.ones(3))
    >>> y = (x + 1) * 2          # nothing was computed
    >>> y.sum().item()           # now: the graph is hashed, compiled once, run

Mirrors torch/csrc/lazy and PyTorch/XLA.  Nothing is lost, because Python really runs; but it runs
on *every* call, and building and hashing the graph again each time costs more than many of the
operations (paper, section 2).
"""

from collections.abc import Callable
from typing import Any

import torch

from .symbolic import StandIn

PROGRAMS: dict[tuple, Callable] = {}  # graph hash -> compiled program
COUNTS = {"operations recorded": 0, "graphs hashed": 0, "graphs compiled": 0}


class LazyTensor(StandIn):
    """An operation that has not been computed, or a value that has (`value` is set)."""

    def __init__(
        self,
        value: torch.Tensor | None = None,
        operation: Callable | None = None,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(self)
        self.value, self.operation, self.args, self.kwargs = value, operation, args, kwargs or {}

    def call(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> "LazyTensor":
        COUNTS["operations recorded"] += 1
        return LazyTensor(None, function, args, kwargs)

    def __bool__(self) -> bool:
        return bool(self.compute())  # unlike a stand-in, a lazy tensor can answer

    def item(self) -> Any:
        return self.compute().item()

    def compute(self) -> torch.Tensor:
        """The value: collect what is pending, hash it, compile it if it is new, run it."""
        if self.value is None:
            order: list[tuple] = []
            inputs: list[LazyTensor] = []
            key = describe(self, order, inputs, {})
            COUNTS["graphs hashed"] += 1
            if key not in PROGRAMS:
                COUNTS["graphs compiled"] += 1
                PROGRAMS[key] = compile_program(order)
            self.value = PROGRAMS[key]([tensor.value for tensor in inputs])
        return self.value


def describe(
    tensor: LazyTensor, order: list[tuple], inputs: list[LazyTensor], seen: dict[int, tuple]
) -> tuple:
    """A hashable description of everything that `tensor` waits for; fills `order` (operations) and
    `inputs` (values)."""
    if id(tensor) in seen:
        return seen[id(tensor)]
    if tensor.value is not None:
        seen[id(tensor)] = name = (
            "input",
            len(inputs),
            tuple(tensor.value.shape),
            tensor.value.dtype,
        )
        inputs.append(tensor)
        return name
    arguments = tuple(
        describe(a, order, inputs, seen) if isinstance(a, LazyTensor) else ("constant", repr(a))
        for a in tensor.args
    )
    key = (
        getattr(tensor.operation, "__name__", repr(tensor.operation)),
        arguments,
        repr(tensor.kwargs),
    )
    references = [seen[id(a)] if isinstance(a, LazyTensor) else a for a in tensor.args]
    order.append((tensor.operation, references, tensor.kwargs, key))
    seen[id(tensor)] = key
    return key


def compile_program(order: list[tuple]) -> Callable:
    """A function of the input values.  A real system generates machine code here."""

    def program(values):
        results = {}
        for operation, references, kwargs, key in order:
            args = [
                results[r]
                if r in results
                else values[r[1]]
                if isinstance(r, tuple) and r[:1] == ("input",)
                else r
                for r in references
            ]
            results[key] = operation(*args, **kwargs)
        return results[order[-1][3]]

    return program


def lazy(tensor: torch.Tensor) -> LazyTensor:
    """A lazy tensor that already has a value."""
    return LazyTensor(value=torch.as_tensor(tensor))

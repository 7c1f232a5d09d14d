"""A compiled graph, and the function that is made of it.

In:   what wrapper.py printed.  Out: a `Program`; `start()` gives the callable.

    >>> program = build_program(graph, record)
    >>> call = program.start()
    >>> [out] = call(x)

The file also has what a wrapper calls beside kernels: workspaces.
Mirrors torch/_inductor/output_code.py (`CompiledFxGraph`).

Two inputs of a graph that writes may overlap in memory: each call looks.

In:   a compiled graph that writes to its inputs.  Out: the same, which runs the captured graph
      eagerly in a call in which two of its tensors may share a byte.

    def f(x, y):
        x.add_(1)               # f(a, a[:2]): y is written, too
        return y * 2

    >>> flat = torch.zeros(100)  # parameters in one piece
    >>> are_apart([flat[:50], flat[50:]])
    True

# PyTorch: compiles such a call for itself, over the memory that the inputs share.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..autograd.eager_graphs import runnable
from ..records import CompileRecord
from ..toolchain import cpp

ALIGNMENT = 64


@dataclass
class Program:
    """All that it takes to run a compiled graph."""

    source: str  # of the wrapper
    scope: dict[str, object]  # its globals: kernels, ops, dtypes, parameters, workspaces
    device: torch.device
    inputs: list[str]  # names, in order
    constants: dict[str, torch.Tensor]  # name -> parameter, buffer or constant
    mutations: list[str]  # names of inputs and constants that are written
    refused: str | None = None  # why it must not be recorded as a CUDA graph

    def start(self) -> Callable:
        """The callable."""
        scope: dict[str, Any] = {**self.scope}
        if "empty_cpu(" in self.source:
            scope["empty_cpu"] = cpp.empty_cpu
        exec(compile(self.source, "<miniinductor wrapper>", "exec"), scope)
        call = scope["call"]
        call.owned, call.workspaces_of = scope.get("call_owned"), scope.get("workspaces_of", {})
        return call


@dataclass
class NewWorkspace:
    """A function that makes the arena and every intermediate (and view of one) in it."""

    plan: list[tuple]  # (dtype, first byte in the arena, size, stride, offset of the view)
    nbytes: int
    device: torch.device

    # tensors made in inference mode could not be written outside of it
    @torch.inference_mode(False)
    def __call__(self) -> tuple[torch.Tensor, ...]:
        arena = torch.empty(self.nbytes + ALIGNMENT, dtype=torch.uint8, device=self.device)
        start = -arena.data_ptr() % ALIGNMENT
        arena, tensors = arena[start : start + self.nbytes], []  # all lie at its multiples
        for dtype, first, size, stride, offset in self.plan:
            typed = arena[first:].view(dtype)
            tensors.append(typed.as_strided(size, stride, typed.storage_offset() + offset))
        return tuple(tensors)


def guard_shared_memory(run: Callable, gm: fx.GraphModule, record: CompileRecord) -> Callable:
    """`run`, the function of a graph that writes to its inputs, which is right only if no two of
    its tensors overlap in memory: each call looks, and runs the FX graph eagerly if two may."""
    record.notes.append(
        "writes to tensors: each call first checks that no two of the graph's tensors share memory"
    )
    held = [*gm.parameters(), *gm.buffers()]  # each tensor once

    def checked(*inputs: object) -> object:
        tensors = [*[t for t in inputs if isinstance(t, torch.Tensor)], *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return run(*inputs) if are_apart(tensors) else runnable(gm)(*inputs)

    return checked


def are_apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Lies each tensor behind the end of the one before it, and does autograd not mind?

    Where gradients are recorded for one of them the answer is no: a write to a view gives the whole
    memory, and so all other views of it, another history."""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    spans = sorted(span_of(tensor) for tensor in tensors if tensor.numel())
    return all(a[0] != b[0] or a[2] <= b[1] for a, b in zip(spans, spans[1:]))


def span_of(tensor: torch.Tensor) -> tuple[Any, Any, Any]:
    """(its memory, its first byte there, the byte behind its last)."""
    width = tensor.element_size()
    last = sum([(n - 1) * step for n, step in zip(tensor.shape, tensor.stride())])
    start = tensor.storage_offset()
    return tensor.untyped_storage()._cdata, start * width, (start + last + 1) * width

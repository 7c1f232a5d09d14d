"""Two inputs of a graph that writes may overlap in memory: each call looks.

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
from typing import Any

import torch
from torch import fx

from ..eager_graphs import runnable
from ..records import CompileRecord


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

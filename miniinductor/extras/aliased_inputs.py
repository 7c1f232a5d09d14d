"""(coverage) Two inputs of a graph that writes may overlap in memory: each call looks.

In:   a compiled graph that writes to its inputs.  Out: the same, which runs the captured graph
      eagerly in a call in which two of its tensors may share a byte (apart.py).

    def f(x, y):
        x.add_(1)               # f(a, a[:2]): y is written, too
        return y * 2

# PyTorch: compiles such a call for itself, over the memory that the inputs share.
"""

from collections.abc import Callable

import torch
from torch import fx

from ..autograd.runtime import Plan
from ..compile import Compilation
from ..hooks import extends
from ..records import CompileRecord
from .apart import are_apart


@extends(Compilation)
class Guarded(Compilation):
    def finished(self, plan: Plan, run: Callable) -> Callable:
        run = super().finished(plan, run)
        return guard_shared_memory(run, self.gm, self.record) if plan.shared_memory else run


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
        return run(*inputs) if are_apart(tensors) else gm.forward(*inputs)

    return checked

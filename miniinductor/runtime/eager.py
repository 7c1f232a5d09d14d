"""What runs beside generated code: a functional graph by eager kernels, and a guard before writes.

In:   a graph.  Out: callables with the arguments of a compiled one.

    >>> run = Interpreted(functional, written=[]).start()       # stands for a Program
    >>> checked = guard_shared_memory(run, gm, record)

Mirrors `aot_eager` (torch/_dynamo/backends/debugging.py) and the checks of
torch/_functorch/_aot_autograd/input_output_analysis.py.
"""

import operator
from collections.abc import Callable, Sequence

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..records import CompileRecord


class Interpreted:
    """Stands for a Program: the functional graph run by eager kernels; mutated inputs are written
    back."""

    def __init__(self, gm: fx.GraphModule, written: Sequence[tuple[str, str]]):
        self.gm, self.written = gm, written

    def start(self) -> Callable:
        gm, names = self.gm, [n.target for n in self.gm.graph.nodes if n.op == "placeholder"]

        def run(*inputs: object) -> list:
            recording = torch.is_grad_enabled()
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                outputs, values = gm(*inputs)
                by_name = dict(zip(names, inputs))
                for (op, name), value in zip(self.written, values):
                    holder = by_name[name] if op == "placeholder" else operator.attrgetter(name)(gm)
                    holder.copy_(value)
                return pytree.tree_leaves(outputs)
            finally:
                torch._C._set_grad_enabled(recording)

        return run


def guard_shared_memory(run: Callable, gm: fx.GraphModule, record: CompileRecord) -> Callable:
    """A graph that writes is only right if no two of its tensors share memory: look at every
    call."""
    record.notes.append(
        "writes to tensors: each call first checks that no two of the graph's tensors share memory"
    )
    held = [*gm.parameters(), *gm.buffers()]  # each tensor once

    def checked(*inputs: object) -> object:
        tensors = [*[t for t in inputs if isinstance(t, torch.Tensor)], *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return gm(*inputs)

    return checked

"""What runs beside generated code: a functional graph by eager kernels, a guard before writes, and
errors in eager's words.

In:   a graph.  Out: callables with the arguments of a compiled one.

    >>> run = Interpreted(functional, written=[]).start()       # stands for a Program
    >>> checked = guard_shared_memory(run, gm, record)
    >>> told = with_eager_errors(run, gm)

Mirrors `aot_eager` (torch/_dynamo/backends/debugging.py) and the checks of
torch/_functorch/_aot_autograd/input_output_analysis.py.
"""

import keyword
import operator
from collections.abc import Callable, Sequence

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..foreign import ours
from ..records import CompileRecord


class Interpreted:
    """Stands for a Program: the functional graph run by eager kernels; mutated inputs are written
    back."""

    device = torch.device("cpu")  # of its kernels: it has none that could be recorded or replayed

    def __init__(self, gm: fx.GraphModule, written: Sequence[tuple[str, str]]):
        self.gm, self.written = gm, written

    def start(self) -> Callable:
        gm = runnable(self.gm)
        names = [n.target for n in self.gm.graph.nodes if n.op == "placeholder"]

        def run(*inputs: object) -> list:
            recording = torch.is_grad_enabled()
            try:  # `with torch.no_grad()` could be cut short by an exception in its `__exit__`
                torch._C._set_grad_enabled(False)
                outputs, values = gm(*inputs)
                by_name = dict(zip(names, inputs))
                for (op, name), value in zip(self.written, values):
                    held = op != "placeholder"
                    holder = operator.attrgetter(name)(self.gm) if held else by_name[name]
                    holder.copy_(value)
                leaves = pytree.tree_leaves(outputs)
                # views that were made here, without autograd, could not be written by the program
                return [v.detach() if is_view(v) else v for v in leaves]
            finally:
                torch._C._set_grad_enabled(recording)

        return run


def runnable(gm: fx.GraphModule) -> Callable:
    """`gm`, or an interpreter of it where its Python is none: `torch.ops.aten.random.from`."""
    overloads = [getattr(node.target, "_overloadname", "") for node in gm.graph.nodes]
    if any(map(keyword.iskeyword, overloads)):
        return fx.Interpreter(gm).run
    return gm


def is_view(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value._is_view()


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
        return gm.forward(*inputs)

    return checked


REPORT = "(in compiled kernel "  # how the message of a kernel that refuses a value ends


def with_eager_errors(run: Callable, gm: fx.GraphModule) -> Callable:
    """`run` of a graph that neither writes nor draws.  Where a kernel refuses a value, the graph
    runs once more with eager kernels, whose class and words of an exception are those that the
    program expects: scatter's is a RuntimeError, and our kernels know IndexError alone."""

    def call(*inputs: object) -> object:
        try:
            return run(*inputs)
        except ours(IndexError, RuntimeError) as error:
            if REPORT not in str(error):
                raise
            report = error
        try:
            gm.forward(*inputs)  # (`gm()` would print the error)
            raise report  # eager has nothing to say: what our kernel has seen is not hidden
        finally:
            del report  # it knows this frame, which knows the inputs

    return call

"""The verifier between lowering and scheduling: cheap checks that an `ir.Graph` makes sense.

In:   an `ir.Graph`.  Out: nothing; raises VerifyError that names the buffer.

    >>> verify_graph(graph)

Checked: every buffer that is read was written before (or is an input or constant), names are unique, each computed buffer has
the dtype and shape of its layout.
Mirrors the idea of tinygrad's uop/spec.py; PyTorch has no such stage.
"""
import sympy
import torch.utils._pytree as pytree

from .handlers import loop_indices, run_body
from .ir import BufferView, ComputedBuffer, ExternKernel, MultiOutput, Scatter
from .ops import OP_NAMES, OpsHandler, set_handler


class VerifyError(AssertionError):
    """A stage of miniinductor produced something impossible: a bug of ours."""


class _Reads(OpsHandler):
    """Collects the names of buffers that a body loads."""

    def __init__(self):
        self.names = set()

    def load(self, name, index):
        self.names.add(name)

    def masked(self, mask, body, other):
        body()

    def indirect_indexing(self, value, size, check=True, wrap_neg=True):
        return sympy.Symbol("position", integer=True)


for _name in OP_NAMES:
    if _name not in vars(_Reads):
        setattr(_Reads, _name, lambda self, *args, **kwargs: None)


def reads(operation):
    """Names of the buffers that an operation reads."""
    if isinstance(operation, MultiOutput):
        return {operation.source}
    if isinstance(operation, ExternKernel):
        leaves = pytree.tree_leaves((operation.args, operation.kwargs), is_leaf=lambda x: isinstance(x, BufferView))
        return {leaf.name for leaf in leaves if isinstance(leaf, BufferView)}
    collector = _Reads()
    with set_handler(collector):
        run_body(operation, *loop_indices(operation.data))
    return collector.names | ({operation.data.target} if isinstance(operation.data, Scatter) else set())


def verify_graph(graph):
    known = set(graph.inputs) | set(graph.constants)
    for operation in graph.operations:
        if operation.name in known:
            raise VerifyError(f"two buffers are called {operation.name}")
        missing = reads(operation) - known
        if missing:
            raise VerifyError(f"{operation.name} reads {', '.join(sorted(missing))}, which nothing wrote before")
        if isinstance(operation, ComputedBuffer) and not isinstance(operation.data, Scatter):
            data, layout = operation.data, operation.layout
            if data.dtype != layout.dtype or tuple(data.ranges) != tuple(layout.size):
                raise VerifyError(f"{operation.name}: body {data.dtype} {list(data.ranges)}, layout {layout.dtype} {list(layout.size)}")
        known.add(operation.name)
    for view in [*graph.outputs, *(value for _, value in graph.mutations)]:
        if isinstance(view, BufferView) and view.name not in known:
            raise VerifyError(f"output {view.name} was never written")

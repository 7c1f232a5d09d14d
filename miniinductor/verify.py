"""Is a lowered graph well formed?  Run between lowering and scheduling (`config.verify`, on by
default).

In:   `ir.Graph`.  Out: nothing; `BadGraph` names the buffer and what is wrong with it.

    >>> verify_graph(graph)

Rules: names are unique; every buffer that is read was made before; the operands of each op have one
dtype, and a body stores its buffer's dtype; a load that no mask protects stays inside its buffer,
and so does each view that an eager kernel or an output takes; a scatter's target is stored.  A rule
broken here is a bug in a lowering, found before it becomes a wrong number.

The idea is tinygrad's uop/spec.py; the nearest in PyTorch is torch/_inductor/dtype_propagation.py.
Left out: symbolic sizes (their bounds are not checked).
"""

from collections.abc import Callable

import sympy

from .handlers import DtypeError, DtypeHandler, loop_indices, loops, run_body
from .ir import (
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Graph,
    Layout,
    MultiOutput,
    Scan,
    Scatter,
    buffer_views,
    extent,
)
from .ops import Dtype, set_handler
from .sizes.ranges import bounds


class BadGraph(AssertionError):
    """The loop IR breaks a rule."""


class _Verifier(DtypeHandler):
    """Dtypes, and where loads go."""

    def __init__(self, known: dict[str, Layout], buffer: ComputedBuffer) -> None:
        super().__init__(lambda name: self.layout(name).dtype)
        self.known = known
        self.buffer = buffer
        self.masks = 0  # how many `masked` bodies we are inside of
        self.ranges = loops(buffer.data)
        self.empty = any(n == 0 for n in self.ranges.values())

    def layout(self, name: str) -> Layout:
        if name == self.buffer.name:
            return self.buffer.layout
        if name not in self.known:
            raise BadGraph(f"{self.buffer.name} reads {name}, which nothing made before")
        return self.known[name]

    def load(self, name: str, index: sympy.Expr) -> Dtype:
        layout = self.layout(name)
        if name == self.buffer.name:
            raise BadGraph(f"{name} reads itself")
        size = extent(layout.size, layout.stride, layout.offset)
        if not self.masks and not self.empty and size is not None:
            limits = bounds(sympy.sympify(index), self.ranges)
            if limits is not None and not (0 <= limits[0] and limits[1] < size):
                reached = f"{name}[{index}], elements {limits[0]} to {limits[1]} of {size}"
                raise BadGraph(f"{self.buffer.name} loads {reached}")
        return layout.dtype

    def masked(self, mask: Dtype, body: Callable[[], Dtype], other: float) -> Dtype:
        self.masks += 1
        value = super().masked(mask, body, other)
        self.masks -= 1
        return value


def verify_graph(graph: Graph) -> None:
    """Raise BadGraph if the graph breaks a rule."""
    given = graph.inputs | graph.buffers
    known = {
        name: given[name].layout for name in (*graph.inputs, *graph.constants) if name in given
    }
    several = set()  # eager kernels that return several tensors
    for buffer in graph.operations:
        if buffer.name in known or buffer.name in several:
            raise BadGraph(f"two buffers are called {buffer.name}")
        if isinstance(buffer, ExternKernel):
            for view in buffer_views([buffer.args, buffer.kwargs]):
                _check_view(view, known, buffer.name)
            if buffer.layout is None:
                several.add(buffer.name)
                continue
        elif isinstance(buffer, MultiOutput):
            if buffer.source not in several:
                raise BadGraph(f"{buffer.name}: {buffer.source} is no kernel with several outputs")
        else:
            _check_computed(buffer, known)
        known[buffer.name] = buffer.layout
    for view in graph.results:
        _check_view(view, known, "the output")
    for name, _ in graph.mutations:
        if name not in graph.inputs and name not in graph.constants:
            raise BadGraph(f"{name} is written, but is neither an input nor a constant")


def _check_view(view: BufferView, known: dict[str, Layout], user: str) -> None:
    if view.name not in known:
        raise BadGraph(f"{user} reads {view.name}, which nothing made before")
    layout = known[view.name]
    need = extent(view.size, view.stride, view.offset)
    have = extent(layout.size, layout.stride, layout.offset)
    if need is not None and have is not None and need > have:
        raise BadGraph(f"{user} sees {view}, beyond the {have} elements of {view.name}")


def _check_computed(buffer: ComputedBuffer, known: dict[str, Layout]) -> None:
    data, layout = buffer.data, buffer.layout
    if isinstance(data, Scatter):
        if data.target not in known:
            raise BadGraph(f"{buffer.name} scatters into {data.target}, which nothing made before")
    elif not isinstance(data, Scan) and tuple(data.ranges) != tuple(layout.size):
        held = list(layout.size)
        raise BadGraph(f"{buffer.name} loops over {list(data.ranges)} but holds {held}")
    try:
        with set_handler(_Verifier(known, buffer)):
            run_body(buffer, *loop_indices(data))
    except DtypeError as error:
        raise BadGraph(f"{buffer.name} ({', '.join(sorted(buffer.origins))}): {error}") from None

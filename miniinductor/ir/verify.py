"""Is a lowered graph well formed?  Run between lowering and scheduling
(`config.verify`, on by default).

In:   `ir.Graph`.  Out: nothing; `BadGraph` names the buffer and what is wrong with it.

    >>> verify_graph(graph)

`DtypeHandler`, under which a loop body says the dtypes of its values, is the larger part of it.

Rules: names are unique; every buffer that is read was made before; the operands of each op have one
dtype, and a body stores its buffer's dtype; a load that no mask protects stays inside its buffer,
and so does each view that an eager kernel or an output takes; a scatter's target is stored.  A rule
broken here is a bug in a lowering, found before it becomes a wrong number.

The idea is tinygrad's uop/spec.py; the nearest in PyTorch is torch/_inductor/dtype_propagation.py.
Left out: symbolic sizes (their bounds are not checked).
"""

import itertools
from collections.abc import Callable

import sympy
import torch

from ..sizes.expressions import Size
from ..sizes.ranges import bounds
from ..sizes.symbols import extent
from .handlers import indirect_symbol, loop_indices, loops, run_body
from .loops import (
    BufferView,
    ComputedBuffer,
    ExternKernel,
    Graph,
    Layout,
    MultiOutput,
    Scan,
    Scatter,
    buffer_views,
)
from .ops import BINARY, COMPARISON, LOGICAL, TESTS, UNARY, Dtype, OpsHandler, set_handler

# --- dtypes ---------------------------------------------------------------------------------------
TRUTHS = (*COMPARISON, *TESTS, *LOGICAL)  # their result is a bool, whatever they are given
INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class DtypeError(AssertionError):
    """A body mixes dtypes or stores the wrong one: a bug in a lowering."""


def expect(what: str, want: Dtype, *given: Dtype) -> Dtype:
    """`want`; DtypeError if one of the `given` dtypes is another."""
    for dtype in given:
        if dtype != want:
            raise DtypeError(f"{what} of {want} is given {dtype}")
    return want


class DtypeHandler(OpsHandler):
    """The value of each op is its dtype; operands of one op must agree."""

    def __init__(self, dtype_of_buffer: Callable[[str], Dtype]) -> None:
        self.dtype_of_buffer = dtype_of_buffer
        self.count = itertools.count()

    def load(self, name: str, index: sympy.Expr) -> Dtype:
        return self.dtype_of_buffer(name)

    def store(self, name: str, index: sympy.Expr, value: Dtype, mode: str | None = None) -> None:
        expect(f"store to {name}", self.dtype_of_buffer(name), value)

    def reduction(self, dtype: Dtype, src_dtype: Dtype, kind: str, value: Dtype) -> Dtype:
        expect(f"reduction {kind}", src_dtype, value)
        return dtype

    def scan(self, dtype: Dtype, kind: str, value: Dtype) -> Dtype:
        return expect(f"scan {kind}", dtype, value)

    def indirect_indexing(self, value: Dtype, size: Size, wrap_neg: bool = True) -> sympy.Symbol:
        if value not in INDEX_DTYPES:
            raise DtypeError(f"an index of dtype {value}")
        return indirect_symbol(self.count)

    def constant(self, value: float, dtype: Dtype) -> Dtype:
        return dtype

    def index_expr(self, expr: sympy.Expr, dtype: Dtype) -> Dtype:
        return dtype

    def to_dtype(self, x: Dtype, dtype: Dtype, src_dtype: Dtype | None = None) -> Dtype:
        expect("to_dtype", src_dtype or x, x)
        return dtype

    def where(self, condition: Dtype, a: Dtype, b: Dtype) -> Dtype:
        expect("where", torch.bool, condition)
        return expect("where", a, b)

    def masked(self, mask: Dtype, body: Callable[[], Dtype], other: float) -> Dtype:
        expect("masked", torch.bool, mask)
        return body()

    def rand(self, seed: Dtype, offset: Dtype) -> Dtype:
        return torch.float32


def _dtype_rule(name: str) -> Callable[..., Dtype]:
    def method(self: DtypeHandler, *args: Dtype) -> Dtype:
        dtype = expect(name, *args)  # the others' must be the first one's
        return torch.bool if name in TRUTHS else dtype

    return method


for _name in UNARY + BINARY + COMPARISON:
    setattr(DtypeHandler, _name, _dtype_rule(_name))


# --- graphs ---------------------------------------------------------------------------------------
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

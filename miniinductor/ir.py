"""The loop IR: tensors as Python functions from an index to a value.

In:   lowerings build it (`Pointwise`, `Reduction`, views).  Out: `Graph.operations`, the list of buffers to compute,
which the scheduler fuses and the code generators write out.

    x = TensorBox.of_buffer(InputBuffer("x", Layout.contiguous(device, torch.float32, [4, 8])))
    load = x.make_loader()
    y = TensorBox(Pointwise(device, torch.float32, [4, 8], lambda index: ops.exp(load(index))))
    z = TensorBox(Reduction(device, torch.float32, [4], lambda index, rindex: y.make_loader()([*index, *rindex]),
                            reduction_ranges=[8], kind="sum", src_dtype=torch.float32))
    z.realize()         # y was never stored: it lives on, inlined, inside z's body

Nothing is computed until `realize()`; until then a value is a closure, so a chain of pointwise ops and views costs no
memory.  Views are index maths: `View(base, size, reindex)`.

Mirrors torch/_inductor/ir.py (paper section 4.1).  Left out: layouts that are decided late, multi-output templates.
"""
import functools
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Callable

import sympy
import torch

from .index_math import simplify
from .ops import ops


@dataclass
class Layout:
    """Where the elements of a buffer lie; sizes and strides are sympy expressions or ints, counted in elements."""
    device: torch.device
    dtype: torch.dtype
    size: tuple
    stride: tuple
    offset: object = 0

    @staticmethod
    def contiguous(device, dtype, size):
        return Layout(device, dtype, tuple(size), contiguous_strides(size))

    @staticmethod
    def of(tensor):
        """Layout of a (fake or real) tensor."""
        return Layout(tensor.device, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def indexer(self, index):
        """Linear offset of a multi-dimensional index."""
        return sum((sympy.sympify(i) * s for i, s, n in zip(index, self.stride, self.size) if n != 1),
                   sympy.sympify(self.offset))

    @property
    def numel(self):
        return sympy.prod(self.size)


def contiguous_strides(size):
    strides, step = [], sympy.Integer(1)
    for n in reversed(size):
        strides.append(step)
        step = step * sympy.Max(n, 1) if not isinstance(n, int) else step * max(n, 1)
    return tuple(reversed(strides))


# --- values that are not stored -----------------------------------------------------------------------------------
@dataclass
class Pointwise:
    """value[index] = inner_fn(index) for every index in `ranges`.  inner_fn takes a list of sympy expressions."""
    device: torch.device
    dtype: torch.dtype
    ranges: list
    inner_fn: Callable
    origins: frozenset = frozenset()        # FX nodes this came from

    def get_size(self):
        return self.ranges


@dataclass
class Reduction:
    """value[index] = reduce over rindex in `reduction_ranges` of inner_fn(index, rindex)."""
    device: torch.device
    dtype: torch.dtype
    ranges: list
    inner_fn: Callable
    reduction_ranges: list
    kind: str                               # one of ops.REDUCTIONS
    src_dtype: torch.dtype
    origins: frozenset = frozenset()

    def get_size(self):
        return self.ranges


@dataclass
class Scatter:
    """output[output_index(index)] = (or +=) inner_fn(index), over a copy of nothing: the buffer it writes is `target`,
    an already realised buffer whose memory it takes over.  mode: None | 'atomic_add'."""
    device: torch.device
    dtype: torch.dtype
    ranges: list
    inner_fn: Callable
    output_index: Callable                  # index -> list of expressions (may use ops.indirect_indexing)
    target: str
    mode: str = None
    origins: frozenset = frozenset()

    def get_size(self):
        return self.ranges


@dataclass
class View:
    """A re-indexing of another value: element `index` is element `reindex(index)` of `base`.  Costs nothing."""
    base: "TensorBox"
    size: list
    reindex: Callable
    origins: frozenset = frozenset()

    def get_size(self):
        return self.size


# --- values that are stored: the operations the scheduler orders ----------------------------------------------------
@dataclass
class Buffer:
    name: str
    layout: Layout
    origins: frozenset = frozenset()

    def get_size(self):
        return self.layout.size


@dataclass
class InputBuffer(Buffer):
    """A graph input."""


@dataclass
class ConstantBuffer(Buffer):
    """A parameter, buffer or literal tensor the graph holds (`Graph.constants[name]` is the real tensor)."""


@dataclass
class ComputedBuffer(Buffer):
    """A loop nest that fills the buffer: data is Pointwise, Reduction or Scatter."""
    data: object = None


@dataclass
class ExternKernel(Buffer):
    """An eager kernel called from the wrapper: `op(*args, **kwargs)`.

    Arguments are Python values with `BufferView` where a tensor stands.  layout None: the op returns several tensors,
    each of which is a `MultiOutput`.  `out_op`: the op's out= overload where there is one, so that the wrapper can
    give it reused memory.
    """
    op: object = None
    args: tuple = ()
    kwargs: dict = field(default_factory=dict)
    out_op: object = None


@dataclass
class MultiOutput(Buffer):
    """Output number `index` (a path of ints) of an ExternKernel that returns several tensors."""
    source: str = ""
    index: tuple = ()


@dataclass(frozen=True)
class BufferView:
    """Buffer `name` seen with this size, stride and offset (`as_strided`): what extern kernels and graph outputs take."""
    name: str
    size: tuple
    stride: tuple
    offset: object = 0


class TensorBox:
    """A handle on a value that may become stored later.  All users share it, so it is stored once.

    `reads` and `op_count` bound what the value's loop body costs when it is inlined once more: how many buffers it
    loads and how many ops it runs.  `stride_hint`: the strides eager gives this value, used when it is stored.
    """

    def __init__(self, data, origins=frozenset(), stride_hint=None):
        self.data = data        # Pointwise | Reduction | Scatter | View | Buffer
        self.origins = origins
        self.stride_hint = stride_hint
        self.reads, self.op_count, self.heavy = frozenset(), 0, False

    @staticmethod
    def of_buffer(buffer):
        box = TensorBox(buffer, buffer.origins)
        box.reads = frozenset([buffer.name])
        return box

    def __repr__(self):
        return f"TensorBox({type(self.data).__name__}, {self.dtype}, {list(self.get_size())})"

    @property
    def dtype(self):
        data = self.data
        return data.base.dtype if isinstance(data, View) else data.layout.dtype if isinstance(data, Buffer) else data.dtype

    @property
    def device(self):
        data = self.data
        return (data.base.device if isinstance(data, View) else
                data.layout.device if isinstance(data, Buffer) else data.device)

    def get_size(self):
        return list(self.data.get_size())

    def is_stored(self):
        return isinstance(self.data, Buffer) or (isinstance(self.data, View) and self.data.base.is_stored())

    def root(self):
        """The box below all views."""
        return self.data.base.root() if isinstance(self.data, View) else self

    def make_loader(self):
        """A function from an index (list of expressions) to the value there, in terms of `ops`."""
        data = self.data
        if isinstance(data, View):
            inner, reindex = data.base.make_loader(), data.reindex
            return lambda index: inner(reindex(index))
        if isinstance(data, (Reduction, Scatter)):
            self.realize()                      # neither can be inlined
            data = self.data
        if isinstance(data, Buffer):
            name, layout = data.name, data.layout
            return lambda index: ops.load(name, layout.indexer(index))
        return data.inner_fn

    def realize(self):
        """Store the value (below a view: what is viewed)."""
        data = self.data
        if isinstance(data, View):
            data.base.realize()
        elif not isinstance(data, Buffer):
            graph = building()
            layout = Layout(data.device, data.dtype, tuple(data.get_size()), self._strides(data))
            if isinstance(data, Scatter):
                layout = graph.find(data.target).layout
            buffer = ComputedBuffer(graph.new_name(), layout, frozenset(self.origins), data)
            graph.operations.append(buffer)
            self.data, self.reads, self.op_count, self.heavy = buffer, frozenset([buffer.name]), 0, False
        return self

    def _strides(self, data):
        size, hint = tuple(data.get_size()), self.stride_hint
        if hint is not None and len(hint) == len(size) and is_dense(size, hint):
            return tuple(hint)
        return contiguous_strides(size)

    def as_buffer_view(self, copy_strides=None):
        """This value as stored memory that `as_strided` can describe; copied where its index is not affine."""
        self.realize()
        view = self.try_buffer_view()
        return self.stored_copy(copy_strides).try_buffer_view() if view is None else view

    def try_buffer_view(self):
        """BufferView of a stored value, or None where no sizes and strides describe it."""
        size = tuple(self.get_size())
        base, reindexers = self, []
        while isinstance(base.data, View):
            reindexers.append(base.data.reindex)
            base = base.data.base
        layout = base.data.layout
        if not reindexers:
            return BufferView(base.data.name, size, tuple(layout.stride), layout.offset)
        variables = [loop_symbol("v", d) for d in range(len(size))]
        index = [sympy.Integer(0) if n == 1 else v for v, n in zip(variables, size)]
        for reindex in reindexers:
            index = reindex(index)
        found = affine_coefficients(layout.indexer(index), variables, size)
        if found is None or any(c.is_negative for c in found[0]):
            return None
        strides, offset = found
        plain = contiguous_strides(size)
        strides = tuple(as_int(plain[d] if size[d] == 1 else c) for d, c in enumerate(strides))
        return BufferView(base.data.name, size, strides, as_int(offset))

    def stored_copy(self, strides=None):
        """A new box with the same elements in memory of its own."""
        box = TensorBox(Pointwise(self.device, self.dtype, self.get_size(), self.make_loader(), self.origins),
                        self.origins, strides)
        return box.realize()


def affine_coefficients(expr, variables, size):
    """([coefficient of each variable], constant) if `expr` is affine in them, else None."""
    expr = simplify(expr, dict(zip(variables, size)))
    coefficients = dict.fromkeys(variables, sympy.Integer(0))
    constant = sympy.Integer(0)
    for term in sympy.Add.make_args(expr):
        used = [v for v in coefficients if v in term.free_symbols] if term.free_symbols else ()
        if not used:
            constant += term
            continue
        coefficient = term / used[0]
        if len(used) > 1 or used[0] in coefficient.free_symbols:
            return None
        coefficients[used[0]] += coefficient
    return [coefficients[v] for v in variables], constant


@functools.lru_cache(None)
def loop_symbol(prefix, number):
    return sympy.Symbol(f"{prefix}{number}", integer=True, nonnegative=True)


def as_int(value):
    return int(value) if getattr(value, "is_Integer", False) else value


def is_dense(size, stride):
    """Do these strides fill memory without gaps or overlap (in some order of the dimensions)?"""
    if any(isinstance(n, int) and n == 0 for n in size):
        return True
    expected = 1
    for n, s in sorted(((n, s) for n, s in zip(size, stride) if n != 1),
                       key=lambda pair: pair[1] if isinstance(pair[1], int) else float("inf")):
        if s != expected:
            return False
        expected = expected * n
    return True


@dataclass
class Graph:
    """A lowered graph: what goes from lowering to the scheduler.

    inputs:     name -> InputBuffer, in call order
    constants:  name -> real tensor (parameters, buffers, literals); ConstantBuffer of that name in `buffers`
    operations: ComputedBuffer | ExternKernel | MultiOutput, in an order that respects data flow
    outputs:    list of BufferView | int | sympy.Expr | None, one per graph output
    mutations:  list of (input or constant name, BufferView): after the outputs are there, `input.copy_(value)`
    """
    inputs: dict = field(default_factory=dict)
    constants: dict = field(default_factory=dict)
    buffers: dict = field(default_factory=dict)
    operations: list = field(default_factory=list)
    outputs: list = field(default_factory=list)
    mutations: list = field(default_factory=list)
    name_count: int = 0

    def new_name(self):
        self.name_count += 1
        return f"buf{self.name_count - 1}"

    def find(self, name):
        """The buffer of that name."""
        if name in self.inputs:
            return self.inputs[name]
        if name in self.buffers:
            return self.buffers[name]
        return next(b for b in reversed(self.operations) if b.name == name)


_current = threading.local()


def building():
    """The graph that `realize()` adds to."""
    return _current.graph


@contextmanager
def build_graph(graph):
    previous = getattr(_current, "graph", None)
    _current.graph = graph
    try:
        yield graph
    finally:
        _current.graph = previous

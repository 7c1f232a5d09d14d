"""The loop IR: tensors as Python functions from an index to a value.

In:   lowerings build it (`Pointwise`, `Reduction`, views).  Out: `Graph.operations`, the buffers
      to compute, which the scheduler fuses and the code generators write out.

    >>> cpu = torch.device("cpu")
    >>> x = TensorBox(InputBuffer("x", Layout(cpu, torch.float32, (4, 8), (8, 1))))
    >>> load = x.make_loader()
    >>> y = TensorBox(Pointwise(cpu, torch.float32, [4, 8], lambda index: ops.exp(load(index))))
    >>> row = lambda index, rindex: y.make_loader()([*index, *rindex])
    >>> z = TensorBox(Reduction(cpu, torch.float32, [4], row,
    ...                         reduction_ranges=[8], kind="sum", src_dtype=torch.float32))
    >>> graph = Graph()
    >>> with building(graph):
    ...     name = z.realize()          # y was never stored: it lives on, inlined, inside z's body
    >>> graph
    buf0: float32[4] = reduction i0 < 4, r0 < 8
        tmp0 = load(x, 8*i0 + r0)
        tmp1 = exp(tmp0)
        tmp2 = reduction(float32, float32, sum, tmp1)
        store(buf0, i0, tmp2)

Nothing is computed until `realize()`; until then a value is a closure, so a chain of pointwise ops
and views costs no memory.  Views are index maths: `View(base, size, reindex)`.

Mirrors torch/_inductor/ir.py (paper section 4.1).  Left out: layouts that are decided late,
multi-output templates.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree

from ..options import Current
from ..records import listing_of
from ..sizes.expressions import Size
from ..sizes.symbols import extent, is_dense, same, simplify, sizes
from .ops import Value, ops

Origins = frozenset[str]  # the FX nodes something came from
Index = Sequence[sympy.Expr]  # one expression in loop variables and sizes for each dimension
Loader = Callable[[Index], Value]  # the value at an index
Reindex = Callable[[Index], Index]  # an index into a view -> an index into what it looks at


@dataclass
class Layout:
    """Where the elements of a tensor lie; sizes and strides are sympy expressions or ints, counted
    in elements."""

    device: torch.device
    dtype: torch.dtype
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size = 0

    @staticmethod
    def of(tensor: torch.Tensor) -> "Layout":
        """Layout of a (fake or real) tensor."""
        return Layout(tensor.device, tensor.dtype, sizes(tensor.shape), sizes(tensor.stride()))

    def indexer(self, index: Index) -> sympy.Expr:
        """Linear offset of a multi-dimensional index."""
        return sum(
            (sympy.sympify(i) * s for i, s, n in zip(index, self.stride, self.size) if n != 1),
            sympy.sympify(self.offset),
        )

    @property
    def is_dense(self) -> bool:
        return is_dense(self.size, self.stride)

    @property
    def numel(self) -> sympy.Expr:
        return sympy.prod(self.size)

    @property
    def reach(self) -> Size:
        """Elements from the first to the last one."""
        return extent(self.size, self.stride)


def layouts_of(value: Any) -> Any:
    """The Layout of a (fake) tensor; of a tuple of them, a tuple."""
    return pytree.tree_map_only(torch.Tensor, Layout.of, value)


def contiguous_strides(size: Sequence[Size]) -> tuple[Size, ...]:
    """The strides, in elements, of a new tensor of these sizes, whose last dimension is densest."""
    strides = []
    step = sympy.Integer(1)
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1) if isinstance(n, int) else sympy.Max(n, 1)  # Max(s0, 1) is s0
    return tuple(reversed(strides))


origin = Current("")  # the FX node whose ops are being called
# the recorded Instruction (dependencies.py) that is being played to a handler, or None.  A line of
# a kernel that is written meanwhile computes this instruction.
playing = Current()


@dataclass(frozen=True)
class FromNode:
    """`function`, a loop body, which sets `origin` to FX node `name` while its own ops are called.

    Of relu(exp(x)), inlined into one body: relu's function calls exp's, which sets `origin` to
    "exp" for its ops, and back to "relu" before it returns."""

    name: str
    function: Callable[..., Value]

    def __call__(self, *index: Index) -> Value:
        before, origin.value = origin.value, self.name
        value = self.function(*index)
        # a buffer's reduction and its store belong to the last node
        origin.value = before or self.name
        return value


# --- values that are not stored -------------------------------------------------------------------
@dataclass
class Loops:
    """A loop over every index in `ranges`, perhaps with one over `reduction_ranges` inside.
    inner_fn takes a list of sympy expressions for each."""

    device: torch.device
    dtype: torch.dtype
    ranges: list[Size]
    inner_fn: Callable[..., Value]
    origins: Origins = field(default=frozenset(), kw_only=True)  # FX nodes this came from

    def get_size(self) -> Sequence[Size]:
        return self.ranges

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        """(the value of an iteration, the index at which it is stored), on the installed
        handler."""
        return self.inner_fn(index), index


@dataclass
class Scan(Loops):
    """value[output_index(index, rindex)] = inner_fn(index, r) for all r up to rindex, combined in
    `src_dtype`: cumsum.  `ranges` has all dimensions but the scanned one."""

    reduction_ranges: list[Size]  # the scanned dimension
    output_index: Callable[[Index, Index], Index]  # (index, rindex) -> list of expressions
    kind: str  # of `ops.scan`
    src_dtype: torch.dtype
    size: list[Size]

    def get_size(self) -> Sequence[Size]:
        return self.size

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        value = ops.scan(self.src_dtype, self.kind, self.inner_fn(index, reduction_index))
        if self.dtype != self.src_dtype:
            value = ops.to_dtype(value, self.dtype, self.src_dtype)
        return value, self.output_index(index, reduction_index)


@dataclass
class Scatter(Loops):
    """output[output_index(index)] = (or +=) inner_fn(index).  It writes into the memory of
    `target`, a stored buffer; elements that it does not write keep the target's values.  mode:
    that of `ops.store`."""

    output_index: Reindex  # index -> list of expressions (may use ops.indirect_indexing)
    target: str
    mode: str | None = None
    reduction_ranges: Sequence[Size] = ()

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        return self.inner_fn(index), self.output_index(index)


@dataclass
class Pointwise(Loops):
    """value[index] = inner_fn(index)."""

    reduction_ranges: Sequence[Size] = ()


@dataclass
class Reduction(Loops):
    """value[index] = reduce over rindex in `reduction_ranges` of inner_fn(index, rindex)."""

    reduction_ranges: list[Size]
    kind: str  # one of ops.REDUCTIONS
    src_dtype: torch.dtype

    def element(self, index: Index, reduction_index: Index) -> tuple[Value, Index]:
        value = self.inner_fn(index, reduction_index)
        return ops.reduction(self.dtype, self.src_dtype, self.kind, value), index


@dataclass
class View:
    """A re-indexing of another value: element `index` is element `reindex(index)` of `base`.  Costs
    nothing."""

    base: "TensorBox"
    size: list[Size]
    reindex: Reindex
    origins: Origins = frozenset()

    def get_size(self) -> Sequence[Size]:
        return self.size


# --- values that are stored: the operations the scheduler orders ----------------------------------
@dataclass
class Buffer:
    name: str
    layout: Any  # a Layout; None for a kernel with several results and an input that is a number
    origins: Origins = frozenset()

    def get_size(self) -> tuple[Size, ...]:
        return self.layout.size


@dataclass
class InputBuffer(Buffer):
    """A graph input."""


@dataclass
class ConstantBuffer(Buffer):
    """A parameter, buffer or literal tensor the graph holds (`Graph.constants[name]` is the real
    tensor)."""


@dataclass
class ComputedBuffer(Buffer):
    """A loop nest that fills the buffer: data is Pointwise, Reduction, Scan or Scatter."""

    data: Any = None

    def __repr__(self) -> str:
        return listing_of(self)


@dataclass
class ExternKernel(Buffer):
    """An eager kernel called from the wrapper: `op(*args, **kwargs)`.

    Arguments are Python values with `BufferView` where a tensor stands.  layout None: the op
    returns several tensors, each of which is a `MultiOutput`.  `out_op`: the op's out= overload
    where there is one, so that the wrapper can give it reused memory.
    """

    op: Any = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    out_op: Any = None


@dataclass
class MultiOutput(Buffer):
    """Output number `index` (a path of ints) of an ExternKernel that returns several tensors."""

    source: str = ""
    index: tuple[int, ...] = ()


@dataclass(frozen=True)
class BufferView:
    """Buffer `name` seen with this size, stride and offset (`as_strided`): what extern kernels and
    graph outputs take."""

    name: str
    size: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size = 0


class TensorBox:
    """A handle on a value that may become stored later.  All users share it, so it is stored
    once."""

    def __init__(self, data: Any) -> None:
        self.data = data  # Loops, a View or a Buffer
        # as it lies in eager's memory, if it is the value of an FX node
        self.eager: Layout | None = None

    @staticmethod
    def stored(data: Any, stride: Sequence[Size] | None = None) -> "TensorBox":
        """The value, realized at once: a reduction is never computed again in each of its users."""
        box = TensorBox(data)
        box.realize(stride)
        return box

    def get_size(self) -> tuple[Size, ...]:
        return tuple(self.data.get_size())

    @property
    def dtype(self) -> torch.dtype:
        return self._described().dtype

    @property
    def device(self) -> torch.device:
        return self._described().device

    @property
    def origins(self) -> Origins:
        """The FX nodes that a user of the value computes, too.  None once it is stored: then
        another kernel has computed it."""
        return frozenset() if isinstance(self.data, Buffer) else self.data.origins

    def _described(self) -> Any:
        """Whatever knows dtype and device: the layout of a buffer, or the value itself."""
        data = self.base.data
        return data.layout if isinstance(data, Buffer) else data

    @property
    def base(self) -> "TensorBox":
        """What a view, or a view of a view, looks at; anything else itself."""
        box = self
        while isinstance(box.data, View):
            box = box.data.base
        return box

    def make_loader(self) -> Loader:
        """A function from a list of index expressions to the value there, through `ops`."""
        data = self.data
        if isinstance(data, Pointwise):
            return data.inner_fn
        if isinstance(data, View):
            # Asked for now, not inside of the lambda: the base may become a buffer later, after
            # buffers that read this view.  They must not read a buffer that comes after them.
            inner = data.base.make_loader()
            return lambda index: inner(data.reindex(index))
        self.realize()
        buffer = self.data
        return lambda index: ops.load(buffer.name, buffer.layout.indexer(index))

    def realize(self, stride: Sequence[Size] | None = None) -> str:
        """Store the value, which is no view: it becomes a ComputedBuffer of the current graph.

        stride: strides of the buffer, default contiguous.  Returns the buffer's name.
        """
        if not isinstance(self.data, Buffer):
            data, size = self.data, self.get_size()
            strides = tuple(stride or contiguous_strides(size))
            layout = Layout(data.device, data.dtype, size, strides)
            self.data = current_graph().add(ComputedBuffer, layout, data.origins, data=data)
        return self.data.name

    def copy(self) -> "TensorBox":
        """An unrealized copy, so that a view can be stored in a layout of its own."""
        size, load = list(self.get_size()), self.make_loader()
        return TensorBox(Pointwise(self.device, self.dtype, size, load, origins=self.origins))

    def as_buffer_view(self, stride: Sequence[Size] | None = None) -> BufferView:
        """The value as (buffer, size, stride, offset), storing it if need be; with `stride`, in
        exactly that layout.

        A chain of views over a buffer is such a view when its index is affine; otherwise it is
        copied.
        """
        if isinstance(self.data, View):
            view = self._affine_view()
        else:
            name = self.realize(stride)
            layout = self.data.layout
            view = BufferView(name, tuple(layout.size), tuple(layout.stride), layout.offset)
        if view is not None and (stride is None or same_layout(view.size, view.stride, stride)):
            return view
        copied = self.copy()
        copied.realize(stride)
        return copied.as_buffer_view()

    def _affine_view(self) -> BufferView | None:
        """BufferView of a view whose linear index is sum(i_k * stride_k) + offset, else None.

        x.t()[1] of x[4, 8] reads element v0 of it at 8*v0 + 1: stride 8, offset 1."""
        size = self.get_size()
        index = [sympy.Symbol(f"v{k}", integer=True, nonnegative=True) for k in range(len(size))]
        expressions: Index = index
        box = self
        while isinstance(box.data, View):
            expressions = box.data.reindex(expressions)
            box = box.data.base
        box.realize()
        place = simplify(box.data.layout.indexer(expressions), dict(zip(index, size)))
        linear = sympy.expand(place)
        offset = linear.subs({v: 0 for v in index})
        stride = [linear.coeff(v) for v in index]
        rest = sympy.expand(linear - offset - sum(s * v for s, v in zip(stride, index)))
        if rest != 0 or any(s.is_negative or s.has(*index) for s in stride):
            return None
        return BufferView(box.data.name, size, tuple(stride), offset)


def leaves_of(kind: type, tree: Any) -> list[Any]:
    """Everything of that kind inside nested lists, tuples and dicts."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, kind)]


boxes_in = functools.partial(leaves_of, TensorBox)
buffer_views = functools.partial(leaves_of, BufferView)


def same_layout(size: Sequence[Size], a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Do two strides place the elements alike?  Strides of dimensions of size 1, and of empty
    tensors, do not matter."""
    if any(n == 0 for n in size):
        return True
    return all(same(x, y) for n, x, y in zip(size, a, b) if n != 1)


@dataclass
class LibraryConstant:
    """A constant in a library's own memory format: only eager kernels read it
    (`Graph.constants[name]` is the real tensor)."""

    name: str


@dataclass
class Graph:
    """A lowered graph: what goes from lowering to the scheduler.

    inputs:     name -> InputBuffer, in call order
    constants:  name -> real tensor (parameters, buffers, literals); ConstantBuffer of that name in
                `buffers`
    operations: ComputedBuffer | ExternKernel | MultiOutput, in an order that respects data flow
    outputs:    list of BufferView | int | sympy.Expr | None, one per graph output
    mutations:  list of (input or constant name, BufferView): after the outputs are there,
                `input.copy_(value)`
    """

    inputs: dict[str, InputBuffer] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    operations: list[Any] = field(default_factory=list)
    # buffers whose kernels raise where eager does: they run, though nobody reads what they compute
    checks: set[str] = field(default_factory=set)
    outputs: list[Any] = field(default_factory=list)
    mutations: list[tuple[str, BufferView]] = field(default_factory=list)

    def __repr__(self) -> str:
        return listing_of(self)

    @property
    def results(self) -> list[BufferView]:
        """All that must be in memory when the call ends: outputs, and the new values of mutated
        inputs."""
        return buffer_views([self.outputs, self.mutations])

    def add(
        self, kind: type[Buffer], layout: Layout | None, origins: Origins, **fields: Any
    ) -> Any:
        """Append an operation that fills a new buffer; returns it."""
        name = f"buf{len(self.operations)}"
        operation = kind(name=name, layout=layout, origins=origins, **fields)
        self.operations.append(operation)
        self.buffers[name] = operation
        return operation


_graph = Current()
building = _graph.set  # `with building(graph):` values that are realized become its operations


def current_graph() -> Graph:
    """The graph that `realize` adds to."""
    return _graph.value

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
import sympy
import torch
from dataclasses import dataclass, field
from typing import Callable

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
    """A handle on a value that may become stored later.  All users share it, so it is stored once."""

    def __init__(self, data):
        self.data = data        # Pointwise | Reduction | View | Buffer

    # device, dtype, get_size(), make_loader(), realize(), as_buffer_view(): to be completed


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

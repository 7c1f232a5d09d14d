"""Lowerings of reads and writes at positions that are data.

In:   embedding, x[i], x[mask] = 0, gather, scatter ...  Out: `Pointwise` values that load through
      `ops.indirect_indexing` (checked: an index out of range raises IndexError); `Scatter`s into a
      copy.

    gather(x, 0, i)[a, b]       is x[i[a, b], b]
    index_select(x, 0, i)[a, b] is x[i[a], b]
    x.index_put((i,), v)[a]     is v[k] for the k with i[k] == a, x[a] where there is none

Mirrors torch/_inductor/lowering.py (`index_impl`, `embedding`, `gather`, `scatter_`).  Left out:
scatters that reduce, `index_copy` and its kin (they run as eager kernels).
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from ..devices import recomputes
from ..ir.loops import ComputedBuffer, Index, Loader, Reindex, Scatter, TensorBox, current_graph
from ..ir.ops import Value, ops
from ..sizes.expressions import Size
from ..sizes.symbols import same_sizes
from .decompositions import Decomposition, decomposition
from .pointwise import full
from .registry import (
    WIDE,
    Call,
    NotLowered,
    aten,
    broadcast_loader,
    cast,
    lower,
    made,
    normalize_dim,
    operand,
)


def positions_in(
    index: TensorBox, size: Size, shape: Sequence[Size] = (), wrap_neg: bool = False
) -> Callable[[Index], sympy.Expr]:
    """at -> what the tensor `index`, broadcast to `shape`, holds there, as a position among `size`.
    Negative ones count from the end (wrap_neg), or are out of range."""
    if index.dtype not in (torch.int32, torch.int64):
        raise NotLowered(f"positions of {index.dtype}")
    load = broadcast_loader(index, shape or index.get_size())
    return lambda at: ops.indirect_indexing(
        cast(load(at), index.dtype, torch.int64), size, wrap_neg=wrap_neg
    )


@lower(aten.embedding.default)
def embedding(call: Call, weight: TensorBox, indices: TensorBox, *options: Any) -> TensorBox:
    """The options say how the gradient is computed."""
    load, row = weight.make_loader(), positions_in(indices, weight.get_size()[0])
    rank = len(indices.get_size())
    return made(call, lambda index: load([row(index[:rank]), *index[rank:]]), weight, indices)


def placer(size: Sequence[Size], indices: Sequence[TensorBox | None]) -> tuple[Reindex, list[Size]]:
    """(index into x[i, :, j] -> index into x, size of x[i, :, j]).  indices: tensors, and None for
    `:`.  The tensors broadcast together; their dimensions stand where they stood if they are
    neighbours, in front otherwise (NumPy's rule)."""
    given = {k: t for k, t in enumerate(indices) if t is not None}
    shape = broadcast_sizes(*[t.get_size() for t in given.values()])
    dims = list(given)
    front = dims[0] if dims[-1] - dims[0] < len(dims) else 0
    positions = {k: positions_in(t, size[k], shape, True) for k, t in given.items()}
    others = [n for k, n in enumerate(size) if k not in given]

    def place(index: Index) -> Index:
        block = index[front : front + len(shape)]
        rest = iter([*index[:front], *index[front + len(shape) :]])
        return [positions[k](block) if k in positions else next(rest) for k in range(len(size))]

    return place, [*others[:front], *shape, *others[front:]]


ATOMIC = (*WIDE, torch.int32, torch.int64)  # dtypes that kernels can add to atomically


def broadcast_sizes(*shapes: Sequence[Size]) -> tuple[Size, ...]:
    """What shapes broadcast to; that they do has been checked while tracing."""
    rank = max(map(len, shapes))
    columns = zip(*[(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes])
    return tuple(next((n for n in column if n != 1), 1) for column in columns)


def scatter_into(
    call: Call,
    x: TensorBox,
    ranges: Sequence[Size],
    value: Loader,
    place: Reindex,
    mode: str | None,
) -> TensorBox:
    """A copy of x in which element place(index) becomes (mode: is combined with) value(index), for
    index in `ranges`."""
    if mode and (x.dtype not in ATOMIC or mode != "sum" and recomputes(x.device)):
        raise NotLowered(f"{mode} of {x.dtype}")
    if mode and recomputes(x.device) and torch.are_deterministic_algorithms_enabled():
        raise NotLowered("sums in the order in which threads come, under deterministic algorithms")
    base = x.copy()
    if 0 in ranges:
        return base
    eager = call.first  # in its strides, if it is the result: views of it may be outputs
    is_result = eager.is_dense and same_sizes(x.get_size(), eager.size)
    base.realize(eager.stride if is_result else None)
    origins, target = call.origins | x.origins, base.data
    data = Scatter(
        x.device, x.dtype, list(ranges), value, place, target.name, mode, origins=origins
    )
    return TensorBox(current_graph().add(ComputedBuffer, target.layout, origins, data=data))


@lower(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(call: Call, x: TensorBox, indices: Sequence[TensorBox | None]) -> TensorBox:
    size, load = x.get_size(), x.make_loader()
    place, _ = placer(size, indices)
    if 0 in call.value.size:
        return full(call, 0)
    if any(n == 0 and t is not None for n, t in zip(size, indices)):
        raise NotLowered("indexing with empty tensors")
    return made(call, lambda index: load(place(index)), x, *indices)


@lower(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    call: Call,
    x: TensorBox,
    indices: Sequence[TensorBox | None],
    values: TensorBox,
    accumulate: bool = False,
) -> TensorBox:
    """x[mask] = scalar is a choice per element."""
    mask = indices[0]
    if mask is None or mask.dtype != torch.bool or any(t is not None for t in indices[1:]):
        place, ranges = placer(x.get_size(), indices)
        mode = "sum" if accumulate else None
        return scatter_into(call, x, ranges, broadcast_loader(values, ranges), place, mode)
    if values.get_size() not in ((), (1,)) or accumulate:
        raise NotLowered("a boolean mask with a tensor of values")
    rank, load, test = len(mask.get_size()), x.make_loader(), mask.make_loader()
    value = broadcast_loader(values, ())
    body = lambda index: ops.where(test(index[:rank]), value([]), load(index))  # noqa: E731
    return made(call, body, x, mask, values)


@lower(aten.gather.default, aten.index_select.default)
def gather(
    call: Call, x: TensorBox, dim: int, index: TensorBox, sparse_grad: bool = False
) -> TensorBox:
    """index_select's index is a vector: the same position for every place along the other
    dimensions."""
    dim, position = along_dim(x, dim, index)
    load, is_vector = x.make_loader(), call.name == "index_select"

    def body(at: Index) -> Value:
        return load([*at[:dim], position([at[dim]] if is_vector else at), *at[dim + 1 :]])

    return made(call, body, x, index)


def along_dim(
    x: TensorBox, dim: int, index: TensorBox
) -> tuple[int, Callable[[Index], sympy.Expr]]:
    """(the dimension, the positions along it that `index` holds)."""
    dim = normalize_dim(dim, len(x.get_size()))
    return dim, positions_in(index, x.get_size()[dim])


@lower(aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.scatter_reduce.two)
def scatter(
    call: Call,
    x: TensorBox,
    dim: int,
    index: TensorBox,
    source: Any,
    reduce: str | None = None,
    include_self: bool = True,
) -> TensorBox:
    if reduce == "mean" or not include_self:
        raise NotLowered(f"a scatter of {x.dtype} that divides, or that forgets what was there")
    dim, position = along_dim(x, dim, index)
    value = operand(source, index.get_size(), x.dtype)
    place = lambda at: [*at[:dim], position(at), *at[dim + 1 :]]  # noqa: E731
    mode = "sum" if call.name == "scatter_add" else reduce
    return scatter_into(call, x, index.get_size(), value, place, mode)


# --- in terms of other ops ------------------------------------------------------------------------
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, include_self: bool = True
) -> Any:
    """Where x does not count, the neutral element is written first; a mean is a sum by a count."""
    if x.dtype not in WIDE or include_self and reduce != "mean":
        return NotImplemented
    count = torch.ones_like(x)
    if not include_self:
        start = {"prod": 1.0, "amax": -math.inf, "amin": math.inf}.get(reduce, 0.0)
        x = x.scatter(dim, index, torch.full_like(source, start))
        count = count.scatter(dim, index, 0)
    if reduce != "mean":
        return x.scatter_reduce(dim, index, source, reduce)
    count = count.scatter_add(dim, index, torch.ones_like(source))
    return x.scatter_add(dim, index, source) / count


def by_rows(name: str) -> Decomposition:
    """index_add and its kin are scatters to positions that are the same in a whole row."""

    def rule(x: Tensor, dim: int, index: Tensor, source: Tensor, *args: Any, **options: Any) -> Any:
        if name != "scatter" and x.dtype not in ATOMIC:
            return NotImplemented  # eager's kernel of a scatter would be slower than its own
        shape = [1] * x.dim()
        shape[dim] = -1
        index = index.reshape(shape).expand(source.shape)
        alpha = options.pop("alpha", 1)
        source = source if alpha == 1 else source * alpha
        return getattr(x, name)(dim, index, source, *args, **options)

    return rule


FORMS = {
    aten.scatter_reduce.two: scatter_reduce,
    aten.index_reduce.default: by_rows("scatter_reduce"),
    aten.index_add.default: by_rows("scatter_add"),
    aten.index_copy.default: by_rows("scatter"),
}


def with_vectors(op: Any, *args: Any, **options: Any) -> Any:
    """A tensor without dimensions is a vector here."""
    if all(t.shape for t in args if isinstance(t, Tensor)):
        return FORMS[op](*args, **options) if op in FORMS else NotImplemented
    out = op(*[t.reshape(t.shape or 1) if isinstance(t, Tensor) else t for t in args], **options)
    if op is aten.gather.default:
        return out.reshape(args[2].shape)
    return out if args[0].dim() else out.reshape(())


SCATTERS = (aten.scatter.src, aten.scatter.value, aten.scatter_add.default)
for _op in (*FORMS, *SCATTERS, aten.gather.default, aten.index_select.default):
    decomposition(_op)(functools.partial(with_vectors, _op))

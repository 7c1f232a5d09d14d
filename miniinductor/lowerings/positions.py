"""Lowerings of reads and writes at positions that are data.

In:   x[i], x[mask] = 0, gather, scatter, scatter_reduce, index_add ...  Out: `Pointwise` values
      that load through `ops.indirect_indexing`; `Scatter`s into a copy.

    gather(x, 0, i)[a, b]       is x[i[a, b], b]
    index_select(x, 0, i)[a, b] is x[i[a], b]

Mirrors torch/_inductor/lowering.py (`index_impl`, `gather`, `scatter_reduce_`).
"""

from collections.abc import Sequence
from typing import Any

import sympy
import torch

from ..ir import Index, TensorBox
from ..lowering.indexing import positions_in
from ..lowering.pointwise import full
from ..lowering.registry import (
    Call,
    NotLowered,
    aten,
    broadcast_loader,
    lower,
    made,
    normalize_dim,
    number,
    view,
)
from ..ops import Value, ops
from ..sizes.symbols import same_sizes
from .scatters import index_put, placer, scatter_into


@lower(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(call: Call, x: TensorBox, indices: Sequence[TensorBox | None]) -> TensorBox:
    size, given = x.get_size(), {k: t for k, t in enumerate(indices) if t is not None}
    load, (place, _) = x.make_loader(), placer(size, given)
    if 0 in call.value.size:
        return full(call, call.value.size, 0)
    if any(size[k] == 0 for k in given):
        raise NotLowered("indexing with empty tensors")
    return made(call, lambda index: load(place(index)), x, *given.values())


@lower(aten.index_put.default, aten._unsafe_index_put.default)
def index_put_where(
    call: Call,
    x: TensorBox,
    indices: Sequence[TensorBox | None],
    values: TensorBox,
    accumulate: bool = False,
) -> TensorBox:
    """x[mask] = scalar is a choice per element."""
    mask = indices[0]
    if mask is None or mask.dtype != torch.bool or any(t is not None for t in indices[1:]):
        return index_put(call, x, indices, values, accumulate)
    if values.get_size() not in ((), (1,)) or accumulate:
        raise NotLowered("a boolean mask with a tensor of values")
    rank, load, test = len(mask.get_size()), x.make_loader(), mask.make_loader()
    value = broadcast_loader(values, ())
    body = lambda index: ops.where(test(index[:rank]), value([]), load(index))  # noqa: E731
    return made(call, body, x, mask, values)


def _at_least_1d(call: Call, box: TensorBox) -> TensorBox:
    """A scalar is indexed as a vector of one element."""
    return box if box.get_size() else view(call, box, [1], lambda index: [])


@lower(aten.gather.default, aten.index_select.default)
def gather(
    call: Call, x: TensorBox, dim: int, index: TensorBox, sparse_grad: bool = False
) -> TensorBox:
    """index_select's index is a vector: the same position for every place along the other
    dimensions."""
    x, index = _at_least_1d(call, x), _at_least_1d(call, index)
    dim = normalize_dim(dim, len(x.get_size()))
    load, position = x.make_loader(), positions_in(index, x.get_size()[dim])
    is_vector = call.name == "index_select"

    def body(at: Index) -> Value:
        at = at or [sympy.Integer(0)]
        return load([*at[:dim], position([at[dim]] if is_vector else at), *at[dim + 1 :]])

    return made(call, body, x, index)


COMBINE = {"sum": "atomic_add", "prod": "atomic_mul", "amax": "atomic_max", "amin": "atomic_min"}


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
    if not include_self or reduce == "mean":
        # of dtypes that the decomposition leaves
        raise NotLowered("mean, or without the tensor's own values")
    is_scalar = not x.get_size()
    x, index = _at_least_1d(call, x), _at_least_1d(call, index)
    dim, dtype = normalize_dim(dim, len(x.get_size())), x.dtype
    position = positions_in(index, x.get_size()[dim])
    value = lambda at: number(source, dtype)  # noqa: E731
    if isinstance(source, TensorBox):
        value = _at_least_1d(call, source).make_loader()
    mode = "atomic_add" if call.name == "scatter_add" else COMBINE.get(reduce or "")
    place = lambda at: [*at[:dim], position(at), *at[dim + 1 :]]  # noqa: E731
    result = scatter_into(call, x, index.get_size(), value, place, mode)
    return view(call, result, (), lambda _: [sympy.Integer(0)]) if is_scalar else result


@lower(aten.index_add.default, aten.index_copy.default)
def index_add(
    call: Call, x: TensorBox, dim: int, index: TensorBox, source: TensorBox, alpha: float = 1
) -> TensorBox:
    """Whole slices of `source` go to (are added at) the positions of `index`, which must not be
    negative."""
    if not x.get_size() or not source.get_size():
        raise NotLowered("a tensor of no dimensions")
    dim, dtype = normalize_dim(dim, len(x.get_size())), x.dtype
    slices = [[*t.get_size()[:dim], *t.get_size()[dim + 1 :]] for t in (x, source)]
    if not same_sizes(*slices):
        raise NotLowered("slices of another shape, which the kernel refuses")
    position = positions_in(_at_least_1d(call, index), x.get_size()[dim])
    load = source.make_loader()

    def value(at: Index) -> Value:
        element = load(at)
        return element if alpha == 1 else ops.mul(element, number(alpha, dtype))

    place = lambda at: [*at[:dim], position([at[dim]]), *at[dim + 1 :]]  # noqa: E731
    mode = "atomic_add" if call.name == "index_add" else None
    return scatter_into(call, x, source.get_size(), value, place, mode)

"""Lowerings of reads and writes along one dimension, at positions that are data.

In:   gather, index_select, scatter, scatter_reduce, index_add ...  Out: `Pointwise` values that load
      through `ops.indirect_indexing`; `Scatter`s into a copy.

    gather(x, 0, i)[a, b]       is x[i[a, b], b]
    index_select(x, 0, i)[a, b] is x[i[a], b]

Mirrors torch/_inductor/lowering.py (`gather`, `scatter_reduce_`).
"""

from typing import Any

import sympy

from ..ir import Index, TensorBox
from ..lowering.indexing import positions_in, scatter_into
from ..lowering.registry import (
    Call,
    NotLowered,
    aten,
    lower,
    made,
    normalize_dim,
    number,
    view,
)
from ..ops import Value, ops


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
    load, position, is_vector = (
        x.make_loader(),
        positions_in(index, x.get_size()[dim]),
        call.name == "index_select",
    )

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
        raise NotLowered(
            "mean, or without the tensor's own values"
        )  # of dtypes that the decomposition leaves
    is_scalar = not x.get_size()
    x, index = _at_least_1d(call, x), _at_least_1d(call, index)
    source = _at_least_1d(call, source) if isinstance(source, TensorBox) else source
    dim, dtype = normalize_dim(dim, len(x.get_size())), x.dtype
    position = positions_in(index, x.get_size()[dim])
    value = (
        source.make_loader() if isinstance(source, TensorBox) else lambda at: number(source, dtype)
    )
    mode = "atomic_add" if call.name == "scatter_add" else COMBINE.get(reduce or "")
    result = scatter_into(
        call,
        x,
        list(index.get_size()),
        value,
        lambda at: [*at[:dim], position(at), *at[dim + 1 :]],
        mode,
    )
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
    position = positions_in(_at_least_1d(call, index), x.get_size()[dim])
    load = source.make_loader()

    def value(at: Index) -> Value:
        element = load(at)
        return element if alpha == 1 else ops.mul(element, number(alpha, dtype))

    return scatter_into(
        call,
        x,
        list(source.get_size()),
        value,
        lambda at: [*at[:dim], position([at[dim]]), *at[dim + 1 :]],
        "atomic_add" if call.name == "index_add" else None,
    )

"""Lowerings whose index depends on data: embedding, index_put.

In:   tensors of positions.  Out: `Pointwise` values that load through `ops.indirect_indexing`
      (checked: an index out of range raises IndexError).

Writes through positions store into a copy.  Mirrors torch/_inductor/lowering.py (`index_impl`,
`embedding`, `index_put_impl`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..ir import ComputedBuffer, Index, Loader, Reindex, Scatter, TensorBox, current_graph
from ..ops import ops
from ..replaceable import replaceable
from ..sizes.expressions import Size
from ..sizes.symbols import same_sizes
from .registry import Call, NotLowered, aten, broadcast_loader, broadcast_sizes, cast, lower, made


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


def placer(size: Sequence[Size], given: dict[int, TensorBox]) -> tuple[Reindex, list[Size]]:
    """(index into x[i, :, j] -> index into x, size of x[i, :, j]).  given: {dimension: index
    tensor}.  The index tensors broadcast together; their dimensions stand where they stood if they
    are neighbours, in front otherwise (NumPy's rule)."""
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


# --- writes whose place depends on data -----------------------------------------------------------
# dtypes that kernels can add to atomically
ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)


@replaceable
def is_used_up(call: Call, x: TensorBox) -> bool:
    """May a scatter write into `x`, not into a copy?  (speed/used_up.py knows where.)"""
    return False


def scatter_into(
    call: Call,
    x: TensorBox,
    ranges: Sequence[Size],
    value: Loader,
    place: Reindex,
    mode: str | None = None,
) -> TensorBox:
    """A copy of x in which element place(index) becomes (mode: is combined with) value(index), for
    index in `ranges`."""
    if mode and (x.dtype not in ATOMIC or mode != "atomic_add" and x.device.type != "cpu"):
        raise NotLowered(f"{mode} of {x.dtype} on {x.device.type}")
    if 0 in ranges:
        return x.copy()
    base = x if is_used_up(call, x) else x.copy()
    eager = call.first  # in its strides, if it is the result: views of it may be outputs
    is_result = eager.is_dense and same_sizes(x.get_size(), eager.size)
    base.realize(eager.stride if is_result else None)
    origins, target = call.origins | x.origins, base.data
    data = Scatter(
        x.device, x.dtype, list(ranges), value, place, target.name, mode, origins=origins
    )
    return TensorBox(current_graph().add(ComputedBuffer, target.layout, origins, data=data))


@lower(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    call: Call,
    x: TensorBox,
    indices: Sequence[TensorBox | None],
    values: TensorBox,
    accumulate: bool = False,
) -> TensorBox:
    place, ranges = placer(x.get_size(), {k: t for k, t in enumerate(indices) if t is not None})
    mode = "atomic_add" if accumulate else None
    return scatter_into(call, x, ranges, broadcast_loader(values, ranges), place, mode)

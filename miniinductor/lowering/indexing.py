"""Lowerings whose index depends on data: embedding, gather, index.

In:   tensors of positions.  Out: `Pointwise` values that load through `ops.indirect_indexing`
      (checked: an index out of
range raises IndexError).

Writes through positions (`index_put`, `scatter`) store into a copy. Mirrors
torch/_inductor/lowering.py (`index_impl`, `gather`, `embedding`, `index_put_impl`).  Left out:
boolean masks (size depends on data).
"""

from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..ir import (
    ComputedBuffer,
    ExternKernel,
    Index,
    Loader,
    Reindex,
    Scatter,
    TensorBox,
    current_graph,
)
from ..ops import ops
from ..sizes.expressions import Size
from .extern import EXTERN
from .pointwise import full
from .registry import (
    Call,
    NotLowered,
    aten,
    broadcast_loader,
    broadcast_sizes,
    cast,
    lower,
    made,
)


def positions_in(index: TensorBox, size: Size) -> Callable[[Index], sympy.Expr]:
    """at -> what the tensor `index` holds there, as a position among `size`; negative ones are out
    of range."""
    if index.dtype not in (torch.int32, torch.int64):
        raise NotLowered(f"positions of {index.dtype}")
    load = index.make_loader()
    return lambda at: ops.indirect_indexing(
        cast(load(at), index.dtype, torch.int64), size, wrap_neg=False
    )


@lower(aten.embedding.default)
def embedding(
    call: Call,
    weight: TensorBox,
    indices: TensorBox,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorBox:
    load, row, rank = (
        weight.make_loader(),
        positions_in(indices, weight.get_size()[0]),
        len(indices.get_size()),
    )
    return made(call, lambda index: load([row(index[:rank]), *index[rank:]]), weight, indices)


@lower(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(call: Call, x: TensorBox, indices: Sequence[TensorBox | None]) -> TensorBox:
    size, given = x.get_size(), {k: t for k, t in enumerate(indices) if t is not None}
    if any(t.dtype not in (torch.int64, torch.int32) for t in given.values()):
        raise NotLowered("a boolean mask: the size of the result depends on data")
    load, (place, _) = x.make_loader(), _placer(size, given)
    if 0 in tuple(call.value.shape):
        return full(call, call.value.shape, 0)
    if any(size[k] == 0 for k in given):
        raise NotLowered("indexing with empty tensors")
    return made(call, lambda index: load(place(index)), x, *given.values())


def _placer(size: Sequence[Size], given: dict[int, TensorBox]) -> tuple[Reindex, list[Size]]:
    """(index into x[i, :, j] -> index into x, size of x[i, :, j]).  given: {dimension: index
    tensor}.  The index tensors broadcast together; their dimensions stand where they stood if they
    are neighbours, in front otherwise (NumPy's rule)."""
    shape = broadcast_sizes(*[t.get_size() for t in given.values()])
    positions = list(given)
    front = positions[0] if positions[-1] - positions[0] < len(positions) else 0
    loaders = {k: (broadcast_loader(t, shape), t.dtype) for k, t in given.items()}
    others = [n for k, n in enumerate(size) if k not in given]

    def place(index: Index) -> Index:
        block, rest = (
            index[front : front + len(shape)],
            [*index[:front], *index[front + len(shape) :]],
        )
        at = []
        for k in range(len(size)):
            if k in loaders:
                loader, dtype = loaders[k]
                at.append(
                    ops.indirect_indexing(cast(loader(list(block)), dtype, torch.int64), size[k])
                )
            else:
                at.append(rest.pop(0))
        return at

    return place, [*others[:front], *shape, *others[front:]]


# --- writes whose place depends on data -----------------------------------------------------------
ATOMIC = (
    torch.float32,
    torch.float64,
    torch.int32,
    torch.int64,
)  # dtypes that kernels can add to atomically


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
    base = x if _is_used_up(call, x) else x.copy()
    base.realize()
    graph, origins = current_graph(), call.origins | x.origins
    data = Scatter(
        x.device, x.dtype, list(ranges), value, place, base.data.name, mode, origins=origins
    )
    return TensorBox(graph.add(ComputedBuffer, base.data.layout, origins, data=data))


def _is_used_up(call: Call, x: TensorBox) -> bool:
    """Is `x` the whole, fresh result of an eager kernel that only this call reads?  Then it need
    not be copied."""
    node: Any = call.node.args[0]
    return isinstance(x.data, ExternKernel) and node.target in EXTERN and len(node.users) == 1


@lower(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    call: Call,
    x: TensorBox,
    indices: Sequence[TensorBox | None],
    values: TensorBox,
    accumulate: bool = False,
) -> TensorBox:
    given = {k: t for k, t in enumerate(indices) if t is not None}
    if [t.dtype for t in given.values()] == [torch.bool]:
        return _put_where(call, x, *given.popitem(), values, accumulate)
    if any(t.dtype not in (torch.int64, torch.int32) for t in given.values()):
        raise NotLowered("boolean masks among several indices")
    place, ranges = _placer(x.get_size(), given)
    return scatter_into(
        call,
        x,
        ranges,
        broadcast_loader(values, ranges),
        place,
        "atomic_add" if accumulate else None,
    )


def _put_where(
    call: Call, x: TensorBox, dim: int, mask: TensorBox, value: TensorBox, accumulate: bool
) -> TensorBox:
    """x[mask] = scalar is a choice per element."""
    if value.get_size() not in ((), (1,)) or dim or accumulate:
        raise NotLowered("a boolean mask with a tensor of values")
    rank, load, test = len(mask.get_size()), x.make_loader(), mask.make_loader()
    load_value = broadcast_loader(value, ())
    return made(
        call,
        lambda index: ops.where(test(index[:rank]), load_value([]), load(index)),
        x,
        mask,
        value,
    )

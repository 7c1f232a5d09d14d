"""Writes at positions that are data: index_put, and what other scatters are made of.

In:   tensors of positions and of values.  Out: a `Scatter` into a copy.

    x.index_put((i,), v)[a]      is v[k] for the k with i[k] == a, x[a] where there is none

Without this file they are eager kernels.  positions.py has scatter, scatter_reduce and index_add.
Mirrors torch/_inductor/lowering.py (`index_put_impl`).
"""

from collections.abc import Sequence

import torch

from ..ir import ComputedBuffer, Index, Loader, Reindex, TensorBox, current_graph
from ..more.scatter import Scatter
from ..lowering.extern import SCATTERS
from ..lowering.indexing import positions_in
from ..lowering.registry import Call, NotLowered, aten, broadcast_loader, lower
from ..sizes.expressions import Size
from ..sizes.symbols import same_sizes

SCATTERS.update("index_put scatter scatter_add scatter_reduce index_add index_copy".split())


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


# dtypes that kernels can add to atomically
ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)


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
    mode: str | None = None,
) -> TensorBox:
    """A copy of x in which element place(index) becomes (mode: is combined with) value(index), for
    index in `ranges`."""
    if mode and (x.dtype not in ATOMIC or mode != "atomic_add" and x.device.type != "cpu"):
        raise NotLowered(f"{mode} of {x.dtype} on {x.device.type}")
    if 0 in ranges:
        return x.copy()
    base = x.copy()
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

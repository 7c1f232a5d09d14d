"""Lowerings whose index depends on data: embedding, gather, index.

In:   tensors of positions.  Out: `Pointwise` values that load through `ops.indirect_indexing` (checked: an index out of
range raises IndexError).

Writes through positions (`index_put`, `scatter`) store into a copy.
Mirrors torch/_inductor/lowering.py (`index_impl`, `gather`, `embedding`, `index_put_impl`).  Left out: boolean masks (size depends on data).
"""
import sympy
import torch

from ..ir import ComputedBuffer, ExternKernel, Pointwise, Scatter, TensorBox, current_graph
from ..ops import ops
from .extern import EXTERN
from .pointwise import full
from .registry import NotLowered, aten, broadcast_loader, broadcast_sizes, cast, lower, normalize_dim, view


@lower(aten.embedding.default)
def embedding(call, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    load_weight, load_index, rank = weight.make_loader(), indices.make_loader(), len(indices.get_size())

    def body(index):
        row = ops.indirect_indexing(cast(load_index(index[:rank]), indices.dtype, torch.int64), weight.get_size()[0],
                                    wrap_neg=False)
        return load_weight([row, *index[rank:]])
    return TensorBox(Pointwise(weight.device, weight.dtype, list(call.value.shape), body,
                               call.origins | weight.origins | indices.origins))


def _at_least_1d(call, box):
    """A scalar is indexed as a vector of one element."""
    return box if box.get_size() else view(call, box, [1], lambda index: [])


@lower(aten.gather.default)
def gather(call, x, dim, index, sparse_grad=False):
    x, index_at = _at_least_1d(call, x), _at_least_1d(call, index)
    size = x.get_size()
    dim = normalize_dim(dim, len(size))
    load, load_index = x.make_loader(), index_at.make_loader()

    def body(at):
        at = at or [sympy.Integer(0)]
        position = ops.indirect_indexing(cast(load_index(at), index.dtype, torch.int64), size[dim], wrap_neg=False)
        return load([position if k == dim else i for k, i in enumerate(at)])
    return TensorBox(Pointwise(x.device, x.dtype, list(call.value.shape), body,
                               call.origins | x.origins | index.origins))


@lower(aten.index_select.default)
def index_select(call, x, dim, index):
    x, index = _at_least_1d(call, x), _at_least_1d(call, index)
    size = x.get_size()
    dim = normalize_dim(dim, len(size))
    load, load_index = x.make_loader(), index.make_loader()

    def body(at):
        at = at or [sympy.Integer(0)]
        position = ops.indirect_indexing(cast(load_index([at[dim]]), index.dtype, torch.int64), size[dim], wrap_neg=False)
        return load([position if k == dim else i for k, i in enumerate(at)])
    return TensorBox(Pointwise(x.device, x.dtype, list(call.value.shape), body,
                               call.origins | x.origins | index.origins))


@lower(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(call, x, indices):
    """x[i, :, j]: the index tensors broadcast together; their dimensions stand where they stood if they are neighbours,
    in front otherwise (NumPy's rule)."""
    size = x.get_size()
    given = [(k, t) for k, t in enumerate(indices) if t is not None]
    if any(t.dtype not in (torch.int64, torch.int32) for _, t in given):
        raise NotLowered("a boolean mask: the size of the result depends on data")
    shape = broadcast_sizes(*[t.get_size() for _, t in given])
    load, place = x.make_loader(), _placer(size, given, shape)
    if 0 in tuple(call.value.shape):
        return full(call, call.value.shape, 0)
    if any(size[k] == 0 for k, _ in given):
        raise NotLowered("indexing with empty tensors")
    origins = call.origins.union(x.origins, *[t.origins for _, t in given])
    return TensorBox(Pointwise(x.device, x.dtype, list(call.value.shape), lambda index: load(place(index)),
                               origins))


def _placer(size, given, shape):
    """index into x[i, :, j] -> index into x.  given: [(dimension, index tensor)]; shape: what they broadcast to."""
    positions = [k for k, _ in given]
    adjacent = positions == list(range(positions[0], positions[0] + len(positions)))
    front = positions[0] if adjacent else 0
    loaders = {k: (broadcast_loader(t, shape), t.dtype) for k, t in given}

    def place(index):
        block, rest = index[front:front + len(shape)], [*index[:front], *index[front + len(shape):]]
        at = []
        for k in range(len(size)):
            if k in loaders:
                loader, dtype = loaders[k]
                at.append(ops.indirect_indexing(cast(loader(list(block)), dtype, torch.int64), size[k]))
            else:
                at.append(rest.pop(0))
        return at
    return place


# --- writes whose place depends on data ---------------------------------------------------------------------------------
ATOMIC = (torch.float32, torch.float64, torch.int32, torch.int64)      # dtypes that kernels can add to atomically
COMBINE = {"sum": "atomic_add", "prod": "atomic_mul", "amax": "atomic_max", "amin": "atomic_min"}


def scatter_into(call, x, ranges, value, place, mode=None):
    """A copy of x in which element place(index) becomes (mode: is combined with) value(index), for index in `ranges`."""
    if mode and (x.dtype not in ATOMIC or mode != "atomic_add" and x.device.type != "cpu"):
        raise NotLowered(f"{mode} of {x.dtype} on {x.device.type}")
    if 0 in ranges:
        return x.copy()
    base = x if _is_used_up(call, x) else x.copy()
    base.realize()
    graph, origins = current_graph(), call.origins | x.origins
    data = Scatter(x.device, x.dtype, list(ranges), value, place, base.data.name,
                   mode, origins)
    return TensorBox(graph.add(ComputedBuffer, base.data.layout, origins, data=data))


def _is_used_up(call, x):
    """Is `x` the whole, fresh result of an eager kernel that only this call reads?  Then it need not be copied."""
    node = call.node.args[0]
    return isinstance(x.data, ExternKernel) and node.target in EXTERN and len(node.users) == 1


@lower(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(call, x, indices, values, accumulate=False):
    size = x.get_size()
    given = [(k, t) for k, t in enumerate(indices) if t is not None]
    if len(given) == 1 and given[0][1].dtype == torch.bool:
        return _put_where(call, x, *given[0], values, accumulate)
    if any(t.dtype not in (torch.int64, torch.int32) for _, t in given):
        raise NotLowered("boolean masks among several indices")
    shape = broadcast_sizes(*[t.get_size() for _, t in given])
    positions = [k for k, _ in given]
    rest = [n for k, n in enumerate(size) if k not in positions]
    adjacent = positions == list(range(positions[0], positions[0] + len(positions)))
    front = positions[0] if adjacent else 0
    ranges = [*rest[:front], *shape, *rest[front:]]
    return scatter_into(call, x, ranges, broadcast_loader(values, ranges), _placer(size, given, shape),
                        "atomic_add" if accumulate else None)


def _put_where(call, x, dim, mask, value, accumulate):
    """x[mask] = scalar is a choice per element."""
    if value.get_size() not in ((), (1,)) or dim or accumulate:
        raise NotLowered("a boolean mask with a tensor of values")
    rank, load, test = len(mask.get_size()), x.make_loader(), mask.make_loader()
    load_value = broadcast_loader(value, ())

    def body(index):
        return ops.where(test(index[:rank]), load_value([]), load(index))
    return TensorBox(Pointwise(x.device, x.dtype, list(x.get_size()), body,
                               call.origins | x.origins | mask.origins | value.origins))


@lower(aten.scatter.src, aten.scatter.value, aten.scatter_add.default, aten.scatter_reduce.two)
def scatter(call, x, dim, index, source, reduce=None, include_self=True):
    if not include_self or reduce == "mean":
        raise NotLowered("mean, or without the tensor's own values")       # of dtypes that the decomposition leaves
    is_scalar = not x.get_size()
    x, index = _at_least_1d(call, x), _at_least_1d(call, index)
    source = _at_least_1d(call, source) if isinstance(source, TensorBox) else source
    size = x.get_size()
    dim, dtype = normalize_dim(dim, len(size)), x.dtype
    load_index = index.make_loader()
    value = source.make_loader() if isinstance(source, TensorBox) else lambda at: ops.constant(source, dtype)

    def place(at):
        position = ops.indirect_indexing(cast(load_index(at), index.dtype, torch.int64), size[dim], wrap_neg=False)
        return [position if k == dim else i for k, i in enumerate(at)]
    mode = "atomic_add" if call.node.target is aten.scatter_add.default else COMBINE.get(reduce)
    result = scatter_into(call, x, list(index.get_size()), value, place, mode)
    return view(call, result, (), lambda _: [sympy.Integer(0)]) if is_scalar else result

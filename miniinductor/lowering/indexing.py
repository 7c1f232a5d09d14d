"""Lowerings whose index depends on data: embedding, gather, index.

In:   tensors of positions.  Out: `Pointwise` values that load through `ops.indirect_indexing` (checked: an index out of
range raises IndexError).

Mirrors torch/_inductor/lowering.py (`index_impl`, `gather`, `embedding`).  Left out: boolean masks (size depends on data).
"""
import torch

from ..ir import Pointwise, TensorBox
from ..ops import ops
from .registry import NotLowered, aten, broadcast_loader, cast, lower, normalize_dim


@lower(aten.embedding.default)
def embedding(call, weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    load_weight, load_index, rank = weight.make_loader(), indices.make_loader(), len(indices.get_size())

    def body(index):
        row = ops.indirect_indexing(cast(load_index(index[:rank]), indices.dtype, torch.int64), weight.get_size()[0],
                                    wrap_neg=False)
        return load_weight([row, *index[rank:]])
    return TensorBox(Pointwise(weight.device, weight.dtype, [int(n) for n in call.value.shape], body,
                               call.origins | weight.origins | indices.origins))


@lower(aten.gather.default)
def gather(call, x, dim, index, sparse_grad=False):
    size = x.get_size()
    if not size:
        raise NotLowered("gather from a scalar")
    dim = normalize_dim(dim, len(size))
    load, load_index = x.make_loader(), index.make_loader()

    def body(at):
        position = ops.indirect_indexing(cast(load_index(at), index.dtype, torch.int64), size[dim], wrap_neg=False)
        return load([position if k == dim else i for k, i in enumerate(at)])
    return TensorBox(Pointwise(x.device, x.dtype, [int(n) for n in call.value.shape], body,
                               call.origins | x.origins | index.origins))


@lower(aten.index_select.default)
def index_select(call, x, dim, index):
    size = x.get_size()
    if not size or len(index.get_size()) != 1:
        raise NotLowered("index_select on scalars")
    dim = normalize_dim(dim, len(size))
    load, load_index = x.make_loader(), index.make_loader()

    def body(at):
        position = ops.indirect_indexing(cast(load_index([at[dim]]), index.dtype, torch.int64), size[dim], wrap_neg=False)
        return load([position if k == dim else i for k, i in enumerate(at)])
    return TensorBox(Pointwise(x.device, x.dtype, [int(n) for n in call.value.shape], body,
                               call.origins | x.origins | index.origins))


@lower(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(call, x, indices):
    """x[i, :, j]: the index tensors broadcast together; their dimensions stand where they stood if they are neighbours,
    in front otherwise (NumPy's rule)."""
    size = x.get_size()
    given = [(k, t) for k, t in enumerate(indices) if t is not None]
    if any(t.dtype not in (torch.int64, torch.int32) for _, t in given):
        raise NotLowered("a boolean mask: the size of the result depends on data")
    shape = torch.broadcast_shapes(*[tuple(t.get_size()) for _, t in given])
    positions = [k for k, _ in given]
    adjacent = positions == list(range(positions[0], positions[0] + len(positions)))
    front = positions[0] if adjacent else 0
    load = x.make_loader()
    loaders = {k: (broadcast_loader(t, shape), t.dtype) for k, t in given}
    if 0 in tuple(call.value.shape) or any(size[k] == 0 for k in positions):
        raise NotLowered("indexing with empty tensors")

    def body(index):
        block, rest = index[front:front + len(shape)], [*index[:front], *index[front + len(shape):]]
        at = []
        for k in range(len(size)):
            if k in loaders:
                loader, dtype = loaders[k]
                at.append(ops.indirect_indexing(cast(loader(list(block)), dtype, torch.int64), size[k]))
            else:
                at.append(rest.pop(0))
        return load(at)
    origins = call.origins.union(x.origins, *[t.origins for _, t in given])
    return TensorBox(Pointwise(x.device, x.dtype, [int(n) for n in call.value.shape], body, origins))


# --- pooling and resampling: windows of fixed size, unrolled ---------------------------------------------------------
def _pair(value, default):
    value = list(value) if isinstance(value, (list, tuple)) else [value]
    return value * 2 if len(value) == 1 else value if value else list(default)


@lower(aten.max_pool2d_with_indices.default)
def max_pool2d(call, x, kernel, stride=(), padding=0, dilation=1, ceil_mode=False):
    kernel, padding, dilation = _pair(kernel, ()), _pair(padding, ()), _pair(dilation, ())
    stride = _pair(stride, kernel) if stride else kernel
    values, indices = call.value
    height, width = x.get_size()[-2:]
    if kernel[0] * kernel[1] > 25:
        raise NotLowered("a window of more than 25 elements")
    load = x.make_loader()

    def window(index):
        *batch, row, column = index
        for a in range(kernel[0]):
            for b in range(kernel[1]):
                i, j = row * stride[0] - padding[0] + a * dilation[0], column * stride[1] - padding[1] + b * dilation[1]
                yield batch, i, j

    def element(batch, i, j):
        lowest = float("-inf") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
        if not any(padding) and not ceil_mode:
            return load([*batch, i, j])
        tests = [ops.ge(ops.index_expr(i, torch.int64), ops.constant(0, torch.int64)),
                 ops.lt(ops.index_expr(i, torch.int64), ops.constant(height, torch.int64)),
                 ops.ge(ops.index_expr(j, torch.int64), ops.constant(0, torch.int64)),
                 ops.lt(ops.index_expr(j, torch.int64), ops.constant(width, torch.int64))]
        mask = ops.logical_and(ops.logical_and(tests[0], tests[1]), ops.logical_and(tests[2], tests[3]))
        return ops.masked(mask, lambda: load([*batch, i, j]), lowest)

    def best(index):
        result = None
        for place in window(index):
            value = element(*place)
            result = value if result is None else ops.maximum(value, result)
        return result

    def position(index):
        result = where = None
        for batch, i, j in window(index):
            value, here = element(batch, i, j), ops.index_expr(i * width + j, torch.int64)
            if result is None:
                result, where = value, here
            else:
                better = ops.logical_or(ops.gt(value, result), ops.isnan(value)) if x.dtype.is_floating_point else ops.gt(value, result)
                where, result = ops.where(better, here, where), ops.maximum(value, result)
        return where
    make = lambda fake, body: TensorBox(Pointwise(x.device, fake.dtype, [int(n) for n in fake.shape], body,  # noqa: E731
                                                  call.origins | x.origins))
    return [make(values, best), make(indices, position)]


@lower(aten.avg_pool2d.default)
def avg_pool2d(call, x, kernel, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    kernel, padding = _pair(kernel, ()), _pair(padding, ())
    stride = _pair(stride, kernel) if stride else kernel
    if any(padding) or ceil_mode or kernel[0] * kernel[1] > 25 or not x.dtype.is_floating_point:
        raise NotLowered("padding, ceil_mode or a large window")
    load, dtype = x.make_loader(), call.value.dtype
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def body(index):
        *batch, row, column = index
        total = None
        for a in range(kernel[0]):
            for b in range(kernel[1]):
                value = cast(load([*batch, row * stride[0] + a, column * stride[1] + b]), dtype, compute)
                total = value if total is None else ops.add(total, value)
        count = divisor_override or kernel[0] * kernel[1]
        return cast(ops.truediv(total, ops.constant(count, compute)), compute, dtype)
    return TensorBox(Pointwise(x.device, dtype, [int(n) for n in call.value.shape], body, call.origins | x.origins))

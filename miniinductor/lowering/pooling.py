"""Pooling: windows of fixed size, unrolled into one pointwise body.

In:   max_pool2d, avg_pool2d.  Out: `Pointwise` values that read every element of their window.

Mirrors torch/_inductor/lowering.py (`max_pool2d_with_indices`, `avg_pool2d`).  Left out: windows of more than 25 elements
(they run as eager kernels).
"""
import torch

from ..ir import Pointwise, TensorBox
from ..ops import ops
from .registry import NotLowered, aten, cast, lower


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

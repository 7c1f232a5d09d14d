"""Tensors that are joined: one loop over the result, whose body reads the part in which it is.

In:   cat.  Out: one `Pointwise` value.

    cat(x, y)[i]  ->  x[i] where i < 3, else y[i - 3]       of an x with 3 rows

Mirrors torch/_inductor/lowering.py (`pointwise_cat`).
"""

import functools
import itertools
from collections.abc import Sequence

import sympy
import torch

from ..ir import Index, TensorBox
from ..lowering.registry import Call, NotLowered, aten, cast, lower, made, normalize_dim, number
from ..lowering.views import along
from ..ops import Value, ops
from ..sizes.expressions import Size


def between(i: sympy.Expr, low: Size | None, high: Size | None) -> Value:
    """low <= i < high as a runtime condition; low, high: a number, an index expression, or None."""
    at = ops.index_expr(i, torch.int64)
    pairs = [(ops.ge, low), (ops.lt, high)]
    tests = [test(at, number(n, torch.int64)) for test, n in pairs if n is not None]
    return functools.reduce(ops.logical_and, tests)


@lower(aten.cat.default)
def cat(call: Call, tensors: Sequence[TensorBox], dim: int = 0) -> TensorBox:
    result, dim = call.value, normalize_dim(dim, len(call.value.size))
    parts = [box for box in tensors if 0 not in box.get_size()]
    if not 0 < len(parts) <= 8:
        raise NotLowered(f"cat of {'more than eight' if parts else 'empty'} tensors")
    loads = [box.make_loader() for box in parts]
    starts = list(itertools.accumulate([box.get_size()[dim] for box in parts[:-1]], initial=0))

    def element(k: int, index: Index) -> Value:
        value = loads[k](along(index, dim, lambda i: i - starts[k]))
        return cast(value, parts[k].dtype, result.dtype)

    def body(index: Index) -> Value:
        """Of two parts, the first with 3 rows: where(i < 3, first[i] if i < 3 else 0, second[i - 3]
        if i >= 3 else 0).  Masked, for memory beyond a part must not be read."""
        if len(parts) == 1:
            return element(0, index)
        end = value = None
        for k in reversed(range(len(parts))):
            inside = between(index[dim], starts[k] if k else None, end)
            piece = ops.masked(inside, functools.partial(element, k, index), 0)
            if value is not None:
                piece = ops.where(between(index[dim], None, end), piece, value)
            value = piece
            end = starts[k]
        return value

    return made(call, body, *tensors)

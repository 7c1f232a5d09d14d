"""Lowerings of running sums, products and log-sums.

In:   cumsum, cumprod, logcumsumexp.  Out: a `Scan`.

In C++ a scan goes element by element.  So what is costly is computed in vectors, before it and
behind it; only a little pointwise work joins its kernel (scheduler.py).

Mirrors torch/_inductor/lowering.py (`cumsum`).
"""

import math

import torch

from .. import config
from ..ir.loops import Pointwise, Scan, TensorBox
from ..sizes.symbols import hint
from .graph import cost
from .reductions import accumulate_dtype
from .registry import NARROW, Call, NotLowered, aten, cast, lower, mapped, normalize_dim

IN_ORDER = 4  # operations of an element that a scan in C++ computes in its own loop, at most
FEW_SCANS, LONG_SCAN = 64, 8192  # on a GPU eager has the better kernel for fewer and longer ones


@lower(aten.cumsum.default, aten.cumprod.default, aten.logcumsumexp.default)
def cumulative(
    call: Call, x: TensorBox, dim: int, *, dtype: torch.dtype | None = None
) -> TensorBox:
    """CPU: accumulated in double (float32, float64), float32 (narrow floats) or int64, and rounded
    at every step, as eager does it. GPU: in float32, float64 or int64."""
    size, result = list(x.get_size()), call.value.dtype
    kind = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logaddexp"}[call.name]
    if not size or 0 in size:
        return mapped(call, x, lambda v: cast(v, x.dtype, result), result)
    parallel = x.device.type != "cpu" or config.cpu_backend != "cpp"
    if not parallel and isinstance(x.data, Pointwise) and cost(x)[1] > IN_ORDER:
        x.realize()  # by a loop of vectors: the scan's own goes element by element
    compute = torch.float64 if result.is_floating_point else torch.int64
    if result in NARROW and kind != "logaddexp" or parallel and result.is_floating_point:
        compute = accumulate_dtype(result)
    dim, load, src = normalize_dim(dim, len(size)), x.make_loader(), x.dtype
    whole = lambda index, rindex: [*index[:dim], rindex[0], *index[dim:]]  # noqa: E731
    element = lambda index, rindex: cast(
        cast(load(whole(index, rindex)), src, result), result, compute
    )  # noqa: E731
    count, others = size[dim], size[:dim] + size[dim + 1 :]
    if parallel and hint(math.prod(others), 1) < FEW_SCANS and hint(count, 0) > LONG_SCAN:
        raise NotLowered("few long scans: eager's kernel works on all parts of one at once")
    origins = call.origins | x.origins
    data = Scan(
        x.device, result, others, element, [count], whole, kind, compute, size, origins=origins
    )
    return TensorBox.stored(data)

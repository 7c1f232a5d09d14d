"""Decompositions that the core can do without: without them these ops are eager kernels.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    addcmul(x, a, b) -> x + value * a * b       rounded once
    _foreach_add(xs, ys) -> [x + y ...]         so that an optimizer's step is fused

Mirrors torch/_inductor/decomposition.py.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from ..decompositions import (
    ALSO_FROM_TORCH,
    LOW_PRECISION,
    OURS,
    Decomposition,
    decomposition,
    upcast,
)
from ..sizes.symbols import same

aten = torch.ops.aten
ALSO_FROM_TORCH += """
elu leaky_relu hardtanh fmod dist addmv ldexp round linalg_vector_norm narrow_copy permute_copy
view_copy unbind_copy as_strided_copy upsample_nearest2d upsample_trilinear3d
""".split()


def _multiply_and_add(function: Decomposition) -> Decomposition:
    """x + value * a (* or /) b, rounded once to the result's dtype, without torch's multiplication
    by 1."""

    def rule(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
        compute, result = elementwise_dtypes(x, a, b, type_promotion_kind=Promotion.DEFAULT)
        x, a, b = x.to(compute), a.to(compute), b.to(compute)
        return (x + function(a if value == 1 else value * a, b)).to(result)

    return rule


@decomposition(aten.frac.default)
def frac(x: Tensor) -> Tensor:
    """torch 2.11's rule multiplies by the sign, and gives -0.0 for -0.0."""
    return x - torch.trunc(x)


@decomposition(aten.eye.default)
def eye(n: int, **options: Any) -> Tensor:
    return eye_of(n, n, **options)


@decomposition(aten.eye.m)
def eye_of(n: int, m: int, *, dtype: Any = None, device: Any = None, **options: Any) -> Tensor:
    """torch's rule counts in uint16 from 256 on, for which eager's `arange` has no kernel."""
    if options.get("layout") not in (None, torch.strided) or options.get("pin_memory"):
        return NotImplemented
    torch._check(n >= 0, lambda: f"n must be greater or equal to 0, got {n}")
    torch._check(m >= 0, lambda: f"m must be greater or equal to 0, got {m}")
    rows = torch.arange(n, dtype=torch.int64, device=device)
    columns = torch.arange(m, dtype=torch.int64, device=device)
    return (rows.unsqueeze(-1) == columns).to(dtype or torch.get_default_dtype())


decomposition(aten.addcmul.default)(_multiply_and_add(torch.mul))
decomposition(aten.addcdiv.default)(_multiply_and_add(torch.div))


def _only_where(names: str, test: Callable[..., bool]) -> None:
    """torch's rule where test(arguments) holds; elsewhere eager computes with a kernel of its own,
    which rounds otherwise than the formula."""
    for packet in (getattr(aten, name) for name in names.split()):
        for op in (getattr(packet, name) for name in packet.overloads() if "out" not in name):
            if op in decomposition_table:
                OURS[op] = functools.partial(_tested, test, decomposition_table[op])


def _tested(test: Callable[..., bool], rule: Decomposition, *args: Any, **kwargs: Any) -> Any:
    return rule(*args, **kwargs) if test(*args, **kwargs) else NotImplemented


_only_where(  # not integer images; on a CPU not bfloat16, whose weights eager rounds
    "upsample_bicubic2d",
    lambda x, *args, **kwargs: (
        x.dtype in (torch.float32, torch.float64) or x.is_cuda and x.dtype in LOW_PRECISION
    ),
)
_only_where("multilabel_margin_loss_forward", lambda *args: False)  # takes -1 for a label
_only_where(  # eager rounds the number to float16, and takes 1e5 for an infinity
    "xlogy special_xlog1py",
    lambda *args: not any(isinstance(x, Tensor) and x.dtype == torch.float16 for x in args),
)
_only_where(  # eager's steps overflow in its own order
    "linspace logspace",
    lambda *args, dtype=None, **kwargs: (
        (dtype is None or dtype.is_floating_point and dtype not in LOW_PRECISION)
        and not any(type(end) is bool or type(end) is float and not abs(end) < 1e30 for end in args)
    ),
)


@decomposition(aten.bernoulli_.float)
def bernoulli(x: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Eager's draws, kept as booleans: a dropout mask costs one byte an element until backward."""
    if generator is not None:
        return NotImplemented
    return x.copy_(aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool, device=x.device), p))


@decomposition(aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """Attention's dropout, in the form that eager's own dropout has on the CPU.  On a GPU eager's
    is one kernel that draws in an order of its own."""
    if train is False or not 0 < p < 1 or x.is_cuda:
        return NotImplemented
    keep = torch.empty_like(x).bernoulli_(1 - p)
    return x * (keep / (1 - p)), keep != 0


@decomposition(aten.native_dropout_backward.default)
def native_dropout_backward(gradient: Tensor, keep: Tensor, scale: float) -> Any:
    """In eager's order: of an integer -8 that is dropped, -8 * False is 0, but -8 * 0.0 is -0.0."""
    return gradient * keep * scale


@decomposition(aten.nll_loss_backward.default)
def nll_loss_backward(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Any:
    """As a comparison with the class number instead of a scatter: it fuses with the softmax around
    it."""
    if x.dim() not in (1, 2):
        return NotImplemented
    classes = torch.arange(x.shape[-1], device=x.device)
    hit = (classes == target.unsqueeze(-1)) & (target != ignore_index).unsqueeze(-1)
    scale = -gradient / total_weight if reduction == 1 else -gradient
    if reduction == 0 and x.dim() == 2:
        scale = scale.unsqueeze(-1)
    if weight is not None:
        scale = scale * weight
    return torch.where(hit, scale, 0).to(x.dtype)


@decomposition(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Windows of one size are a mean or an average pool; others have a lowering."""
    rank = len(output_size)
    if all(n == 1 for n in output_size) and x.numel():
        return torch.mean(x, list(range(-rank, 0)), keepdim=True)
    if rank == 3 and x.dtype in LOW_PRECISION:  # eager's avg_pool3d does not take it
        return NotImplemented
    windows = [n // m if m and n % m == 0 else 0 for n, m in zip(x.shape[-rank:], output_size)]
    pool = aten.avg_pool2d if rank == 2 else aten.avg_pool3d
    return pool(x, windows) if all(windows) else NotImplemented


@decomposition(aten.index_reduce.default)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if not x.dim():
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.scatter_reduce(
        x, dim, index.reshape(shape).expand(source.shape), source, reduce, include_self=include_self
    )


@decomposition(aten.max.default, aten.min.default, aten.max.dim, aten.min.dim)
def extreme_of_something(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """No other form, but a question that fake tensors do not ask: is there an element?  Where the
    size is a symbol the answer is a guard."""
    sizes = [x.shape[dim]] if dim is not None and x.dim() else x.shape
    any(n == 0 for n in sizes)
    return NotImplemented


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    """As index_put, which takes negative positions, as this op does (index_copy does not)."""
    if not x.dim():
        return aten.index_fill(x.reshape(1), dim, index.reshape(-1), value).reshape(())
    if not isinstance(value, Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    return aten.index_put(x, [None] * (dim % x.dim()) + [index], value.to(x.dtype))


IDENTITY = {"sum": 0, "prod": 1, "mean": 0, "amax": -math.inf, "amin": math.inf}


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(
    x: Tensor, dim: int, index: Tensor, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """In terms of the plain kind, which has a lowering: x takes part, and the combination is sum,
    prod, amax or amin."""
    if x.dtype in (*LOW_PRECISION, torch.bool) or include_self and reduce != "mean":
        return NotImplemented
    identity = IDENTITY[reduce]
    if not x.dtype.is_floating_point and math.isinf(identity):
        identity = torch.iinfo(x.dtype).min if identity < 0 else torch.iinfo(x.dtype).max
    start = x if include_self else torch.scatter(x, dim, index, identity)
    if reduce != "mean":
        return aten.scatter_reduce(start, dim, index, source, reduce)
    ones = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = torch.scatter_add(ones, dim, index, torch.ones_like(source))
    return torch.div(
        torch.scatter_add(start, dim, index, source),
        torch.clamp(count, min=1),
        rounding_mode=None if x.dtype.is_floating_point else "floor",
    )


def adds_up_half(x: Tensor, source: Tensor) -> bool:
    """Are these sums of 16 bits to be added up in float32 and rounded once?  Eager rounds after
    each addition: a GPU's atomic additions of 16 bits are slow, and coarse, and so are eager's
    kernels on a CPU.  There the whole of x is converted, which few additions are not worth."""
    if x.dtype not in LOW_PRECISION:
        return False
    counts = (x.numel(), source.numel())
    are_many = all(isinstance(n, int) for n in counts) and 4 * counts[1] >= counts[0]
    return x.is_cuda or are_many


@decomposition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Any:
    if not adds_up_half(x, source):
        return NotImplemented
    return torch.index_add(x.float(), dim, index, source.float(), alpha=alpha).to(x.dtype)


@decomposition(aten.scatter_add.default)
def scatter_add(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
    if not adds_up_half(x, source):
        return NotImplemented
    return torch.scatter_add(x.float(), dim, index, source.float()).to(x.dtype)


@decomposition(aten.index_put.default)
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    if not accumulate or not adds_up_half(x, values):
        return NotImplemented
    return aten.index_put(x.float(), indices, values.float(), True).to(x.dtype)


@decomposition(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with_reduce(x: Tensor, dim: int, index: Tensor, source: Any, *, reduce: str) -> Any:
    if not isinstance(source, Tensor):
        source = torch.full(index.shape, source, dtype=x.dtype)
    return torch.scatter_reduce(x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@decomposition(aten._trilinear.default)
def trilinear(*args: Any) -> Tensor:
    """The product of three tensors, which get dimensions of size 1 first, summed over some."""
    tensors, expanded, summed = args[:3], args[3:6], list(args[6])
    a, b, c = (functools.reduce(torch.unsqueeze, dims, x) for x, dims in zip(tensors, expanded))
    product = upcast(a) * b * c
    return (torch.sum(product, summed) if summed else product).to(a.dtype)


@decomposition(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """As a write, which functionalization knows.  Where a size is a symbol, nothing says at which
    place of its memory the tensor begins."""
    is_dynamic = not all(type(n) is int for n in x.shape)
    if is_dynamic or x.storage_offset() or not x.is_contiguous():
        return NotImplemented
    x = x.clone()
    x.as_strided(size, stride, storage_offset).copy_(src)
    return x


# _foreach_add(xs, ys): ATen's own loop over the lists, seen op by op, so that an optimizer's step
# is fused.  (With the factors of addcmul
# as one tensor, that loop would read their values.)
for _name in torch._C._dispatch_get_all_op_names():
    _packet, _, _overload = _name.removeprefix("aten::").partition(".")
    _reads_values = _packet.startswith("_foreach_addc") and _overload == "Tensor"
    if _packet.startswith("_foreach_") and "out" not in _overload and not _reads_values:
        _op = getattr(getattr(aten, _packet), _overload or "default")
        OURS[_op] = functools.partial(_op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)


@decomposition(aten.pixel_unshuffle.default)
def pixel_unshuffle(x: Tensor, factor: int) -> Tensor:
    """Of nothing eager's kernel gives the shape of the input."""
    if 0 in x.shape:
        return x.clone(memory_format=torch.contiguous_format)
    return decomposition_table[aten.pixel_unshuffle.default](x, factor)


@decomposition(aten.take.default)
def take(x: Tensor, index: Tensor) -> Tensor:
    """(torch's own form asks for the value of an index without dimensions.)"""
    if same(index.numel(), 0):
        return x.new_empty(index.shape)
    return aten.index(x.reshape(-1), [index])

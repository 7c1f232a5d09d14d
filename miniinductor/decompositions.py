"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division, fused into one kernel

    >>> torch.allclose(softmax(x, -1, False), torch.softmax(x, -1))
    True

`OURS` are written here because their form decides what can fuse; the rest are torch's
(`torch._decomp`, a maintained maths library).  `table()` joins both, without the ops that have a
better lowering or library kernel. Mirrors torch/_inductor/decomposition.py (paper section 4.3).
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes, suggest_memory_format

from . import config, random
from .lowering.extern import EXTERN
from .lowering.registry import LOWERINGS
from .sizes.symbols import same

aten = torch.ops.aten
Decomposition = Callable[..., Any]  # gives NotImplemented where it has no other form
Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
OURS: dict[Any, Decomposition] = {}
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """
elu gelu leaky_relu hardtanh fmod dist addmv ldexp round linalg_vector_norm _log_softmax narrow_copy permute_copy view_copy unbind_copy
as_strided_copy upsample_nearest2d upsample_trilinear3d
""".split()
LOW_PRECISION = (torch.float16, torch.bfloat16)


@functools.cache
def core_aten() -> dict[Any, Decomposition]:
    """torch's table of core ATen decompositions; making it takes 0.05 s."""
    return dict(core_aten_decompositions().items())


def decomposition(*targets: Any) -> Callable[[Decomposition], Decomposition]:
    def register(function: Decomposition) -> Decomposition:
        for target in targets:
            OURS[target] = function
        return function

    return register


def upcast(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float32) if x.dtype in LOW_PRECISION else x


@decomposition(aten._softmax.default)
def softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    wide, result = upcast(x), torch.float32 if half_to_float else x.dtype
    if same(x.numel(), 0):  # there is no largest element
        return torch.empty_like(x, dtype=result)
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(result)


def _normalized(
    x: torch.Tensor, dims: Sequence[int], eps: float, statistics: Callable[..., Any] | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """((x - mean) / deviation, mean, variance, 1 / deviation) over `dims`."""
    wide = upcast(x)
    var_mean: Callable[..., Any] = statistics or torch.var_mean
    variance, mean = var_mean(wide, dims, correction=0, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    return (wide - mean) * rstd, mean, variance, rstd


def var_mean_by_channel(
    x: torch.Tensor, dims: Sequence[int], *, correction: int, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of [n, groups, channels, pixels] over the last two, from those of each channel: in
    channels-last memory the sums run along rows."""
    variance, mean = torch.var_mean(x, [3], correction=0, keepdim=True)
    between, center = torch.var_mean(mean, [2], correction=0, keepdim=True)
    return torch.mean(variance, [2], keepdim=True) + between, center


def _scaled(
    out: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    shape: Sequence[int] | None = None,
) -> torch.Tensor:
    """out * weight + bias, as far as they are given; shape: theirs beside `out`."""
    weight, bias = (t if t is None or shape is None else t.reshape(shape) for t in (weight, bias))
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


@decomposition(aten.native_layer_norm.default)
def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> Tensors:
    out, mean, _, rstd = _normalized(x, list(range(x.dim() - len(normalized_shape), x.dim())), eps)
    statistics = x.dtype if x.device.type == "cpu" else mean.dtype
    return _scaled(out, weight, bias).to(x.dtype), mean.to(statistics), rstd.to(statistics)


@decomposition(aten.native_group_norm.default)
def group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    n: int,
    c: int,
    hw: int,
    groups: int,
    eps: float,
) -> Any:
    if not x.is_contiguous(memory_format=suggest_memory_format(x)):
        return NotImplemented  # eager refuses it
    by_channel = x.dim() > 2 and c > groups and same(x.stride(1), 1) and not x.is_contiguous()
    out, mean, _, rstd = _normalized(
        x.reshape(n, groups, c // groups, hw),
        [2, 3],
        eps,
        var_mean_by_channel if by_channel else None,
    )
    out = _scaled(out.reshape(x.shape), weight, bias, [1, c] + [1] * (x.dim() - 2))
    return out.to(x.dtype), mean.reshape(n, groups).to(x.dtype), rstd.reshape(n, groups).to(x.dtype)


@decomposition(aten.native_batch_norm.default, aten._native_batch_norm_legit.default)
def batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensors:
    """Training updates the running statistics in place; functionalization turns that into outputs.
    Results: normalised x, mean and 1 / deviation of the batch, which have the dtype of the
    parameters."""
    shape = [1, -1] + [1] * (x.dim() - 2)
    if not training and running_mean is not None:
        out = (upcast(x) - running_mean.reshape(shape)) * torch.rsqrt(running_var + eps).reshape(
            shape
        )
        return _scaled(out, weight, bias, shape).to(x.dtype), x.new_empty((0,)), x.new_empty((0,))
    kept = next((t.dtype for t in (weight, running_mean) if t is not None), x.dtype)
    out, mean, variance, rstd = _normalized(x, [0, *range(2, x.dim())], eps)
    out = _scaled(out, weight, bias, shape).to(x.dtype)
    mean, variance, rstd = (
        mean.reshape(-1).to(kept),
        variance.reshape(-1),
        rstd.reshape(-1).to(kept),
    )
    if running_mean is not None:
        count = x.numel() // x.shape[1]
        running_mean.copy_(momentum * mean + (1 - momentum) * running_mean)
        running_var.copy_(
            momentum * variance * (count / (count - 1)) + (1 - momentum) * running_var
        )
    return out, mean, rstd


def _multiply_and_add(function: Decomposition) -> Decomposition:
    """x + value * a (* or /) b, rounded once to the result's dtype, without torch's multiplication
    by 1."""

    def rule(
        x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, value: float = 1
    ) -> torch.Tensor:
        compute, result = elementwise_dtypes(x, a, b, type_promotion_kind=Promotion.DEFAULT)
        x, a, b = x.to(compute), a.to(compute), b.to(compute)
        return (x + function(a if value == 1 else value * a, b)).to(result)

    return rule


decomposition(aten.addcmul.default)(_multiply_and_add(torch.mul))
decomposition(aten.addcdiv.default)(_multiply_and_add(torch.div))


def _only_where(ops: Iterable[Any], test: Callable[..., bool]) -> None:
    """torch's rule where test(arguments) holds; elsewhere eager computes with a kernel of its own,
    which rounds otherwise than the formula."""
    for op in ops:
        rule = decomposition_table.get(op) or core_aten()[op]
        OURS[op] = lambda *args, rule=rule, **kwargs: (
            rule(*args, **kwargs) if test(*args, **kwargs) else NotImplemented
        )


_only_where(
    (
        aten.upsample_bilinear2d.default,
        aten.upsample_bilinear2d.vec,
        aten.upsample_bicubic2d.default,
        aten.upsample_bicubic2d.vec,
        aten.upsample_linear1d.default,
        aten.upsample_trilinear3d.default,
    ),
    lambda x, *args, **kwargs: x.dtype in (torch.float32, torch.float64),
)  # not integer images, bfloat16
_only_where(
    [
        getattr(packet, name)
        for packet in (aten.linspace, aten.logspace)
        for name in packet.overloads()
        if "out" not in name
    ],
    lambda *args, dtype=None, **kwargs: (
        dtype is None or dtype.is_floating_point and dtype not in LOW_PRECISION
    ),
)


@decomposition(aten.bernoulli_.float)
def bernoulli(x: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Eager's draws, kept as booleans: a dropout mask costs one byte an element until backward."""
    if generator is not None:
        return NotImplemented
    return x.copy_(aten.bernoulli.p(torch.empty(x.shape, dtype=torch.bool, device=x.device), p))


@decomposition(aten.native_dropout.default)
def native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Attention's dropout, in the form that eager's own dropout has on the CPU.  On a GPU eager's
    is one kernel that draws in an order of its own."""
    if train is False or not 0 < p < 1 or x.is_cuda:
        return NotImplemented
    keep = torch.empty_like(x).bernoulli_(1 - p)
    return x * (keep / (1 - p)), keep != 0


@decomposition(aten.nll_loss_backward.default)
def nll_loss_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: torch.Tensor,
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
def adaptive_avg_pool(x: torch.Tensor, output_size: Sequence[int]) -> Any:
    """Windows of one size are a mean or an average pool; others have a lowering."""
    rank = len(output_size)
    if all(n == 1 for n in output_size) and x.numel():
        return torch.mean(x, list(range(-rank, 0)), keepdim=True)
    windows = [n // m if m and n % m == 0 else 0 for n, m in zip(x.shape[-rank:], output_size)]
    return (
        (aten.avg_pool2d if rank == 2 else aten.avg_pool3d)(x, windows)
        if all(windows)
        else NotImplemented
    )


@decomposition(aten.index_reduce.default)
def index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: Any,
    reduce: str,
    *,
    include_self: bool = True,
) -> Any:
    if not x.dim():
        return NotImplemented
    shape = [1] * x.dim()
    shape[dim] = -1
    return torch.scatter_reduce(
        x, dim, index.reshape(shape).expand(source.shape), source, reduce, include_self=include_self
    )


@decomposition(aten.max.default, aten.min.default, aten.max.dim, aten.min.dim)
def extreme_of_something(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """No other form, but a question that fake tensors do not ask: is there an element?  Where the
    size is a symbol the answer is a guard."""
    sizes = [x.shape[dim]] if dim is not None and x.dim() else x.shape
    any(n == 0 for n in sizes)
    return NotImplemented


@decomposition(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(x: torch.Tensor, dim: int, index: torch.Tensor, value: Any) -> Any:
    """As index_put, which takes negative positions, as this op does (index_copy does not)."""
    if not x.dim():
        return NotImplemented
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=x.dtype, device=x.device)
    return aten.index_put(x, [None] * (dim % x.dim()) + [index], value.to(x.dtype))


IDENTITY = {"sum": 0, "prod": 1, "mean": 0, "amax": -math.inf, "amin": math.inf}


@decomposition(aten.scatter_reduce.two)
def scatter_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: Any,
    reduce: str,
    *,
    include_self: bool = True,
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


@decomposition(aten.scatter.reduce, aten.scatter.value_reduce)
def scatter_with_reduce(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: Any, *, reduce: str
) -> Any:
    source = (
        source
        if isinstance(source, torch.Tensor)
        else torch.full(index.shape, source, dtype=x.dtype)
    )
    return torch.scatter_reduce(x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


OURS.update(
    {
        aten._native_batch_norm_legit_no_training.default: lambda x, weight, bias, mean, var, *how: (
            batch_norm(x, weight, bias, mean, var, False, *how)
        ),
        aten._native_batch_norm_legit.no_stats: lambda x, weight, bias, *how: batch_norm(
            x, weight, bias, None, None, *how
        ),
        aten._batch_norm_with_update.default: lambda x, weight, bias, mean, var, momentum, eps: (
            *batch_norm(x, weight, bias, mean, var, True, momentum, eps),
            x.new_empty((0,), dtype=torch.uint8),
        ),
        aten.rrelu_with_noise.default: lambda x, noise, lower=0.125, upper=1 / 3, training=False, generator=None: (
            NotImplemented if training else torch.nn.functional.leaky_relu(x, (lower + upper) / 2)
        ),
        aten.take.default: lambda x, index: aten.index(x.reshape(-1), [index]),
    }
)


@decomposition(aten._trilinear.default)
def trilinear(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    for dims, place in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for dim in dims:
            a, b, c = (t.unsqueeze(dim) if k == place else t for k, t in enumerate((a, b, c)))
    product = upcast(a) * b * c
    if sumdim:
        product = torch.sum(product, list(sumdim))
    return product.to(a.dtype)


@decomposition(aten.as_strided_scatter.default)
def as_strided_scatter(
    x: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Any:
    """As a write, which functionalization knows."""
    if x.storage_offset() or not x.is_contiguous():
        return NotImplemented
    x = x.clone()
    x.as_strided(size, stride, storage_offset).copy_(src)
    return x


# _foreach_add(xs, ys): ATen's own loop over the lists, seen op by op, so that an optimizer's step
# is fused.  (With the factors of addcmul
# as one tensor, that loop would read their values.)
for _name in torch._C._dispatch_get_all_op_names():
    _packet, _, _overload = _name.removeprefix("aten::").partition(".")
    if (
        _packet.startswith("_foreach_")
        and "out" not in _overload
        and not (_packet.startswith("_foreach_addc") and _overload == "Tensor")
    ):
        _op = getattr(getattr(aten, _packet), _overload or "default")
        OURS[_op] = functools.partial(_op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)


def table() -> dict[Any, Decomposition]:
    """op -> function, for the tracer.  What is put into OURS later counts from the next compilation
    on."""
    return _table() | OURS | ({} if config.fallback_random else random.RULES)


@functools.cache
def _table() -> dict[Any, Decomposition]:
    """The part that comes from torch."""
    also = [
        getattr(packet, overload)
        for packet in (getattr(aten, name) for name in ALSO_FROM_TORCH)
        for overload in packet.overloads()
    ]
    found: dict[Any, Any] = core_aten() | {
        op: decomposition_table[op] for op in also if op in decomposition_table
    }
    return {
        op: function
        for op, function in found.items()
        if isinstance(op, torch._ops.OpOverload)
        and op not in LOWERINGS
        and op not in EXTERN
        and not op._schema.is_mutable
    }

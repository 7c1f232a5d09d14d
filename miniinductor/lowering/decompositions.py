"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division,
                                                                fused into one kernel

    >>> torch.allclose(softmax(x, -1, False), torch.softmax(x, -1))
    True

`OURS` are written by hand because their form decides what can fuse: here softmax, in `lowerings/`
others.  The rest are torch's (`torch._decomp`, a maintained maths library).
`table()` joins both, without the ops that have a better lowering or library kernel.

Mirrors torch/_inductor/decomposition.py (paper section 4.3).

Decompositions of pointwise ops, losses, dropout and lists of tensors.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    addcmul(x, a, b) -> x + value * a * b       rounded once
    _foreach_add(xs, ys) -> [x + y ...]         so that an optimizer's step is fused

Mirrors torch/_inductor/decomposition.py.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from ..sizes.symbols import same
from .chunks import maximum_and_sum
from .extern import EXTERN
from .registry import LOWERINGS

aten = torch.ops.aten
Decomposition = Callable[..., Any]  # gives NotImplemented where it has no other form
OURS: dict[Any, Decomposition] = {}
FUSED_RANDOM: dict[Any, Decomposition] = {}  # config.fallback_random=False: kernels of ours draw
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """gelu _log_softmax elu leaky_relu hardtanh fmod dist addmv ldexp round
linalg_vector_norm narrow_copy permute_copy view_copy unbind_copy as_strided_copy upsample_nearest2d
""".split()
# Rare ops that are eager kernels: torch's forms of these look at no position, where the kernels
# raise for a wrong one, or differ from them in corners.
KERNELS = """frac multilabel_margin_loss_forward special_xlog1py logspace index_fill take im2col
pixel_unshuffle max_unpool2d max_unpool3d std_mean upsample_trilinear3d
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""".split()
LOW_PRECISION = (torch.float16, torch.bfloat16)


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
    if parts := maximum_and_sum(wide, dim):
        return ((wide - parts[0]).exp() / parts[1]).to(result)
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(result)


def table() -> dict[Any, Decomposition]:
    """op -> function, for the tracer.  (Made anew for each compilation: OURS may have grown.)"""
    return table_of_torch() | OURS


@functools.cache
def table_of_torch() -> dict[Any, Decomposition]:
    """What is taken from torch: pure ops that have neither a lowering nor a library kernel.  (It
    takes 0.05 s.)"""
    packets = [getattr(aten, name) for name in ALSO_FROM_TORCH]
    also = [getattr(packet, overload) for packet in packets for overload in packet.overloads()]
    found: dict[Any, Any] = dict(core_aten_decompositions().items())
    found |= {op: decomposition_table[op] for op in also if op in decomposition_table}
    kept = {*LOWERINGS, *EXTERN}
    return {op: rule for op, rule in found.items() if op not in kept and is_wanted(op)}


def is_wanted(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return False
    return op.overloadpacket.__name__ not in KERNELS


aten = torch.ops.aten
PLAIN = {torch.float32, torch.float64}


def _multiply_and_add(function: Decomposition) -> Decomposition:
    """x + value * a (* or /) b, rounded once to the result's dtype, without torch's multiplication
    by 1."""

    def rule(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
        compute, result = elementwise_dtypes(x, a, b, type_promotion_kind=Promotion.DEFAULT)
        x, a, b = x.to(compute), a.to(compute), b.to(compute)
        return (x + function(a if value == 1 else value * a, b)).to(result)

    return rule


@decomposition(aten.eye.default, aten.eye.m)
def eye(n: int, m: int | None = None, *, dtype: Any = None, device: Any = None, **how: Any) -> Any:
    """torch's rule counts in uint16 from 256 on, for which eager's `arange` has no kernel."""
    if how.get("layout") not in (None, torch.strided) or how.get("pin_memory"):
        return NotImplemented
    rows, columns = (
        torch.arange(n, device=device),
        torch.arange(n if m is None else m, device=device),
    )
    return (rows.unsqueeze(-1) == columns).to(dtype or torch.get_default_dtype())


decomposition(aten.addcmul.default)(_multiply_and_add(torch.mul))
decomposition(aten.addcdiv.default)(_multiply_and_add(torch.div))


def _of_plain_floats(rule: Decomposition) -> Decomposition:
    """torch's rule for float32 and float64, and numbers of middling size; elsewhere eager rounds
    and overflows otherwise than the formula."""

    @functools.wraps(rule)
    def checked(*args: Any, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
        dtypes = [x.dtype for x in args if isinstance(x, Tensor)]
        if dtype is not None:
            dtypes.append(dtype)
            kwargs["dtype"] = dtype
        is_large = any(isinstance(x, float) and not abs(x) < 1e30 for x in args)
        if is_large or bool in map(type, args[:2]) or not PLAIN.issuperset(dtypes):
            return NotImplemented
        return rule(*args, **kwargs)

    return checked


for _packet in (aten.upsample_bicubic2d, aten.xlogy, aten.linspace):
    for _op in [getattr(_packet, name) for name in _packet.overloads()]:
        if _op in decomposition_table and not _op._schema.is_mutable:
            OURS[_op] = _of_plain_floats(decomposition_table[_op])


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


@decomposition(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool(x: Tensor, output_size: Sequence[int]) -> Any:
    """Windows of one size are a mean or an average pool; others are an eager kernel."""
    if all(n == 1 for n in output_size) and x.numel():
        return torch.mean(x, [-2, -1], keepdim=True)
    windows = [n // m if m and n % m == 0 else 0 for n, m in zip(x.shape[-2:], output_size)]
    return aten.avg_pool2d(x, windows) if all(windows) else NotImplemented


@decomposition(aten.max.default, aten.min.default, aten.max.dim, aten.min.dim)
def extreme_of_something(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """No other form, but a question that fake tensors do not ask: is there an element?  Where the
    size is a symbol the answer is a guard."""
    sizes = [x.shape[dim]] if dim is not None and x.dim() else x.shape
    any(n == 0 for n in sizes)
    return NotImplemented


def adds_up_half(x: Tensor, source: Tensor) -> bool:
    """Are these sums of 16 bits to be added up in float32 and rounded once?  Eager rounds after
    each addition: a GPU's atomic additions of 16 bits are slow, and coarse, and so are eager's
    kernels on a CPU.  There the whole of x is converted, which few additions are not worth."""
    if x.dtype not in LOW_PRECISION:
        return False
    counts = (x.numel(), source.numel())
    are_many = all(isinstance(n, int) for n in counts) and 4 * counts[1] >= counts[0]
    return x.is_cuda or are_many


@decomposition(aten.index_put.default)
def index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Any:
    if not accumulate or not adds_up_half(x, values):
        return NotImplemented
    return aten.index_put(x.float(), indices, values.float(), True).to(x.dtype)


# _foreach_add(xs, ys): ATen's own loop over the lists, seen op by op, so that an optimizer's step
# is fused.  (With the factors of addcmul
# as one tensor, that loop would read their values.)
for _name in torch._C._dispatch_get_all_op_names():
    _family, _, _overload = _name.removeprefix("aten::").partition(".")
    _reads_values = _family.startswith("_foreach_addc") and _overload == "Tensor"
    if _family.startswith("_foreach_") and "out" not in _overload and not _reads_values:
        _op = getattr(getattr(aten, _family), _overload or "default")
        OURS[_op] = functools.partial(_op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)

"""Decompositions: ATen ops in terms of simpler ATen ops, applied while tracing.

In:   an op's arguments (fake tensors).  Out: the same value from ops that have a lowering.

    softmax(x) -> m = amax(x); e = exp(x - m); e / sum(e)       two reductions and a division,
                                                                fused into one kernel
    addcmul(x, a, b) -> x + value * a * b                       rounded once
    _foreach_add(xs, ys) -> [x + y ...]                         an optimizer's step is fused

    >>> torch.allclose(softmax(x, -1, False), torch.softmax(x, -1))
    True

`OURS` are written by hand because their form decides what can fuse (here of softmax, dropout,
losses and lists; in normalization.py and images.py of others), or because eager rounds in another
way.  The rest are torch's (`torch._decomp`, a maintained maths library).  `table()` joins both,
without the ops that have a better lowering or library kernel.

Attention that a program writes by hand (softmax(scale * q @ k) @ v in 16 bits, on a GPU) becomes
the library's attention kernel.

A call that torch's Python rules would take apart otherwise than eager computes it stays whole: the
tracer sees the ATen op itself.  Or it raises CannotTrace: it runs by itself, between compiled
pieces.

    F.dropout(x, 0.5)       # aten.native_dropout: Python's rule draws other numbers than eager

Mirrors torch/_inductor/decomposition.py (paper section 4.3).
"""

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree
from torch import Tensor
from torch._decomp import _core_aten_decompositions_post_autograd as core_decompositions
from torch._decomp import decomposition_table
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Promotion
from torch._prims_common import elementwise_dtypes

from .. import config
from ..autograd.joint import call_rule
from ..errors import CannotTrace
from ..ir.ops import NARROW, compute_dtype
from ..sizes.symbols import same
from .extern import ATTENTION, EXTERN
from .registry import LOWERINGS, WIDE, aten, overloads, register

Decomposition = Callable[..., Any]  # gives NotImplemented where it has no other form
OURS: dict[Any, Decomposition] = {}
# in torch's table, but not in its core set: that set keeps them whole for other back ends
ALSO_FROM_TORCH = """gelu _log_softmax elu leaky_relu hardtanh fmod dist addmv ldexp round
linalg_vector_norm narrow_copy permute_copy view_copy unbind_copy as_strided_copy
_adaptive_avg_pool2d upsample_nearest1d upsample_nearest3d max_pool3d_with_indices
""".split()
# Rare ops that stay eager kernels: torch's decompositions of them do not raise for a position out
# of range, or differ from the kernels in corner cases.
KERNELS = """multilabel_margin_loss_forward max_unpool2d max_unpool3d index_fill take im2col
_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d""".split()


def decomposition(*targets: Any) -> Callable[[Decomposition], Decomposition]:
    def decorate(rule: Decomposition) -> Decomposition:
        for target in targets:
            register(OURS, target, rule)
        return rule

    return decorate


def upcast(x: Tensor) -> Tensor:
    return x.to(compute_dtype(x.dtype))


@decomposition(aten._softmax.default)
def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    wide, result = upcast(x), torch.float32 if half_to_float else x.dtype
    if same(x.numel(), 0):  # there is no largest element
        return torch.empty_like(x, dtype=result)
    e = torch.exp(wide - torch.amax(wide, dim, keepdim=True))
    return (e / torch.sum(e, dim, keepdim=True)).to(result)


def table() -> dict[Any, Decomposition]:
    """op -> function, for the tracer.  (Made anew for each compilation: OURS may have grown.)"""
    return table_of_torch() | OURS


@functools.cache
def table_of_torch() -> dict[Any, Decomposition]:
    """torch's decompositions of pure ops that have neither a lowering nor a library kernel.

    (The public `core_aten_decompositions` imports torch.export for the composite ops, which the
    tracer decomposes itself.)"""
    also = [op for name in ALSO_FROM_TORCH for op in overloads(getattr(aten, name))]
    found: dict[Any, Any] = core_decompositions()
    found |= {op: decomposition_table[op] for op in also if op in decomposition_table}
    kept = {*LOWERINGS, *EXTERN}
    return {op: rule for op, rule in found.items() if op not in kept and is_wanted(op)}


def is_wanted(op: Any) -> bool:
    if not isinstance(op, torch._ops.OpOverload) or op._schema.is_mutable:
        return False
    return op.overloadpacket.__name__ not in KERNELS


def _multiply_and_add(function: Decomposition) -> Decomposition:
    """x + value * a (* or /) b, rounded once to the result's dtype, without torch's multiplication
    by 1."""

    def rule(x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
        compute, result = elementwise_dtypes(x, a, b, type_promotion_kind=Promotion.DEFAULT)
        x, a, b = x.to(compute), a.to(compute), b.to(compute)
        return (x + function(a if value == 1 else value * a, b)).to(result)

    return rule


decomposition(aten.addcmul.default)(_multiply_and_add(torch.mul))
decomposition(aten.addcdiv.default)(_multiply_and_add(torch.div))


def _of_plain_floats(rule: Decomposition, known: Sequence = WIDE) -> Decomposition:
    """torch's rule for the `known` dtypes, float32 and float64, and numbers of middling size;
    elsewhere eager rounds and overflows otherwise than the formula."""

    @functools.wraps(rule)
    def checked(*args: Any, **kwargs: Any) -> Any:
        dtypes = {x.dtype for x in args if isinstance(x, Tensor)} | {kwargs.get("dtype")}
        is_large = any(isinstance(x, float) and not abs(x) < 1e30 for x in args)
        if is_large or bool in map(type, args[:2]) or not dtypes <= {*known, None}:
            return NotImplemented
        return rule(*args, **kwargs)

    return checked


def _use_torchs_rules(names: str, known: Sequence) -> None:
    """Register torch's rules of these ops for the dtypes `known`."""
    for op in (op for name in names.split() for op in overloads(getattr(aten, name))):
        if op in decomposition_table and not op._schema.is_mutable:
            register(OURS, op, _of_plain_floats(decomposition_table[op], known))


_use_torchs_rules("upsample_bicubic2d linspace logspace", WIDE)
_use_torchs_rules("xlogy special_xlog1py", (*WIDE, *NARROW))  # 16 bits are rounded once


def extreme(is_wanted: Callable, a: Tensor, b: Tensor) -> Tensor:
    """The other one, where one is NaN.  (Of zeros in bfloat16 eager takes the second.)"""
    return torch.where(is_wanted(a, b) | b.isnan(), a, b)


decomposition(aten.fmax.default)(_of_plain_floats(functools.partial(extreme, torch.ge)))
decomposition(aten.fmin.default)(_of_plain_floats(functools.partial(extreme, torch.le)))


FEW = 64  # of so few elements the call of an eager kernel costs more than its arithmetic


@decomposition(aten.dot.default, aten.mv.default)
def short_product(a: Tensor, b: Tensor) -> Any:
    """Of few elements, as a sum that is fused."""
    count = a.numel()
    is_short = type(count) is int and count <= FEW and a.dtype in WIDE
    return (a * b).sum(-1) if is_short else NotImplemented


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
    if train is False or not 0 < p < 1 or x.is_cuda and config.fallback_random:
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


@decomposition(aten.constant_pad_nd.default)
def constant_pad(x: Tensor, pad: Sequence[int], value: float = 0) -> Any:
    """pad: elements before and behind x, of the last dimension first."""
    shape = list(x.shape)
    for k, n in enumerate(pad):
        dim = -1 - k // 2
        shape[dim] += n
        if n < 0:
            x = x.narrow(dim, 0 if k % 2 else -n, x.shape[dim] + n)
    inside = out = x.new_full(shape, value)
    for k, before in enumerate(pad[::2]):
        inside = inside.narrow(-1 - k, max(before, 0), x.shape[-1 - k])
    inside.copy_(x)
    return out


@decomposition(aten.max.default, aten.min.default, aten.max.dim, aten.min.dim)
def extreme_of_something(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """No other form, but a question that fake tensors do not ask: is there an element?  Where the
    size is a symbol the answer is a guard."""
    sizes = [x.shape[dim]] if dim is not None and x.dim() else x.shape
    any(n == 0 for n in sizes)
    return NotImplemented


# _foreach_add(xs, ys): ATen's own loop over the lists, seen op by op, so that an optimizer's step
# is fused.  (With the factors of addcmul as one tensor, that loop would read their values.)
for _name in torch._C._dispatch_get_all_op_names():
    _family, _, _overload = _name.removeprefix("aten::").partition(".")
    _reads_values = _family.startswith("_foreach_addc") and _overload == "Tensor"
    if _family.startswith("_foreach_") and "out" not in _overload and not _reads_values:
        _op = getattr(getattr(aten, _family), _overload or "default")
        OURS[_op] = functools.partial(_op._op_dk, torch.DispatchKey.CompositeExplicitAutograd)


# --- calls that torch's Python rules take apart otherwise than eager computes them ----------------
DROPOUT = "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout".split()
# Python's rules for these neither ask for the dtype nor look at the targets, as eager's kernels do
LOOKS_CLOSER = "hardshrink softshrink multi_margin_loss multilabel_margin_loss".split()
HOMES = (torch, F, torch._C._nn, torch._VF, torch.ops.aten, torch.linalg)


def named(*names: str) -> set[Any]:
    """All functions and methods of these names."""
    found = {getattr(home, name) for home in HOMES for name in names if hasattr(home, name)}
    return found | set(names)


@call_rule(*named(*DROPOUT, *LOOKS_CLOSER))
def whole(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    with torch._C._DisablePythonDispatcher():
        return interpreter.plain_call(target, args, kwargs)


@call_rule(getattr)
def data(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """`x.data` is remade as itself, with a version of its own: that of `x.detach()` is x's."""
    out = interpreter.plain_call(target, args, kwargs)
    if args[1] == "data":
        interpreter.tracer.share(out, args[0], getattr, args[1:])
    return out


@call_rule(F.scaled_dot_product_attention)
def with_dense_mask(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """On a GPU, with a mask that is expanded along its rows copied: for such a mask the library has
    no fused kernel, but two products and a softmax over all scores.  A call that drops elements
    stays as it is: the fused kernel drops other ones.  # PyTorch: keeps the mask"""
    mask = kwargs.get("attn_mask")
    if mask is not None and mask.is_cuda and mask.dim() and mask.stride(-1) != 1:
        if not kwargs.get("dropout_p"):
            kwargs = {**kwargs, "attn_mask": mask.contiguous()}
    return interpreter.plain_call(target, args, kwargs)


class Scores(NamedTuple):
    """What a tensor is: scale * q @ k, or the softmax of that along rows."""

    q: Tensor
    k: Tensor
    writes: int  # the tracer's, when they were multiplied
    scale: float = 1.0
    is_softmax: bool = False


# the library's kernels that say what the exponentials of a row add up to -> arguments for that
KERNELS_OF_ROWS = {
    aten._scaled_dot_product_flash_attention.default: (),
    aten._scaled_dot_product_cudnn_attention.default: (None, True),
}
SCALED, CASTS = {operator.mul, operator.truediv}, {"float", "to"}
PRODUCTS, SOFTMAX = {operator.matmul, *named("matmul")}, named("softmax")


@call_rule(*PRODUCTS, *SCALED, *SOFTMAX, *CASTS)
def attention_by_hand(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """Replaces softmax(scale * q @ k) @ v by the library's attention kernel, if it has one."""
    out = interpreter.plain_call(target, args, kwargs)
    x, *others = *args, *kwargs.values()
    _, scores = interpreter.scores.get(id(x), (None, None))
    if target in PRODUCTS and out.dtype in NARROW:  # to which autocast may have cast both
        new = Scores(x.to(out.dtype), others[0].to(out.dtype), interpreter.tracer.writes)
        attention = fused(interpreter.tracer, scores, new) if scores else None
        if attention is not None:
            return attention
    elif scores is None or scores.is_softmax and target not in CASTS:
        return out
    elif target in SOFTMAX and others[:1] in ([-1], [x.dim() - 1]):
        new = scores._replace(is_softmax=True)
    elif target in SCALED and type(others[0]) in (int, float):
        new = scores._replace(scale=target(scores.scale, others[0]))
    elif target in CASTS and out.dtype in (torch.float32, *NARROW):
        new = scores
    else:
        return out
    interpreter.scores[id(out)] = out, new
    return out


def fused(tracer: Any, scores: Scores, product: Scores) -> Tensor | None:
    """softmax(scores) @ values by the kernel that the library chooses; None where that is not one
    of FlashAttention's kind, or a tensor was written since.  product: of softmax and values.

    NaN where all scores of a row are -inf, as softmax has it: the library's kernels, cuDNN's too,
    have 0."""
    is_late = scores.writes < product.writes or scores.q.dtype != product.k.dtype
    is_flat = {t.dim() for t in (scores.q, scores.k, product.k)} != {4}
    if is_late or is_flat or not scores.is_softmax:
        return None
    q, k, v, scale = scores.q, scores.k.mT, product.k, scores.scale
    is_aligned = all(n % 8 == 0 for t in (q, k, v) for n in (t.shape[-1], *t.stride()[:-1]))
    if not (is_aligned and 0 < scale < math.inf):
        return None
    chosen = tracer.node_of(F.scaled_dot_product_attention(q, k, v, scale=scale)).args[0]
    if chosen.target in ATTENTION:
        for node in [*chosen.users, chosen]:  # it would stay, since it may drop elements by chance
            tracer.graph.erase_node(node)
    if chosen.target not in KERNELS_OF_ROWS:
        return None
    out, logs, *_ = chosen.target(q, k, v, *KERNELS_OF_ROWS[chosen.target], scale=scale)
    return out + (logs * 0).view(*out.shape[:3], 1).to(out.dtype)  # inf * 0 is NaN


# eager's gradients of these look at values: a loss may not depend on the phase of a complex vector
@call_rule(*named("eig", "eigh", "svd", "linalg_eig", "linalg_eigh"))
def complex_vectors(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """Autograd leaves the look out where tensors are fake, and the graph would not look, either."""
    out = interpreter.plain_call(target, args, kwargs)
    if any(made.is_complex() and made.requires_grad for made in out):
        raise CannotTrace("eager's gradient of complex vectors looks at values")
    return out


@call_rule(F.one_hot, torch._C._nn.one_hot, torch.ops.aten.one_hot, torch.ops.aten.one_hot.default)
def one_hot(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Classes out of range raise, as the kernel in C++ does where there are data; torch's Python
    rule, which answers for symbolic sizes, takes other dtypes than eager does, and looks at the
    classes since 2.12."""
    classes = pytree.tree_leaves((args, kwargs))[0]
    looks = hasattr(torch._decomp.decompositions, "one_hot")
    if not looks or not isinstance(classes, torch.Tensor) or classes.dtype is not torch.int64:
        raise CannotTrace("eager may refuse the classes of one_hot")
    # eager writes ones into a new tensor, which lies row by row
    return interpreter.plain_call(target, args, kwargs).contiguous()


@call_rule(*named("quantile", "nanquantile"))
def quantile(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """On a CPU eager looks whether each of several quantiles lies in [0, 1]."""
    q = args[1] if len(args) > 1 else kwargs.get("q")
    if isinstance(q, torch.Tensor):
        raise CannotTrace("eager may refuse a quantile")
    return interpreter.plain_call(target, args, kwargs)


@call_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def recurrent(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's rules take one step of time after another, which is hundreds of kernels."""
    raise CannotTrace("a recurrent network is the library's kernel")

"""Calls that torch's Python rules take apart otherwise than eager computes them: they stay whole;
and attention, whose mask becomes memory that fused kernels read.

In:  a call of the captured graph: of dropout, of a function that looks at dtypes or targets, of one
      that makes an image in another size.
Out:  the same call, of which the tracer sees the ATen op itself; or CannotTrace: the call runs by
      itself, between compiled pieces.

    F.dropout(x, 0.5)       # aten.native_dropout: Python's rule draws other numbers than eager
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
import torch.utils._pytree as pytree

from ..autograd.joint import call_rule
from ..errors import CannotTrace
from ..sizes.symbols import is_symbolic
from .images import bilinear

DROPOUT = {
    F.dropout,
    torch.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
# Python's rules for these neither ask for the dtype nor look at the targets, as eager's kernels do
LOOKS_CLOSER = ("hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss")
HOMES = (torch, F, torch._C._nn, torch._VF, torch.ops.aten, torch.linalg)


def named(*names: str) -> set[Any]:
    """All functions and methods of these names."""
    found = {getattr(home, name) for home in HOMES for name in names if hasattr(home, name)}
    return found | set(names)


def plain(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """The call as torch's own rules take it apart."""
    run = interpreter.plain_method if isinstance(target, str) else interpreter.plain_call
    return run(target, args, kwargs)


@call_rule(*DROPOUT, *named(*LOOKS_CLOSER))
def whole(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    with torch._C._DisablePythonDispatcher():
        return plain(interpreter, target, args, kwargs)


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


# torch's C++ code takes another way for fake tensors than for real ones.  (Of all operators that
# are tested so by OpInfos; with indices both ways are one.)
@call_rule(F.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d.default)
def pooled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Eager's kernel takes no integers; what fake tensors see in its place does."""
    out = interpreter.plain_call(target, args, kwargs)
    if isinstance(out, torch.Tensor) and not out.is_floating_point():
        raise CannotTrace(f"eager may refuse the largest of {out.dtype}")
    return out


@call_rule(F.interpolate, F.upsample, F.upsample_nearest, F.upsample_bilinear, F.grid_sample)
def resampled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's C++ code in front of the kernels computes sizes of numbers alone; for symbols there
    are Python's rules, which compute infinities in another way where neighbours are mixed."""
    values = [*args, *kwargs.values()]
    if not any(isinstance(v, torch.Tensor) and is_symbolic(v) for v in values):
        return whole(interpreter, target, args, kwargs)
    if target in (F.interpolate, F.upsample):
        out = by_sizes(*args, **kwargs)
        if out is not NotImplemented:
            return out
        if "nearest" in values or not any(isinstance(value, str) for value in values):
            return interpreter.plain_call(target, args, kwargs)
    raise CannotTrace("an image is resampled whose sizes are symbols, and pixels are mixed")


def by_sizes(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    *more: Any,
    **named: Any,
) -> Any:
    """Bilinear resampling; NotImplemented for what else F.interpolate does."""
    if mode != "bilinear" or input.dim() != 4 or any(more) or any(named.values()):
        return NotImplemented
    each = scale_factor if size is None else size
    each = list(each) if isinstance(each, (list, tuple)) else [each] * 2
    if size is not None:
        return bilinear(input, each, bool(align_corners))
    sizes = [math.trunc(n * float(scale)) for n, scale in zip(input.shape[2:], each)]
    return bilinear(input, sizes, bool(align_corners), *map(float, each))


# eager's gradients of these look at values: a loss may not depend on the phase of a complex vector
@call_rule(*named("eig", "eigh", "svd", "linalg_eig", "linalg_eigh"))
def complex_vectors(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """Autograd leaves the look out where tensors are fake, and the graph would not look, either."""
    out = plain(interpreter, target, args, kwargs)
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
    return plain(interpreter, target, args, kwargs)


@call_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def recurrent(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's rules take one step of time after another, which is hundreds of kernels."""
    raise CannotTrace("a recurrent network is the library's kernel")

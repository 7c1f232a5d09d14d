"""Calls that torch's Python rules take apart otherwise than eager computes them: they stay whole.

In:  a call of the captured graph: of dropout, of a function that looks at dtypes or targets, of one
      that makes an image in another size.
Out:  the same call, of which the tracer sees the ATen op itself.

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
from ..sizes.symbols import hint, is_symbolic, same
from .interpolation import bilinear, linear

DROPOUT = {
    F.dropout,
    torch.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
}
LINEAR = ("linear", "bilinear", "trilinear")
RESAMPLING = {F.interpolate, F.upsample, F.upsample_nearest, F.upsample_bilinear, F.grid_sample}
# Python's rules for these neither ask for the dtype nor look at the targets, as eager's kernels do
LOOKS_CLOSER = ("hardshrink", "softshrink", "multi_margin_loss", "multilabel_margin_loss")
HOMES = (torch, F, torch._C._nn, torch._VF, torch.ops.aten)
FUNCTIONS = {getattr(home, name) for home in HOMES for name in LOOKS_CLOSER if hasattr(home, name)}

# torch's C++ code takes another way for fake tensors than for real ones.  (Of all operators that
# are tested so by OpInfos; with indices both ways are one.)
POOLS = {F.max_pool1d, torch.max_pool1d, torch.ops.aten.max_pool1d.default}


@call_rule(*DROPOUT, *FUNCTIONS, *LOOKS_CLOSER)
def whole(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    with torch._C._DisablePythonDispatcher():
        return plain(interpreter, target, args, kwargs)


@call_rule(*POOLS)
def pooled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Eager's kernel takes no integers; what fake tensors see in its place does."""
    out = interpreter.plain_call(target, args, kwargs)
    if isinstance(out, torch.Tensor) and not out.is_floating_point():
        raise CannotTrace(f"eager may refuse the largest of {out.dtype}")
    return out


@call_rule(*RESAMPLING)
def resampled(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    images = [a for a in args[:1] if isinstance(a, torch.Tensor)]
    if target in (F.interpolate, F.upsample) and any(map(is_symbolic, images)):
        out = by_sizes(*args, **kwargs)
        if out is not NotImplemented:
            return out
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    # lowering/interpolation.py
    has_own_rule = is_linear(target, args, kwargs) or "nearest-exact" in texts
    if has_own_rule or any(map(unlike_eager, images)):
        return whole(interpreter, target, args, kwargs)
    out = interpreter.plain_call(target, args, kwargs)
    if isinstance(out, torch.Tensor) and same(out.numel(), 0):
        raise CannotTrace("eager may refuse to make an image without pixels")
    return out


def by_sizes(
    image: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Linear and bilinear resampling to sizes that are symbols: torch's C++ code in front of its
    kernels computes those of numbers alone.  NotImplemented for what else F.interpolate does."""
    rule = {("linear", 3): linear, ("bilinear", 4): bilinear}.get((mode, image.dim()))
    if rule is None or antialias or (size is None) == (scale_factor is None):
        return NotImplemented
    rank, each = image.dim() - 2, scale_factor if size is None else size
    each = list(each) if isinstance(each, (list, tuple)) else [each] * rank
    if len(each) != rank:
        return NotImplemented
    if size is not None:
        return rule(image, each, bool(align_corners))
    scales = [None if recompute_scale_factor else float(scale) for scale in each]
    sizes = [math.trunc(n * float(scale)) for n, scale in zip(image.shape[2:], each)]
    return rule(image, sizes, bool(align_corners), *scales)


# eager's gradients of these look at values: a loss may not depend on the phase of a complex vector
VECTORS = [getattr(torch.linalg, name) for name in ("eig", "eigh", "svd")]
VECTORS += [torch.svd, *(getattr(torch.ops.aten, f"linalg_{name}") for name in ("eig", "eigh"))]


@call_rule(*VECTORS, "svd")
def complex_vectors(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """Autograd leaves the look out where tensors are fake, and the graph would not look, either."""
    out = plain(interpreter, target, args, kwargs)
    if any(made.is_complex() and made.requires_grad for made in out):
        raise CannotTrace("eager's gradient of complex vectors looks at values")
    return out


NAMES_OF_QUANTILES = ("quantile", "nanquantile")

# torch's Python rule looks at the classes since 2.12
LOOKS_AT_CLASSES = hasattr(torch._decomp.decompositions, "one_hot")


@call_rule(F.one_hot, torch._C._nn.one_hot, torch.ops.aten.one_hot, torch.ops.aten.one_hot.default)
def one_hot(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Classes out of range raise, as the kernel in C++ does where there are data; torch's Python
    rule, which answers for symbolic sizes, takes other dtypes than eager does."""
    classes = pytree.tree_leaves((args, kwargs))[0]
    is_wrong = isinstance(classes, torch.Tensor) and classes.dtype is not torch.int64
    if is_wrong or not LOOKS_AT_CLASSES:
        raise CannotTrace("eager may refuse the classes of one_hot")
    # eager writes ones into a new tensor, which lies row by row
    return interpreter.plain_call(target, args, kwargs).contiguous()


QUANTILES = [getattr(home, name) for home in (torch, torch.ops.aten) for name in NAMES_OF_QUANTILES]


@call_rule(*QUANTILES, *NAMES_OF_QUANTILES)
def quantile(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """On a CPU eager looks whether each of several quantiles lies in [0, 1]."""
    q = args[1] if len(args) > 1 else kwargs.get("q")
    if isinstance(q, torch.Tensor):
        raise CannotTrace("eager may refuse a quantile")
    return plain(interpreter, target, args, kwargs)


def plain(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """The call as torch's own rules take it apart."""
    run = interpreter.plain_method if isinstance(target, str) else interpreter.plain_call
    return run(target, args, kwargs)


def is_linear(target: Callable, args: tuple, kwargs: dict) -> bool:
    """Is it a weighted sum of neighbours, without smoothing?"""
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    is_resampling = target in (F.interpolate, F.upsample) and not kwargs.get("antialias")
    return is_resampling and any(text in LINEAR for text in texts)


def unlike_eager(image: torch.Tensor) -> bool:
    """Do Python's rules for `interpolate` and the like round, refuse, or lay out their results in
    another way than eager's kernels, for this tensor?"""
    if image.dtype not in (torch.float32, torch.float64) or same(image.numel(), 0):
        return True
    if image.dim() == 5 and not image.is_contiguous():
        return True
    dimensions = zip(image.shape, image.stride())
    reach = 1 + sum((hint(n, 1) - 1) * hint(step, 0) for n, step in dimensions)
    return reach < hint(image.numel(), 0)  # elements share memory


# --- LSTM, GRU and RNN ----------------------------------------------------------------------------
# torch's rules take a step of time after another, which is hundreds of kernels.  On a CPU eager
# does so, too, and fused kernels are faster; on a GPU one kernel of cuDNN's is twice as fast as
# they are.  For several layers the rules never drop anything.
PADDED = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()
PACKED = "data batch_sizes hx params has_biases num_layers dropout train bidirectional".split()


@call_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def recurrent(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """A call under the tracer."""
    packed = "data" in kwargs or len(args) > 3 and isinstance(args[3], (list, tuple))
    given = dict(zip(PACKED if packed else PADDED, args)) | kwargs
    if drops(given):
        raise CannotTrace("a recurrent network with dropout between its layers")
    tensors = [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return call_learning(interpreter, target, args, kwargs)
    if on_gpu(args[0]):
        raise CannotTrace("one kernel of cuDNN's is faster than a recurrent network's steps")
    return interpreter.plain_call(target, args, kwargs)


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def drops(given: dict) -> bool:
    """Does the call drop elements between its layers?"""
    return bool(given["train"]) and given["dropout"] > 0 and given["num_layers"] > 1


def call_learning(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's rule for an LSTM asks the input alone whether there will be gradients: where only the
    parameters need some, it would take oneDNN's kernel for inference."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return interpreter.plain_call(target, args, kwargs)
    finally:
        torch._C._set_mkldnn_enabled(enabled)

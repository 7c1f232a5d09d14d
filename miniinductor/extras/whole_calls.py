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

from ..exceptions import CannotTrace
from ..autograd.rules import call_rule
from ..lowerings.interpolation import bilinear
from ..sizes.symbols import hint, is_symbolic, same

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


@call_rule(*DROPOUT, *FUNCTIONS)
def whole(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    with torch._C._DisablePythonDispatcher():
        return interpreter.plain_call(target, args, kwargs)


@call_rule(*LOOKS_CLOSER)
def whole_method(interpreter: Any, target: str, args: tuple, kwargs: dict) -> Any:
    with torch._C._DisablePythonDispatcher():
        return interpreter.plain_method(target, args, kwargs)


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
        if out is not None:
            return out
    texts = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
    # lowerings/interpolation.py
    has_own_rule = is_linear(target, args, kwargs) or "nearest-exact" in texts
    if has_own_rule or any(map(unlike_eager, images)):
        return whole(interpreter, target, args, kwargs)
    out = interpreter.plain_call(target, args, kwargs)
    if isinstance(out, torch.Tensor) and same(out.numel(), 0):
        raise CannotTrace("eager may refuse to make an image without pixels")
    return out


KERNELS = {mode: f"upsample_{mode}" for mode in ("nearest", *LINEAR, "bicubic")}
KERNELS["nearest-exact"] = "_upsample_nearest_exact"


def by_sizes(
    image: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> torch.Tensor | None:
    """The kernel that F.interpolate calls, given the new sizes: torch's C++ code in front of it
    computes those of numbers alone.  None where F.interpolate does more than that."""
    rank = image.dim() - 2
    kernel = getattr(torch.ops.aten, f"{KERNELS.get(mode)}{rank}d", None)
    if kernel is None or antialias or (size is None) == (scale_factor is None):
        return None
    each = size if size is not None else scale_factor
    each = list(each) if isinstance(each, (list, tuple)) else [each] * rank
    if len(each) != rank:
        return None
    scales = [None] * rank if size is not None or recompute_scale_factor else list(map(float, each))
    if size is None:
        each = [math.trunc(n * float(scale)) for n, scale in zip(image.shape[2:], each)]
    corners = [] if mode.startswith("nearest") else [bool(align_corners)]
    learns = torch.is_grad_enabled() and image.requires_grad
    if learns and image.dtype in (torch.float32, torch.float64) and mode != "nearest-exact":
        # (the kernels of most gradients take numbers alone)
        return bilinear(image, each, *corners, *scales) if mode == "bilinear" else None
    with torch._C._DisablePythonDispatcher():
        return kernel.default(image, each, *corners, *scales)


# eager's gradients of these look at values: a loss may not depend on the phase of a complex vector
VECTORS = [getattr(torch.linalg, name) for name in ("eig", "eigh", "svd")]
VECTORS += [torch.svd, *(getattr(torch.ops.aten, f"linalg_{name}") for name in ("eig", "eigh"))]


@call_rule(*VECTORS, "svd")
def complex_vectors(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """Autograd leaves the look out where tensors are fake, and the graph would not look, either."""
    plain = interpreter.plain_method if isinstance(target, str) else interpreter.plain_call
    out = plain(target, args, kwargs)
    if any(made.is_complex() and made.requires_grad for made in out):
        raise CannotTrace("eager's gradient of complex vectors looks at values")
    return out


NAMES_OF_QUANTILES = ("quantile", "nanquantile")

# torch has a Python rule that looks at the classes, since 2.12
LOOKS_AT_CLASSES = hasattr(torch._decomp.decompositions, "one_hot")


@call_rule(F.one_hot, torch._C._nn.one_hot, torch.ops.aten.one_hot, torch.ops.aten.one_hot.default)
def one_hot(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """Classes out of range raise, as the kernel in C++ does where there are data; torch's Python
    rule, which answers for symbolic sizes, takes other dtypes than eager does."""
    classes = pytree.tree_leaves((args, kwargs))[0]
    if isinstance(classes, torch.Tensor) and classes.dtype is not torch.int64:
        raise CannotTrace(f"eager refuses classes of {classes.dtype}")
    if not LOOKS_AT_CLASSES:
        check_classes(*args, **kwargs)
    # eager writes ones into a new tensor, which lies row by row
    return interpreter.plain_call(target, args, kwargs).contiguous()


def check_classes(tensor: torch.Tensor, num_classes: int = -1) -> None:
    """Two operations of the graph, whatever becomes of the result."""
    torch._assert_async((tensor >= 0).all(), "Class values must be non-negative.")
    torch._assert_async(
        (tensor < num_classes).all(), "Class values must be smaller than num_classes."
    )


QUANTILES = [getattr(home, name) for home in (torch, torch.ops.aten) for name in NAMES_OF_QUANTILES]


@call_rule(*QUANTILES, *NAMES_OF_QUANTILES)
def quantile(interpreter: Any, target: Any, args: tuple, kwargs: dict) -> Any:
    """On a CPU eager looks whether each of several quantiles lies in [0, 1]."""
    q = args[1] if len(args) > 1 else kwargs.get("q")
    plain = interpreter.plain_method if isinstance(target, str) else interpreter.plain_call
    out = plain(target, args, kwargs)
    if isinstance(q, torch.Tensor) and q.device.type == "cpu":
        inside = torch.logical_and(q >= 0, q <= 1).all()
        torch._assert_async(inside, "quantile() q values must be in the range [0, 1]")
    return out


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

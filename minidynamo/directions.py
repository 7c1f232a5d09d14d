"""What a program tells the compiler: disable, graph_break, is_compiling, mark_dynamic, mark_static;
and functions of torch's own, given to `compile` by themselves.

In:   calls in the program.   Out: breaks, constants, and marks on tensors, which dynamic.py reads.

    >>> minidynamo.mark_dynamic(x, 0)       # size 0 of x is a symbol
    >>> minidynamo.compile(torch.softmax)

Mirrors torch/_dynamo/decorators.py and eval_frame.py (`innermost_fn`, `external_utils`).
"""

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import Module

from .frame import frame_hook


def named_like(fn: Any, made: Any) -> Any:
    """`made`, which gets the name, documentation and attributes of `fn`."""
    for name in functools.WRAPPER_ASSIGNMENTS:
        if hasattr(fn, name):
            setattr(made, name, getattr(fn, name))
    if isinstance(fn, types.FunctionType):
        made.__dict__.update(fn.__dict__)
    return made


def disable(fn: Any) -> Any:
    """`fn`, run as plain Python with everything it calls."""
    if not callable(fn):
        raise TypeError(f"disable() takes a function or a module, not {type(fn).__name__}")
    return named_like(fn, frame_hook.disabled(fn))


def graph_break() -> None:
    """Ask for a graph break here; nothing in plain Python."""


def is_compiling() -> bool:
    """True while the caller is being traced."""
    return False


Dims = int | list[int] | tuple[int, ...]  # one, or several


def mark_dynamic(tensor: torch.Tensor, dim: Dims) -> None:
    """Size `dim` of `tensor` is a symbol when it is compiled.  The compiled call raises
    SpecializationError where its number is needed."""
    marked = dims_of("mark_dynamic", tensor, dim, "a tensor")
    tensor.__dict__.setdefault("_minidynamo_dynamic", set()).update(marked)


def mark_static(
    tensor: torch.Tensor | type[Module], dim: Dims | None = None
) -> type[Module] | None:
    """Size `dim` of `tensor` (None: every size) is a number when it is compiled, also with
    dynamic=True.  A class of modules is given back as it is: what is read of a module is guarded
    anyway."""
    if isinstance(tensor, type) and issubclass(tensor, Module):
        return tensor
    marked = dims_of("mark_static", tensor, dim, "a tensor or a class of modules")
    tensor.__dict__.setdefault("_minidynamo_static", set()).update(marked)
    return None


def dims_of(name: str, tensor: torch.Tensor, dim: Dims | None, wanted: str) -> list[int]:
    """The dimensions, counted from the front.  Raises TypeError for what is no tensor and no
    dimension, IndexError for a dimension that the tensor does not have."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} expects {wanted}, not a {type(tensor).__name__}")
    if dim is None and name == "mark_static":
        return list(range(tensor.dim()))
    found = list(dim) if isinstance(dim, (list, tuple)) else [dim]
    for one in found:
        if type(one) is not int:
            raise TypeError(f"{name}: a dimension is a number, not {one!r}")
        if not -tensor.dim() <= one < tensor.dim():
            raise IndexError(
                f"{name}: a tensor of {tensor.dim()} dimensions has no dimension {one}"
            )
    return [one % tensor.dim() for one in found]


@functools.lru_cache(None)
def framed(function: Any) -> Callable[..., Any]:
    """A Python function that only calls `function`, for functions of torch's own (F.gelu,
    torch.softmax): the hook leaves their frames alone, and compiles the frame of this one."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(
        co_name=function.__name__, co_filename=f"<{function.__module__}>"
    )
    return call

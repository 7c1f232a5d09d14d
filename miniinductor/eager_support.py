"""Does eager have a kernel for these dtypes?  Where it has none, neither do we: the eager kernel
runs, and raises.

In:   an ATen overload and its arguments.  Out: the reason why eager refuses them, or "".

    >>> refusal(aten.add.Tensor, (fake_uint16, fake_uint16), {})
    '"add_stub" not implemented for \\'UInt16\\''

Loops, and torch's decompositions, compute with every dtype that they can spell; shape functions ask
for few of them.  No list of ours could say what ATen's kernels take, so one is asked: the op runs
once on zeros of the same dtypes and ranks, with at most two elements a dimension (argmax of one
complex number succeeds, of two it does not).  What it raises counts where it speaks of dtypes, or
where the same call succeeds with usual dtypes.  An op that wants larger tensors (a convolution with
padding) is asked with the sizes that are given, if they are small.  Answers are kept for the
process.  Left out: GPUs, where asking would launch kernels while others may be recorded.
"""

import re
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .foreign import ours
from .ops import exact_key

ABOUT_DTYPES = re.compile(
    r"not implemented for|not supported for|dtype|scalar type|data type|expected .* type", re.I
)
SYMBOLIC = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
FEW = 4096  # elements
# what most programs consist of: for arguments that are all float32, eager has these kernels
EVERYDAY = frozenset(
    getattr(getattr(torch.ops.aten, name), overload)
    for overload, names in {
        "Tensor": "add sub mul div eq ne lt le gt ge",
        "Scalar": "eq ne lt le gt ge",
        "Tensor_Scalar": "pow",
        "dim_IntList": "sum",
        "dim": "mean",
        "correction": "var_mean",
        "default": """
            neg abs exp log sqrt rsqrt reciprocal sin cos tanh sigmoid erf relu gelu silu amax mm addmm
            bmm sum mean native_layer_norm native_layer_norm_backward threshold_backward tanh_backward
            sigmoid_backward gelu_backward maximum minimum clone
        """,
    }.items()
    for name in names.split()
)
PLAIN_KEYWORDS = {"correction", "keepdim", "approximate"}
UNKNOWN = "?"  # this question says nothing about dtypes: usual ones are refused as well
Sizes = Callable[[torch.Tensor], list[int]]
_answers: dict[tuple, str] = {}


def refusal(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> str:
    """Why eager has no kernel for tensors of these dtypes; "" where it has one, or where that is
    not known."""
    if is_everyday(op, args, kwargs):
        return ""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not can_be_asked(op, tensors):
        return ""
    # numbers may be symbols, and sizes hardly matter to a dtype: only types are part of the
    # question
    key = (op, spec, *map(_about, leaves))
    if key not in _answers:
        _answers[key] = _ask(op, leaves, spec, least_sizes)
    if _answers[key] != UNKNOWN:
        return _answers[key]
    if any(None in plain_sizes(t) or t.numel() > FEW for t in tensors):
        return ""
    key = (*key, *[tuple(t.shape) for t in tensors])
    if key not in _answers:
        answer = _ask(op, leaves, spec, plain_sizes)
        _answers[key] = "" if answer == UNKNOWN else answer
    return _answers[key]


def is_everyday(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> bool:
    """Is it known without asking that eager has the kernel?  (Asking takes as long as compiling the
    call does.)"""
    if op not in EVERYDAY or not kwargs.keys() <= PLAIN_KEYWORDS:
        return False
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return all(t.dtype is torch.float32 and t.layout is torch.strided for t in tensors)


def plain_sizes(tensor: torch.Tensor) -> list:
    """Its sizes, with None for those that are symbols."""
    return [n if type(n) is int else None for n in tensor.shape]


def least_sizes(tensor: torch.Tensor) -> list[int]:
    """One where the size is 1, for broadcasting, else two."""
    return [1 if n == 1 else 2 for n in plain_sizes(tensor)]


def can_be_asked(op: torch._ops.OpOverload, tensors: list[torch.Tensor]) -> bool:
    return (
        bool(tensors)
        and are_plain(tensors)
        and not any(a.alias_info for a in op._schema.arguments)  # a view does not compute
        and torch.Tag.nondeterministic_seeded not in op.tags
    )


def are_plain(tensors: list[torch.Tensor]) -> bool:
    return all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors)


def _about(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, *least_sizes(leaf)
    return type(leaf) if isinstance(leaf, (int, float, *SYMBOLIC)) else exact_key(leaf)


def _ask(op: torch._ops.OpOverload, leaves: list, spec: Any, sizes_of: Sizes) -> str:
    """What eager refuses, "" for nothing, or UNKNOWN."""
    message = _error(op, leaves, spec, sizes_of, lambda dtype: dtype)
    if not message or ABOUT_DTYPES.search(message):
        return message
    for easier in (usual, usual_and_real):
        if not _error(op, leaves, spec, sizes_of, easier):
            return message
    return UNKNOWN


def usual(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the same kind for which every kernel is written."""
    if dtype.is_complex:
        return torch.complex64
    if dtype.is_floating_point:
        return torch.float32
    return torch.int64


def usual_and_real(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_complex else usual(dtype)


def _error(
    op: torch._ops.OpOverload, leaves: list, spec: Any, sizes_of: Sizes, dtype_of: Callable
) -> str:
    """What the op says to tensors of zeros; "" if it computes."""

    def sample(leaf: Any) -> Any:
        if type(leaf) in SYMBOLIC:
            return SYMBOLIC[type(leaf)](1)  # the symbol itself would be decided on
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.zeros(sizes_of(leaf), dtype=torch.int64).to(dtype_of(leaf.dtype))

    with _disable_current_modes(), torch.no_grad(), torch._C._DisablePythonDispatcher():
        args, kwargs = pytree.tree_unflatten([sample(leaf) for leaf in leaves], spec)
        try:
            op(*args, **kwargs)
        except ours(Exception) as error:
            return str(error).split("\n")[0] or type(error).__name__
    return ""

"""Does eager have a kernel for these dtypes?  Where it has none, neither do we: the eager kernel
runs, and raises.

In:   an ATen overload and its arguments.  Out: the reason why eager refuses them, or "".

    >>> refusal(aten.add.Tensor, (fake_uint16, fake_uint16), {})
    '"add_stub" not implemented for \\'UInt16\\''

Loops, and torch's decompositions, compute with every dtype that they can spell; shape functions ask
for few of them.  No list of ours could say what ATen's kernels take, so one is asked: the op runs
once on tensors of one element of the same dtypes and ranks.  What it raises counts where it speaks
of dtypes, or where the same call succeeds with usual dtypes.  Answers are kept for the process.
Left out: GPUs, where asking would launch kernels while others may be recorded.
"""

import re

import torch
import torch.utils._pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .foreign import ours
from .ops import exact_key

ABOUT_DTYPES = re.compile(
    r"not implemented for|not supported for|dtype|scalar type|data type|expected .* type", re.I
)
SYMBOLIC = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
_answers: dict[tuple, str] = {}


def refusal(op: torch._ops.OpOverload, args: tuple, kwargs: dict) -> str:
    """Why eager has no kernel for tensors of these dtypes; "" where it has one, or where that is
    not known."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not can_be_asked(op, tensors):
        return ""
    # numbers may be symbols, and sizes do not matter to a dtype: only their types are part of the
    # question
    key = (op, spec, *map(_about, leaves))
    if key not in _answers:
        _answers[key] = _ask(op, leaves, spec)
    return _answers[key]


def can_be_asked(op, tensors) -> bool:
    return (
        bool(tensors)
        and all(t.device.type == "cpu" and t.layout is torch.strided for t in tensors)
        and not op._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in op.tags
    )


def _about(leaf):
    if isinstance(leaf, torch.Tensor):
        return leaf.dtype, leaf.dim()
    return type(leaf) if isinstance(leaf, (int, float, *SYMBOLIC)) else exact_key(leaf)


def _ask(op, leaves, spec) -> str:
    message = _error(op, leaves, spec, lambda dtype: dtype)
    if not message or ABOUT_DTYPES.search(message):
        return message
    return message if not _error(op, leaves, spec, usual) else ""


def usual(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the same kind for which every kernel is written."""
    if dtype.is_complex:
        return torch.complex64
    if dtype.is_floating_point:
        return torch.float32
    return torch.int64


def _error(op, leaves, spec, dtype_of) -> str:
    """What the op says to tensors of one zero each; "" if it computes."""

    def sample(leaf):
        if type(leaf) in SYMBOLIC:
            return SYMBOLIC[type(leaf)](1)  # the symbol itself would be decided on
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return torch.zeros([1] * leaf.dim(), dtype=torch.int64).to(dtype_of(leaf.dtype))

    with _disable_current_modes(), torch.no_grad(), torch._C._DisablePythonDispatcher():
        args, kwargs = pytree.tree_unflatten([sample(leaf) for leaf in leaves], spec)
        try:
            op(*args, **kwargs)
        except ours(Exception) as error:
            return str(error).split("\n")[0] or type(error).__name__
    return ""

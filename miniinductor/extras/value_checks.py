"""(coverage) Which ATen ops look at values, and raise where they do not like them.

In:   a node of an ATen graph.  Out: may its call raise, whatever the shapes and dtypes are?

    >>> raises_by_values(node)   # of aten.index.Tensor(x, [i]): a position may be out of range
    True

What is known to succeed says so itself, `node.meta["in_range"]`, and what eager is known to refuse,
`node.meta["refused"]`.  Ops that raise by shapes or dtypes do so while they are traced.  Random ops
stay in any case.
# PyTorch: removes such calls; a compiled program may then give a value where eager raises.
"""

import functools
from typing import Any

import torch
from torch import fx

from ..checks import may_raise

# names without overloads; what stands in a group raises for the reason that the group names
POSITIONS = """
    index index_put _unsafe_index_put index_select gather scatter scatter_add scatter_reduce
    index_add index_copy index_fill index_reduce take put embedding embedding_renorm _embedding_bag
    _embedding_bag_forward_only max_unpool2d max_unpool3d searchsorted lu_unpack repeat_interleave
    segment_reduce bincount _pack_padded_sequence
"""
CLASSES = """
    nll_loss_forward nll_loss2d_forward multi_margin_loss multilabel_margin_loss_forward _ctc_loss
    binary_cross_entropy
"""
MATRICES = """
    _linalg_eigh _linalg_svd linalg_eig linalg_eigvals _linalg_eigvals linalg_lstsq linalg_cholesky
    cholesky cholesky_inverse geqrf linalg_qr
"""
RANGES = "histc histogram histogramdd _histogramdd_from_bin_cts linspace logspace"
RAISING = frozenset(" ".join((POSITIONS, CLASSES, MATRICES, RANGES)).split())
DIVISIONS = ("floor_divide", "remainder", "fmod", "div")  # of integers, by zero
NEVER, CHECKING, LOOKING, DIVIDING = "never", "it only checks", "some values", "a divisor of zero"


@may_raise.replaced
def raises_by_values(node: fx.Node) -> bool:
    """Can this call raise because of what its tensors hold?"""
    why = raises_by(node.target)
    if why == NEVER:
        return bool(node.meta.get("refused"))
    if node.meta.get("in_range"):
        return False
    if why == CHECKING:
        return bool(node.all_input_nodes)
    return why == LOOKING or bool(node.meta.get("refused")) or may_divide_by_zero(node)


@functools.cache
def raises_by(target: Any) -> str:
    """What in the values of its tensors makes an op raise.

    Ops that return nothing only look, and raise where they do not like what they see:
    aten._linalg_check_errors behind linalg_inv_ex, aten._assert_async.
    """
    schema = getattr(target, "_schema", None)
    if schema is None:
        return NEVER
    if not schema.returns:
        return CHECKING
    name = schema.name.split("::")[1]
    if name in RAISING:
        return LOOKING
    return DIVIDING if name in DIVISIONS else NEVER


def may_divide_by_zero(node: fx.Node) -> bool:
    """A division that gives integers, by something else than a number that is not 0."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or len(node.args) < 2:
        return False
    divisor = node.args[1]
    return not isinstance(divisor, (int, float)) or divisor == 0

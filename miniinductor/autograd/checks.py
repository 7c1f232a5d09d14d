"""Which calls may raise because of what their tensors hold: a position out of range, say.

In:   a node of an ATen graph.  Out: may its call raise, whatever the shapes and dtypes are?

    >>> may_raise(node)      # of aten.index.Tensor(x, [i]): a position may be out of range
    True

Such a call is an effect: plain Python raises though nobody reads the result.  So no pass removes
it as dead code (`is_needed` in autograd/functionalize.py asks here), the partition keeps it in the
half to which it belongs, and lowering runs it for all of its elements (lowering/refusals.py).
What is known to succeed says so itself, `node.meta["in_range"]`, and what eager is known to refuse,
`node.meta["refused"]`.
# PyTorch: removes such calls; a compiled program may then give a value where eager raises.
"""

import functools
from typing import Any

import torch
from torch import fx

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
# those that raise for zeros, too
LOOKING = frozenset(f"{MATRICES} {RANGES} _ctc_loss lu_unpack segment_reduce".split())
LOOKING |= {*"_embedding_bag _embedding_bag_forward_only _pack_padded_sequence".split()}
DIVISIONS = ("floor_divide", "remainder", "fmod", "div")  # of integers, by zero


def may_raise(node: fx.Node) -> bool:
    """Can this call raise because of what its tensors hold?"""
    name = name_of(node.target)
    if not name or node.meta.get("refused"):
        return bool(name)
    if node.meta.get("in_range"):
        return False
    if not node.target._schema.returns:  # type: ignore[union-attr]
        # it only looks: aten._assert_async, aten._linalg_check_errors behind linalg_inv_ex
        return bool(node.all_input_nodes)
    return name in RAISING or name in DIVISIONS and may_divide_by_zero(node)


@functools.cache
def name_of(target: Any) -> str:
    """ "add" for aten.add.Tensor, "" for what is no ATen op."""
    schema = getattr(target, "_schema", None)
    return schema.name.split("::")[1] if schema is not None else ""


def may_divide_by_zero(node: fx.Node) -> bool:
    """A division that gives integers, by something else than a number that is not 0."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or len(node.args) < 2:
        return False
    divisor = node.args[1]
    return not isinstance(divisor, (int, float)) or divisor == 0

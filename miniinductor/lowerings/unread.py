"""Calls that may raise, and whose result is read in full: they need not be stored.

In:   a functional ATen graph without dead code.  Out: the other ones.

    y = x[i]; return y + 1            # inlined: the kernel looks at all positions
    y = x[i]; return y[:2] + 1        # inlined, only two of the positions would be looked at
    x[i]; return x + 1                # no kernel would look at any

A value that is not stored is computed by the kernels that read it, for the elements that they read.
Lowering stores these results, and the scheduler keeps their kernels.  A call whose result is read
in full stays inlined and costs nothing: that is what `reads_all` recognises, and what it does not
recognise counts as reading a part.  (Without this file all of them are stored.)
"""

import operator
from typing import Any

import torch
from torch import fx

from ..autograd.functionalize import is_needed, is_view
from ..checks import may_raise
from ..lowering.extern import EXTERN
from ..lowering.registry import LOWERINGS
from ..sizes.symbols import same, same_sizes
from .kept_checks import CHECKS

MAKES_ANEW = {
    *"zeros_like ones_like full_like new_zeros new_ones new_full empty_like new_empty".split()
}
MAKES_ANEW |= {"new_empty_strided", "fill"}  # they look at the shape of what they are given
COPIES = {*"_to_copy clone lift_fresh_copy convert_element_type cat flip roll repeat".split()}
REDUCTIONS = {*"sum prod mean amax amin max min argmax argmin any all var var_mean".split()}
REDUCTIONS |= {"cumsum", "cumprod", "logcumsumexp"}
WRITES = {
    *"index_put _unsafe_index_put scatter scatter_add scatter_reduce index_add index_copy".split()
}
READS_AT = {*"index _unsafe_index gather index_select embedding".split()}
PART_OF_SOURCE = {"scatter", "scatter_add", "scatter_reduce"}  # as much as there are positions
SCATTERS = {"slice_scatter", "select_scatter", "diagonal_scatter", "copy"}
SPLITS = {"split", "split_with_sizes", "unbind"}
READS_ALL = COPIES | REDUCTIONS | SPLITS
PART_OF_MEMORY = {"as_strided", "unfold"}


def read_in_part(graph: fx.Graph, is_forward: bool) -> set[fx.Node]:
    """The nodes that may raise and whose result is not surely read in full.

    What a backward half computes again has been checked in the forward half: there only what nobody
    reads at all counts."""
    raising = [n for n in graph.nodes if n.op == "call_function" and may_raise(n)]
    if not is_forward or not raising:
        return {node for node in raising if not node.users}
    alive: set[fx.Node] = set()
    whole: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        is_result = node.op == "output" or is_needed(node)
        if is_result or any(_counts(user) and user in alive for user in node.users):
            alive.add(node)
        if is_read_in_full(node, alive, whole):
            whole.add(node)
    return {node for node in raising if node not in whole}


CHECKS.append(read_in_part)


def is_read_in_full(node: fx.Node, alive: set[fx.Node], whole: set[fx.Node]) -> bool:
    """What is stored in any case computes all of what it reads; what is not, if it is itself read
    in full."""
    if node.op == "output":
        return True
    for user in node.users:
        is_computed = user in whole or user in alive and _is_stored(user)
        if is_computed and reads_all(user, node):
            return True
    if name_of(node) not in SPLITS:
        return False
    parts = {user.args[1] for user in node.users if user in whole}
    return len(parts) == len(node.meta["val"])


def name_of(node: fx.Node) -> str:
    """ "add" for aten.add.Tensor and aten.add_.Tensor, "" for what is no ATen op."""
    schema = getattr(node.target, "_schema", None)
    return schema.name.split("::")[1].rstrip("_") if schema is not None else ""


def _counts(user: fx.Node) -> bool:
    """Does this user look at elements at all?"""
    return name_of(user) not in MAKES_ANEW


def _is_stored(node: fx.Node) -> bool:
    """Has the result memory of its own, whoever reads it?"""
    if node.op == "output" or may_raise(node) or node.target in EXTERN:
        return True
    is_op = isinstance(node.target, torch._ops.OpOverload)
    return is_op and (node.target not in LOWERINGS or name_of(node) in REDUCTIONS | WRITES)


def reads_all(user: fx.Node, node: fx.Node) -> bool:
    """Does computing all of `user` look at each element of `node`?"""
    if user.op == "output":
        return True
    if user.target is operator.getitem:
        return False  # of a split: its parts are counted together
    name, first = name_of(user), user.args[:1] == (node,)
    if name in MAKES_ANEW:
        return False
    if user.target in EXTERN or user.target not in LOWERINGS:
        return True
    shape = getattr(user.meta.get("val"), "shape", ())
    if any(isinstance(n, int) and n == 0 for n in shape):
        return False
    if name in READS_ALL or torch.Tag.pointwise in user.target.tags:
        return True
    if name in READS_AT:
        return not first
    if name in WRITES:
        return first or name not in PART_OF_SOURCE or user.args[2] is node or fills(user, node)
    if name in SCATTERS:
        return not first
    if name == "constant_pad_nd":
        pad: Any = user.args[1]
        return all(isinstance(n, int) and n >= 0 for n in pad)
    if name in PART_OF_MEMORY or not (is_view(user.target) or name == "_unsafe_view"):
        return False
    return same(_count(user), _count(node)) or name == "expand"


def fills(scatter: fx.Node, source: fx.Node) -> bool:
    """Has a scatter as many positions as its source has elements?"""
    index: Any = scatter.args[2]
    return scatter.args[3:4] == (source,) and same_sizes(
        index.meta["val"].shape, source.meta["val"].shape
    )


def _count(node: fx.Node) -> Any:
    return node.meta["val"].numel()

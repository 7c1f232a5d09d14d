"""Calls that may raise are run for all of their elements, as eager runs them.

In:   a functional ATen graph without dead code.  Out: the calls whose result must be stored.

    y = x[i]; return y + 1            # inlined: the kernel looks at all positions
    y = x[i]; return y[:2] + 1        # inlined, only two of the positions would be looked at
    x[i]; return x + 1                # no kernel would look at any

A value that is not stored is computed by the kernels that read it, for the elements that they read.
What is read in full costs nothing; what `reads_all` does not recognise counts as reading a part.
"""

import operator

import torch
from torch import fx

from ..autograd.functionalize import is_view
from ..checks import may_raise, name_of
from ..sizes.symbols import same
from .extern import EXTERN
from .registry import LOWERINGS

WHOLE = frozenset("_to_copy clone cat flip sum mean prod amax amin any all var_mean expand".split())


def calls_to_store(graph: fx.Graph, is_forward: bool) -> set[fx.Node]:
    """What a backward half computes again has been checked in the forward half: there only what
    nobody reads at all counts."""
    raising = {n for n in graph.nodes if n.op == "call_function" and may_raise(n)}
    if not is_forward or not raising:
        return {node for node in raising if not node.users}
    full: set[fx.Node] = set()  # those of which every element is computed
    for node in reversed(graph.nodes):
        is_full = any(user in full and reads_all(user, node) for user in node.users)
        if is_full:
            raising.discard(node)
        if is_full or node.op == "output" or node in raising or not is_inlined(node):
            full.add(node)
    return raising


def is_inlined(node: fx.Node) -> bool:
    return node.target in LOWERINGS and node.target not in EXTERN


def reads_all(user: fx.Node, node: fx.Node) -> bool:
    """Does computing all of `user` look at each element of `node`?"""
    if user.op == "output":
        return True
    if user.target is operator.getitem:
        return False
    if not is_inlined(user):
        return True
    value, name = user.meta["val"], name_of(user.target)
    if isinstance(value, torch.Tensor) and any(type(n) is int and n == 0 for n in value.shape):
        return False
    if name in WHOLE or torch.Tag.pointwise in user.target.tags:  # type: ignore[union-attr]
        return True
    is_whole_view = is_view(user.target) and name not in ("as_strided", "unfold")
    return is_whole_view and bool(same(value.numel(), node.meta["val"].numel()))

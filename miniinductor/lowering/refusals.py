"""Calls that an op's rule must not lower: of dtypes, devices and numbers that no rule knows.

In:   a call whose op has a lowering.  Out: NotLowered, with the reason: its eager kernel runs.

    z * 2                       # of complex numbers
    x + y.cpu()                 # of two devices
    torch.add(int8, bool)       # of dtypes for which eager itself has no kernel: it raises

What an eager kernel has made of such numbers may be seen through views, and be a result.
Mirrors `fallback_node_due_to_unsupported_type` in torch/_inductor/lowering.py.

Calls that may raise are run for all of their elements, as eager runs them.

In:   a functional ATen graph without dead code.  Out: the calls whose result must be stored.

    y = x[i]; return y + 1            # inlined: the kernel looks at all positions
    y = x[i]; return y[:2] + 1        # inlined, only two of the positions would be looked at
    x[i]; return x + 1                # no kernel would look at any

A value that is not stored is computed by the kernels that read it, for the elements that they read.
What is read in full costs nothing; what `reads_all` does not recognise counts as reading a part.
"""

import operator
from typing import Any

import sympy
import torch
from torch import fx

from ..autograd.checks import may_raise, name_of
from ..autograd.eager_answers import refusal
from ..autograd.functionalize import is_view
from ..ir.loops import Buffer, boxes_in, leaves_of
from ..sizes.expressions import FUNCTIONS
from ..sizes.symbols import same
from .extern import EXTERN
from .registry import LOWERINGS, NotLowered, aten

# functions of sizes that kernels and wrappers can print
KNOWN_FUNCTIONS = {"FloorDiv", "Mod", "Max", "Min", *FUNCTIONS}


def check_arguments(node: fx.Node, args: Any, kwargs: Any) -> None:
    """Raise NotLowered for arguments that no rule knows."""
    target: Any = node.target
    fakes = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    if refused := refusal(target, *fakes):
        raise NotLowered(f"eager has no kernel: {refused}")
    results = leaves_of(torch.Tensor, node.meta["val"])
    if may_raise(node) and any(type(n) is int and n == 0 for t in results[:1] for n in t.shape):
        raise NotLowered("only the kernel knows which positions of nothing it refuses")
    numbers = leaves_of(sympy.Expr, (args, kwargs))
    functions = {type(f).__name__ for n in numbers for f in n.atoms(sympy.Function)}
    if functions - KNOWN_FUNCTIONS:
        raise NotLowered("a number made of sizes in a way that kernels do not have")
    boxes = boxes_in((args, kwargs))
    if len({b.device for b in boxes if b.get_size()}) > 1:
        raise NotLowered("tensors on several devices")
    unknown = [unknown_numbers(t.dtype) for t in [*boxes, *results]]
    unknown += [unknown_numbers(torch.complex128) for _ in leaves_of(complex, (args, kwargs))]
    if any(unknown) and not is_view(target) and target is not aten._unsafe_view.default:
        raise NotLowered(max(unknown))


def check_result(result: Any) -> None:
    """Numbers that our kernels do not have: an eager kernel makes them, and only views of its
    result are possible."""
    for box in boxes_in(result):
        is_stored = not unknown_numbers(box.dtype) or isinstance(box.data, Buffer)
        if not is_stored and box._affine_view() is None:
            raise NotLowered(unknown_numbers(box.dtype))


def unknown_numbers(dtype: torch.dtype) -> str:
    """The name of numbers that our kernels do not have, "" for those that they have."""
    if dtype.is_complex:
        return "complex numbers"
    return f"{dtype} numbers" if dtype.is_floating_point and dtype.itemsize < 2 else ""


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

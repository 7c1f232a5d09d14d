"""Which sizes and numbers of a captured graph only the run knows.

In:   an `fx.GraphModule` whose nodes carry fake values (`node.meta["example_value"]`).  Out: the
      symbols among them that have no hint.

    y = x[x > 0]            # y has u0 rows: so many as there are positive numbers
    return y * 2

    >>> unknown_symbols(gm)         # of a graph without such an op; of this one, {u0}
    set()

A graph that has some, and does not get them as inputs, is cut where they are made
(data_dependent.py), or runs eagerly.  Mirrors the unbacked symbols of torch's ShapeEnv.
"""

from collections.abc import Iterator
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..sizes.symbols import SYMBOLIC


def value_of(node: fx.Node) -> Any:
    return node.meta.get("example_value", node.meta.get("val"))


def numbers_of(value: Any) -> Iterator[Any]:
    """The symbolic numbers in a value: itself, or sizes and strides of its tensors."""
    for leaf in pytree.tree_leaves(value):
        numbers = (*leaf.shape, *leaf.stride()) if isinstance(leaf, torch.Tensor) else (leaf,)
        yield from (n for n in numbers if isinstance(n, SYMBOLIC))


def symbols_of(value: Any) -> set[sympy.Symbol]:
    return {s for n in numbers_of(value) for s in n.node.expr.free_symbols}


def unknown_symbols(gm: fx.GraphModule) -> set[sympy.Symbol]:
    """Symbols of the graph's values that have no hint."""
    return {
        s
        for node in gm.graph.nodes
        for n in numbers_of(value_of(node))
        if not n.node.has_hint()
        for s in n.node.expr.free_symbols
    }

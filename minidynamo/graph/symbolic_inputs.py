"""Sizes and numbers that are symbols: their placeholders, and the nodes that compute with them.

In:   the `OutputGraph` of an attempt, and a tensor or int whose size (or value) may change.
Out:  placeholders for the symbols, before everything that has them as sizes.

    >>> output.symbolic_int(7, source)      # SymVar(s0), whose placeholder is called `s0`

These functions are methods of `OutputGraph`.  Mirrors the `symint` inputs of
torch/_dynamo/output_graph.py (paper section 5).
"""

import functools
from typing import TYPE_CHECKING, Any

import torch

from ..guards.sources import Source
from ..shapes.symbolic_numbers import graph_function
from ..shapes.symbolic_shapes import can_be_symbolic, fake_like, symbolic_fake
from ..variables.symbolic import SymVar

if TYPE_CHECKING:
    from .output_graph import OutputGraph


def symbolic_fake_of(
    output: "OutputGraph", value: torch.Tensor, source: Source, dims: set[int]
) -> torch.Tensor:
    """A fake whose sizes `dims` are symbols; their placeholders come before the tensor's."""
    shape = source.attr("shape")
    output.fake_mode.cache_enabled = False  # its key would be the sizes' hints
    fake = symbolic_fake(
        output.fake_mode,
        output.shape_env,
        value,
        {d: shape.item(d) for d in sorted(dims)},
        functools.partial(output.own_stride, source),
    )
    output.add_symbols()
    return fake


def symbolic_int(output: "OutputGraph", value: int, source: Source) -> SymVar:
    """An int of the arguments as a symbol of its own: any number from 0 on; or minus one.

    (Sizes stay numbers below 2, since broadcasting depends on them.  An int that is used as a size
    is asked whether it is 0 or 1.)"""
    if value < 0:
        made = -output.shape_env.create_number(-value, source.child("negated"))
    else:
        made = output.shape_env.create_number(value, source)
    output.add_symbols()
    return SymVar(made, source=source)


def add_symbols(output: "OutputGraph") -> None:
    """Placeholders of the symbols that have none yet."""
    output.fake_mode.cache_enabled = False
    for symbol, row in output.shape_env.table.items():
        if symbol not in output.symbol_nodes and row.sources and symbol.is_integer:
            value = output.shape_env.wrap(symbol)
            node = output.symbol_nodes[symbol] = output.add_input("placeholder", symbol.name, value)
            output.inputs.append(SymVar(value, node, source=row.sources[0]))


def symbolic_node(output: "OutputGraph", tx: Any, value: Any) -> Any:
    """The node that computes a SymInt, SymFloat or SymBool from the symbols; each expression
    once."""
    if type(value) is torch.SymBool and value.node.has_hint():
        return bool(value)  # decided, and guarded

    def build(expr: Any) -> Any:
        if expr.is_number:
            return int(expr) if expr.is_Integer else float(expr)
        node = output.symbol_nodes.get(expr)
        if node is None:
            call = functools.partial(output.graph.call_function, graph_function(expr))
            first, *others = [build(a) for a in expr.args]
            if others:
                node = functools.reduce(lambda a, b: call((a, b)), others, first)
            else:
                node = call((first,))
            output.describe_node(
                tx, node, output.shape_env.wrap(expr) if expr.is_integer else value
            )
            output.symbol_nodes[expr] = node
        return node

    return build(value.node.expr)


def unwritten_fake(output: "OutputGraph", variable: Any) -> torch.Tensor:
    """A fake of the input as it is before the graph runs.  The variable's own fake has seen the
    traced operations: `x.t_()` has swapped its sizes."""
    tensor = variable.value
    if not can_be_symbolic(tensor):
        return variable.fake
    as_it_is = tensor.shape, tensor.stride()
    layout = output.input_layouts.get(id(variable), as_it_is)
    return fake_like(output.fake_mode, tensor, *layout)

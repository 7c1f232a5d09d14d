"""Inputs and parameters of a graph that nothing reads are left out.

In:   a graph that is complete, and what the frame needs of it.
Out:  its placeholders, and `output.inputs`, without those that nothing reads.

    def f(x, y):
        print(y.shape)          # guards on y, and no use of it in the graph
        return x + 1

Without this file each tensor that the frame has looked at is handed to the compiled graph.
"""

from typing import Any

import torch

from ..graph_capture import OutputGraph
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar
from .extending import extends

plain_finish = OutputGraph.finish


def symbols_of(fake: torch.Tensor) -> set[Any]:
    """The symbols in a fake tensor's sizes and strides."""
    sizes = (*fake.shape, *fake.stride()) if fake.layout is torch.strided else fake.shape
    return {
        symbol for n in sizes if type(n) is torch.SymInt for symbol in n.node._expr.free_symbols
    }


@extends(OutputGraph)
def finish(output: OutputGraph, outputs: list[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    drop_unused_inputs(output, {variable.node for variable in outputs})
    return plain_finish(output, outputs)


def drop_unused_inputs(output: OutputGraph, results: set[torch.fx.Node]) -> None:
    """The inputs that stay are those that are read or given back, and the symbols that are sizes of
    such."""

    def is_used(node: torch.fx.Node) -> bool:
        return bool(node.users) or node in results

    sizes = {
        symbol
        for variable in output.inputs
        if type(variable) is TensorVar and is_used(variable.node)
        for symbol in symbols_of(variable.fake)
    }
    used: list[Any] = []
    for variable in output.inputs:
        is_size = type(variable) is SymVar and variable.value.node._expr in sizes
        if is_used(variable.node) or is_size:
            used.append(variable)
        else:
            output.graph.erase_node(variable.node)
    for node in list(output.graph.nodes):
        if node.op == "get_attr" and not is_used(node):
            output.graph.erase_node(node)
    output.inputs = used

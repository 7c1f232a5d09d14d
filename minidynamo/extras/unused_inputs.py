"""Inputs and parameters of a graph that nothing reads are left out.

In:   a graph that is complete: what the frame needs of it is its output.
Out:  its placeholders, and `output.inputs`, without those that nothing reads.

    def f(x, y):
        print(y.shape)          # guards on y, and no use of it in the graph
        return x + 1

Without this file each tensor that the frame has looked at is handed to the compiled graph.
"""

from typing import Any

import torch

from .. import hooks
from ..graph_capture import OutputGraph
from ..variables.symbolic import SymVar
from ..variables.tensor import TensorVar


def symbols_of(fake: torch.Tensor) -> set[Any]:
    """The symbols in a fake tensor's sizes and strides."""
    sizes = (*fake.shape, *fake.stride()) if fake.layout is torch.strided else fake.shape
    return {
        symbol for n in sizes if type(n) is torch.SymInt for symbol in n.node._expr.free_symbols
    }


@hooks.GRAPHS.append
def drop_unused_inputs(output: OutputGraph) -> None:
    """The inputs that stay are those that are read, and the symbols that are sizes of such."""
    sizes = {
        symbol
        for variable in output.inputs
        if type(variable) is TensorVar and variable.node.users
        for symbol in symbols_of(variable.fake)
    }
    used: list[Any] = []
    for variable in output.inputs:
        is_size = type(variable) is SymVar and variable.value.node._expr in sizes
        if variable.node.users or is_size:
            used.append(variable)
        else:
            output.graph.erase_node(variable.node)
    for node in list(output.graph.nodes):
        if node.op == "get_attr" and not node.users:
            output.graph.erase_node(node)
    output.inputs = used

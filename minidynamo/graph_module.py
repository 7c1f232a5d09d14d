"""The captured graph as an `fx.GraphModule`: its names, its parameters, its inputs.

In:   the `OutputGraph` of a finished attempt, and the variables that the frame needs of it.
Out:  what a backend gets: the module, and example inputs.

    >>> module, example_inputs = output.finish(outputs)

Mirrors `OutputGraph.compile_and_call_fx_graph` of torch/_dynamo/output_graph.py.
"""

from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from . import hooks
from .variables.symbolic import SymVar

if TYPE_CHECKING:
    from .graph_capture import OutputGraph


def finish(output: "OutputGraph", outputs: list[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The captured GraphModule, which returns `outputs` as a tuple, and its example inputs: the
    program's tensors, or fake ones where sizes are symbols."""
    output.graph.output(tuple(variable.node for variable in outputs))
    made = torch.fx.GraphModule(output.attributes, output.graph, "CapturedGraph")
    for look in hooks.GRAPH_MODULES:
        look(output, made)
    if not any(type(variable) is SymVar for variable in output.inputs):
        return made, [variable.value for variable in output.inputs]
    return made, [
        variable.value if type(variable) is SymVar else output.unwritten_fake(variable)
        for variable in output.inputs
    ]

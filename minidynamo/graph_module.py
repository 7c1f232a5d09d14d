"""The captured graph as an `fx.GraphModule`: its names, its parameters, its inputs.

In:   the `OutputGraph` of a finished attempt, and the variables that the frame needs of it.
Out:  what a backend gets: the module, and example inputs.

    >>> module, example_inputs = output.finish(outputs)

Mirrors `OutputGraph.compile_and_call_fx_graph` of torch/_dynamo/output_graph.py.
"""

import functools
import operator
import types
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.fx.graph import inplace_methods
from torch.fx.node import map_aggregate

from miniinductor.eager_graphs import is_printed_exactly

from . import hooks
from .exceptions import SkipFrame
from .sources import module_name
from .variables.symbolic import SymVar
from .variables.tensor import TensorVar

if TYPE_CHECKING:
    from .graph_capture import OutputGraph


def check_names(output: "OutputGraph", gm: torch.fx.GraphModule) -> None:
    """torch.fx writes torch's functions by their names, which must mean those of the nodes, now and
    later: `F.relu = mine`."""
    called = {node.target: None for node in gm.graph.nodes if node.op == "call_function"}
    for target in filter(torch.fx.graph._is_from_torch, called):
        *path, last = torch.fx.node._get_qualified_name(target).split(".")
        module: Any = functools.reduce(getattr, path[1:], torch) if path[:1] == ["torch"] else None
        if isinstance(module, types.ModuleType) and not hasattr(module, last):
            raise SkipFrame(f"torch.{'.'.join(path[1:] + [last])} is no name of torch's")
        if isinstance(module, types.ModuleType) and last in vars(module):
            output.guard_fixed(
                output.globals_of(vars(module)).source.item(last), vars(module)[last]
            )
            if vars(module)[last] is not target:
                raise SkipFrame(f"torch.{'.'.join(path[1:] + [last])} is the program's own")


FUNCTIONS: dict[Any, Any] = {operator.pow: pow}  # an operator -> what is printed as a call of it
for _name in inplace_methods:
    if _name != "setitem":  # `c += t` of a number is `c + t`
        _plain = getattr(operator, _name[1:], None) or getattr(operator, _name[1:] + "_")
        FUNCTIONS[getattr(operator, _name)] = FUNCTIONS.get(_plain, _plain)


def as_printed(graph: torch.fx.Graph, arguments: Any) -> Any:
    """The arguments of a node, with a call that makes it for each number that torch.fx would print
    as another one."""

    def exact(value: Any) -> Any:
        if is_printed_exactly(value):
            return value
        if type(value) is float:
            return graph.call_function(float, ("-nan",))
        return graph.call_function(complex, (exact(value.real), exact(value.imag)))

    return map_aggregate(arguments, exact)


def finish(output: "OutputGraph", outputs: list[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The captured GraphModule, which returns `outputs` as a tuple, and its example inputs: the
    program's tensors, or fake ones where sizes are symbols."""
    drop_unused_inputs(output, {variable.node for variable in outputs})
    output.graph.output(tuple(variable.node for variable in outputs))
    made = torch.fx.GraphModule(output.attributes, output.graph, "CapturedGraph")
    check_names(output, made)
    name_parameters(output, made)
    for look in hooks.GRAPH_MODULES:
        look(output, made)
    if not any(type(variable) is SymVar for variable in output.inputs):
        return made, [variable.value for variable in output.inputs]
    return made, [
        variable.value if type(variable) is SymVar else output.unwritten_fake(variable)
        for variable in output.inputs
    ]


def name_parameters(output: "OutputGraph", made: torch.fx.GraphModule) -> None:
    """Parameters and buffers lie in the module that has them."""
    for node in made.graph.nodes:
        known = output.by_fake.get(id(node.meta.get("example_value")))
        if node.op == "get_attr" and known is not None and known.source is not None:
            node.meta["module_path"] = module_name(known.source).rpartition(".")[0]


def drop_unused_inputs(output: "OutputGraph", results: set[torch.fx.Node]) -> None:
    """Nothing is handed to the graph that it does not read: the inputs that stay are those that are
    read or given back, and the symbols that are sizes of such."""

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


def symbols_of(fake: torch.Tensor) -> set[Any]:
    """The symbols in a fake tensor's sizes and strides."""
    sizes = (*fake.shape, *fake.stride()) if fake.layout is torch.strided else fake.shape
    return {
        symbol for n in sizes if type(n) is torch.SymInt for symbol in n.node._expr.free_symbols
    }

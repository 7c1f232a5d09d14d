"""In which submodule of the model an operation lies: `meta["module_path"]` of the graph's nodes.

In:   modules that are called while a frame is traced.
Out:  "h.0.mlp" in the meta of each node that is made meanwhile, and of a parameter's.

    >>> [node.meta.get("module_path") for node in record.graph.graph.nodes]

Explanations group a graph by it.  Mirrors `nn_module_stack` of torch/_dynamo/output_graph.py.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from .. import hooks
from ..graph_capture import OutputGraph
from ..sources import module_path
from ..variables.base import Args, Frame, Named, Variable, extends
from ..variables.nn_modules import ModuleVar
from ..variables.wrap_tensors import module_name

plain_forward, plain_description = ModuleVar.run_forward, OutputGraph.describe_node


@dataclass
class Inside:
    """Paths of the modules that are being called, the innermost last."""

    paths: list[str] = field(default_factory=list)


@extends(ModuleVar, "run_forward")
def forward_inside(module: ModuleVar, tx: Frame, args: Args, kwargs: Named) -> Variable:
    paths = tx.output.noted(Inside).paths
    paths.append(module_path(module.source))
    try:
        return plain_forward(module, tx, args, kwargs)
    finally:
        paths.pop()


@extends(OutputGraph, "describe_node")
def description_inside(
    output: OutputGraph, tx: Any, node: torch.fx.Node, result: Any
) -> torch.fx.Node:
    plain_description(output, tx, node, result)
    paths = output.noted(Inside).paths
    if paths:
        node.meta["module_path"] = paths[-1]
    return node


def parameters_inside(output: OutputGraph, made: torch.fx.GraphModule) -> None:
    """Parameters and buffers lie in the module that has them."""
    for node in made.graph.nodes:
        known = output.by_fake.get(id(node.meta.get("example_value")))
        if node.op == "get_attr" and known is not None and known.source is not None:
            node.meta["module_path"] = module_name(known.source).rpartition(".")[0]


hooks.GRAPH_MODULES.append(parameters_inside)

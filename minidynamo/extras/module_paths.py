"""In which submodule of the model an operation lies: `meta["module_path"]` of the graph's nodes.

In:   modules that are called while a frame is traced; sources of parameters.
Out:  "h.0.mlp" in the meta of each node that is made meanwhile, and of a parameter's; a parameter
      is called so in the graph, too: "h_0_mlp_weight".

    >>> [node.meta.get("module_path") for node in record.graph.graph.nodes]

Explanations group a graph by it.  Mirrors `nn_module_stack` of torch/_dynamo/output_graph.py.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from .extending import extends, noted
from .. import hooks
from ..graph_capture import OutputGraph
from ..sources import Source
from ..variables.base import Args, Frame, Named, Variable
from ..variables.nn_modules import ModuleVar

plain_forward, plain_description = ModuleVar.run_forward, OutputGraph.describe_node


def module_path(source: Source | None) -> str:
    """ "transformer.h.0.attn" for self.transformer.h[0].attn."""
    parts = []
    while source is not None:
        table = source.base
        if source.kind == "item" and table is not None and table.kind == "item":
            if table.key == "_modules":
                parts.append(str(source.key))
        source = table
    return ".".join(reversed(parts))


def module_name(source: Any) -> str:
    """ "h.0.weight" for a parameter's source."""
    owner = source.base.base
    while owner is not None and owner.kind in ("dict", "raw_dict"):
        owner = owner.base
    path = module_path(owner)
    return f"{path}.{source.key}" if path else str(source.key)


@extends(OutputGraph)
def parameter_name(output: OutputGraph, source: Source) -> str:
    return module_name(source)


@dataclass
class Inside:
    """Paths of the modules that are being called, the innermost last."""

    paths: list[str] = field(default_factory=list)


@extends(ModuleVar, "run_forward")
def forward_inside(module: ModuleVar, tx: Frame, args: Args, kwargs: Named) -> Variable:
    paths = noted(tx.output, Inside).paths
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
    paths = noted(output, Inside).paths
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

"""In which submodule of the model an operation lies: `meta["module_path"]` of the graph's nodes.

In:   modules that are called while a frame is traced; sources of parameters.
Out:  "h.0.mlp" in the meta of each node that is made meanwhile, and of a parameter's; a parameter
      is called so in the graph, too: "h_0_mlp_weight".

    >>> [node.meta.get("module_path") for node in record.graph.graph.nodes]

Explanations group a graph by it.  Mirrors `nn_module_stack` of torch/_dynamo/output_graph.py.
"""

from .extending import extends
from ..sources import module_path
from ..variables.base import Args, Frame, Named, Variable
from ..variables.nn_modules import ModuleVar

plain_forward = ModuleVar.run_forward


@extends(ModuleVar, "run_forward")
def forward_inside(module: ModuleVar, tx: Frame, args: Args, kwargs: Named) -> Variable:
    paths = tx.output.module_paths
    paths.append(module_path(module.source))
    try:
        return plain_forward(module, tx, args, kwargs)
    finally:
        paths.pop()

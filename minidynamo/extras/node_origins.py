"""Where in the program each node of a graph comes from.

In:   nodes as they are made.
Out:  in their meta `source_line` (file, line, its text), `user_stack` (the calls that led there)
      and `instruction` (at which byte of the root's code it ends); `stack_trace`, which torch.fx
      prints where a node fails.

    >>> [node.meta["source_line"][1:] for node in record.graph.graph.nodes if node.op[0] == "c"]
    [(12, "y = torch.relu(x)")]

Without this file explanations and messages name no lines.
"""

import linecache
from typing import Any

import torch

from .extending import extends
from ..graph_capture import OutputGraph
from ..symbolic_eval.evaluator import RootFrame


plain_description = OutputGraph.describe_node


@extends(OutputGraph, "describe_node")
def description_with_origin(
    output: OutputGraph, tx: Any, node: torch.fx.Node, result: Any
) -> torch.fx.Node:
    stack = tx.user_stack()
    file, line, function = stack[-1]
    text = linecache.getline(file, line).strip()
    node.meta["user_stack"] = stack
    node.meta["instruction"] = instruction_end(output.root)
    node.meta["source_line"] = (file, line, text)
    node.stack_trace = f'  File "{file}", line {line}, in {function}\n    {text}'
    return plain_description(output, tx, node, result)


def instruction_end(root: RootFrame) -> int:
    """The byte of the code at which the native instruction ends that is being run."""
    return root.info.operations[root.pc - 1].instruction.end

"""Variables as arguments and results of the graph's nodes.

In:   a variable, before an op runs; what it gave, afterwards.
Out:  what the op is run with (`to_fake`), and what its node says (`to_node`); the variable of the
      result (`wrap_output`; `wrap_result` for what is no tensor).

These functions are methods of `OutputGraph`.  Mirrors torch/_dynamo/variables/builder.py
(`wrap_fx_proxy`).
"""

import operator
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from .exceptions import Break
from .variables.base import Variable
from .variables.constant import ConstantVar, is_constant_value
from .variables.containers import ListVar, TupleVar
from .variables.registry import RESULTS
from .variables.symbolic import SYMBOLIC, SymVar, wrap_symbolic
from .variables.tensor import TensorVar

if TYPE_CHECKING:
    from .graph_capture import OutputGraph


def holds_tensor(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(holds_tensor, value))
    return isinstance(value, torch.Tensor)


def wrap_output(output: "OutputGraph", node: torch.fx.Node, value: Any) -> Variable:
    """The variable of what a node gives."""
    if isinstance(value, torch.Tensor):
        known = output.by_fake.get(id(value))
        if known is None:
            known = output.by_fake[id(value)] = TensorVar(node, value)
        return known
    if not isinstance(value, (tuple, list)):
        return output.wrap_result(value)
    items: list[Variable] = []
    for n, item in enumerate(value):
        if holds_tensor(item):
            part = output.graph.create_node("call_function", operator.getitem, (node, n))
            part.meta = dict(node.meta, example_value=item)
            items.append(output.wrap_output(part, item))
        else:
            items.append(output.wrap_result(item))
    return ListVar(items) if type(value) is list else TupleVar(items, type(value))


def to_fake(output: "OutputGraph", variable: Any) -> Any:
    """The value to run with fake tensors."""
    kind = type(variable)
    if kind is TensorVar or kind is SymVar:
        return variable.fake
    return variable.argument(output.to_fake)


def to_node(output: "OutputGraph", variable: Any) -> Any:
    """The argument as it stands in the graph."""
    kind = type(variable)
    if kind is TensorVar:
        return variable.node
    if kind is SymVar:
        return output.symbolic_node(output.frame, variable.value)
    return variable.argument(output.to_node)


def wrap_result(output: "OutputGraph", value: Any) -> Variable:
    """A value that a folded call gave: constants and containers of constants."""
    if is_constant_value(value):
        return ConstantVar(value)
    kind = type(value)
    if kind in SYMBOLIC:
        return wrap_symbolic(value)
    if kind in (tuple, torch.Size):
        return TupleVar([output.wrap_result(item) for item in value], kind)
    if kind is list:
        return ListVar([output.wrap_result(item) for item in value])
    rule = RESULTS.of(value)
    if rule is None:
        raise Break("constant", f"a call gave a {kind.__name__}")
    return rule(output, value)

"""The nodes of the captured graph, and the `fx.GraphModule` that a backend gets.

In:   a variable, before an op runs, and what the op gave; at the end, the `OutputGraph` of a
      finished attempt and the variables that the frame needs of it.
Out:  what the op is run with (`to_fake`), and what its node says (`to_node`); the variable of the
      result (`wrap_output`; `wrap_result` for what is no tensor); the module, with its names and
      parameters, and example inputs.

    >>> module, example_inputs = output.finish(outputs)

These functions are methods of `OutputGraph`.  Mirrors torch/_dynamo/variables/builder.py
(`wrap_fx_proxy`) and output_graph.py (`compile_and_call_fx_graph`).
"""

import functools
import operator
import re
import types
from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.fx.graph import inplace_methods

from miniinductor.autograd.eager_graphs import is_printed_exactly
from miniinductor.sizes.symbols import SYMBOLIC

from ..errors import Break, SkipFrame
from ..variables.base import Variable, current
from ..variables.constant import ConstantVar, is_constant_value
from ..variables.dicts import ListVar, TupleVar
from ..variables.nn_modules import module_name
from ..variables.symbolic import SymVar, symbolic_node, unwritten_fake, wrap_symbolic
from ..variables.tensor import TensorVar
from ..variables.builder import pinned_result
from ..variables.containers import result_dict, result_set

if TYPE_CHECKING:
    from .output_graph import OutputGraph


def check_names(output: "OutputGraph", gm: torch.fx.GraphModule) -> None:
    """torch.fx writes torch's functions by their names, which must mean those of the nodes, now and
    later: `F.relu = mine`."""
    called = {node.target: None for node in gm.graph.nodes if node.op == "call_function"}
    for target in filter(torch.fx.graph._is_from_torch, called):
        name = torch.fx.node._get_qualified_name(target)
        *path, last = name.split(".")
        module: Any = functools.reduce(getattr, path[1:], torch) if path[:1] == ["torch"] else None
        if not isinstance(module, types.ModuleType):
            continue
        if not hasattr(module, last):
            raise SkipFrame(f"{name} is no name of torch's")
        if last in vars(module):
            found = vars(module)[last]
            output.guard_fixed(output.globals_of(vars(module)).source.item(last), found)
            if found is not target:
                raise SkipFrame(f"{name} is the program's own")


FUNCTIONS: dict[Any, Any] = {operator.pow: pow}  # an operator -> what is printed as a call of it
for _name in inplace_methods:
    if _name != "setitem":  # `c += t` of a number is `c + t`
        _plain = getattr(operator, _name[1:], None) or getattr(operator, _name[1:] + "_")
        FUNCTIONS[getattr(operator, _name)] = FUNCTIONS.get(_plain, _plain)


def check_printed(value: Any) -> Any:
    """An argument of a node.  Break if torch.fx would print another number (of complex zeros)."""
    if not is_printed_exactly(value):
        raise Break("constant", f"the number {value!r} in a graph")
    return value


def finish(output: "OutputGraph", outputs: list[Any]) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The captured GraphModule, which returns `outputs` as a tuple, and its example inputs: the
    program's tensors, or fake ones where sizes are symbols."""
    drop_unused_inputs(output, {variable.node for variable in outputs})
    output.graph.output(tuple(variable.node for variable in outputs))
    made = torch.fx.GraphModule(output.attributes, output.graph, "CapturedGraph")
    check_names(output, made)
    name_parameters(output, made)
    has_symbols = any(type(variable) is SymVar for variable in output.inputs)
    return made, [
        unwritten_fake(output, variable)
        if has_symbols and type(variable) is not SymVar
        else variable.value
        for variable in output.inputs
    ]


def name_parameters(output: "OutputGraph", made: torch.fx.GraphModule) -> None:
    """Parameters and buffers lie in the module that has them."""
    for node in made.graph.nodes:
        known = output.by_fake.get(id(node.meta.get("example_value")))
        if node.op == "get_attr" and known is not None and known.source is not None:
            node.meta["module_path"] = module_name(known.source).rpartition(".")[0]


def drop_unused_inputs(output: "OutputGraph", results: set[torch.fx.Node]) -> None:
    """Remove inputs and attributes that the graph does not use.  Those stay that a node reads or
    the graph returns, and symbols that are sizes of such inputs."""

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


# Names of those that may draw random numbers.
DRAWS = re.compile(
    r"rand|dropout|bernoulli|multinomial|poisson|rrelu|gumbel|attention"
    r"|(normal|uniform|exponential|cauchy|geometric)_?$|^(lstm|gru|rnn)"
)


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
        return symbolic_node(output, current(), variable.value)
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
    if kind is dict:
        return result_dict(output, value)
    return (result_set if kind in (set, frozenset) else pinned_result)(output, value)


def storage(fake: torch.Tensor) -> int:
    return fake.untyped_storage()._cdata if fake.layout is torch.strided else id(fake)


def name_of(node: torch.fx.Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def argument(node: torch.fx.Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def draws(node: torch.fx.Node) -> bool:
    """May the node draw random numbers?"""
    name = name_of(node)
    if not node.op.startswith("call") or not DRAWS.search(name):
        return False
    if "attention" in name:
        return bool(argument(node, 4, "dropout_p"))
    return "dropout" not in name or bool(argument(node, 2, "training", True))

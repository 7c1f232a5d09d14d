"""Variables as arguments and results of the graph's nodes.

In:   a variable, before an op runs; what it gave, afterwards.
Out:  what the op is run with (`to_fake`), and what its node says (`to_node`); the variable of the
      result (`wrap_output`; `wrap_result` for what is no tensor, which is guarded: `answer`).

    if x.is_contiguous(): ...       # FLAG: x.is_contiguous() is True
    torch.get_num_threads()         # STATE: it gives the same again

These functions are methods of `OutputGraph`.  Mirrors torch/_dynamo/variables/builder.py
(`wrap_fx_proxy`).
"""

import functools
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


# ---- operations whose result is no tensor, or says less than eager's
# methods that tell which object a tensor is, and where its memory lies
OF_ITSELF = {"__hash__", "data_ptr", "const_data_ptr", "mutable_data_ptr", "storage_type"}


def answer(
    output: "OutputGraph",
    tx: Any,
    op: str,
    target: Any,
    args: Any,
    kwargs: Any,
    result: Any,
    written: Any,
) -> Variable:
    """A call that gave no tensor: it read a flag of a tensor or the process's state, gave or
    wrote."""
    name = target if op == "call_method" else target.__name__
    if args and name != "type" and (name in OF_ITSELF or tells_of_itself(result)):
        raise Break("string", f"{name}() of a tensor: a fake one would answer for it")
    if not args and not kwargs and name.startswith(("is_", "get_", "are_")):
        guard_state(output, functools.partial(target), result)
    elif len(args) == 1 and not kwargs:
        guard_flag(output, args[0], name)
    if result is None and (op == "call_function" or written):
        node = output.add_node(tx, op, target, args, kwargs, None)
        output.written += [(node, tensor) for tensor in written]
    return output.wrap_result(result)


def tells_of_itself(result: Any) -> bool:
    """Is it text, a class or a function, or a list of such?  A fake tensor tells of itself."""
    if isinstance(result, (list, tuple)):
        return any(map(tells_of_itself, result))
    return isinstance(result, (str, bytes, type)) or callable(result)


def guard_state(output: "OutputGraph", call: functools.partial[Any], value: Any) -> None:
    """`call` (a functools.partial) read `value` from the process's state: it must give the same
    again.  What the frame itself sets is guarded on entry."""
    name = call.func.__name__
    if output.state.before and ("grad" in name or "autocast" in name):
        return
    named = [f"{k}={v!r}" for k, v in call.keywords.items()]
    arguments = ", ".join([*map(repr, call.args), *named])
    check = f"{{0}}({arguments}) == {{pin}}"
    output.guard(output.tree.pinned(call.func), ("STATE", arguments), check, value)


def guard_flag(output: "OutputGraph", variable: Variable, name: str) -> None:
    """`tensor.is_...()` was read of an input."""
    if type(variable) is not TensorVar or variable.value is None:
        return
    if name.startswith(("is_", "_is_")) and hasattr(torch.Tensor, name):
        check = f"{{0}}.{name}() is {getattr(variable.value, name)()}"
        output.guard(variable.source, ("FLAG", name), check)

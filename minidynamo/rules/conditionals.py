"""torch.cond: the branch that a tensor decides about is chosen when the graph runs.

    y = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,))

In, out: see `symbolic_eval.registry`.  Both branches are traced, each into a graph of its own, and
one node calls the one or the other; what surrounds it is compiled (backends that trace again get
the graph cut there, `miniinductor/extras/pieces.py`), the branches run eagerly.  Where the
condition is a number or a decision about sizes, the branch is traced in place.  A branch that
writes, draws or gives what it was given breaks the graph.
Mirrors CondHigherOrderVariable of torch/_dynamo/variables/higher_order_ops.py.
# PyTorch: the branches are compiled, too.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch._higher_order_ops.cond import cond_op
from torch._subclasses.fake_tensor import FakeTensor

from miniinductor.sizes.symbols import alike

from ..exceptions import Break
from ..extras.graph_errors import draws
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable, peek
from ..variables.containers import SequenceVar
from ..variables.functions import CallableVar
from ..variables.registry import BY_VALUE, PINNED, by_identity
from ..variables.tensor import TensorVar
from .checkpoints import tensors_in, written_objects

HINT = "make branches pure functions of tensors, with results that are alike"


class Linked(torch.autograd.Function):
    """The results, as functions of all that either branch reads: what the chosen one does not read
    gets a gradient of zeros, as eager's torch.cond gives it."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.read = tensors[count:]
        # (copies: autograd refuses writes to what a function of Python's gives as a view)
        return tuple([tensor.clone() for tensor in tensors[:count]])

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        return None, *gradients, *map(torch.zeros_like, ctx.read)


class Branches:
    """What the node of a `torch.cond` calls: its condition, and all that a branch reads."""

    __name__ = __qualname__ = "cond"
    runs_apart = True  # for backends: no operation of one kernel

    def __init__(self, tx: Frame, yes: torch.fx.GraphModule, no: torch.fx.GraphModule) -> None:
        self.fake_mode, self.yes, self.no = tx.output.fake_mode, yes, no

    def __call__(self, condition: torch.Tensor, *operands: Any) -> Any:
        if not isinstance(condition, FakeTensor):
            results = (self.yes if condition else self.no)(*operands)
            learning = [x for x in operands if isinstance(x, torch.Tensor) and x.requires_grad]
            if not learning or not torch.is_grad_enabled():
                return results
            return Linked.apply(len(results), *results, *learning)
        refuse_tracing(self, condition)
        results, others = self.yes(*operands), self.no(*operands)
        if len(results) != len(others) or not all(map(alike, results, others)):
            raise Break("cond", "torch.cond with branches whose results differ in kind", HINT)
        return results


def refuse_tracing(node: Any, tensor: FakeTensor) -> None:
    """A backend that traces the graph again would see one branch, or one turn of a loop."""
    if tensor.fake_mode is not node.fake_mode:
        raise RuntimeError(f"{node.__name__} is not traced again: a backend runs it as it is")


class Apart:
    """A function that is traced into a graph of its own: `nodes`, which are still in the frame's
    graph, and the nodes of its `results`."""

    def __init__(
        self, tx: Frame, function: Variable, operands: list[Variable], name: str = "torch.cond"
    ) -> None:
        output = self.output = tx.output
        before, written = set(output.graph.nodes), len(output.written)
        calls = output.calls
        objects, symbols = written_objects(tx), set(output.symbol_nodes)
        captured = contents(function)
        self.result: Any = function.call(tx, operands, {})
        self.nodes = [
            node
            for node in output.graph.nodes
            if node not in before and node.op not in ("placeholder", "get_attr")
        ]
        self.results = [tensor.node for tensor in tensors_in(self.result)]
        writes = len(output.written) > written or len(written_objects(tx)) > len(objects)
        writes = writes or looked_at(contents(function)) != looked_at(captured)
        if writes or any(map(draws, self.nodes)):
            raise Break("cond", f"{name} with a branch that writes or draws", HINT)
        if not self.results or not set(self.results) <= set(self.nodes):
            raise Break("cond", f"{name} with a branch that gives what it was given", HINT)
        output.calls = calls
        for symbol in set(output.symbol_nodes) - symbols:
            if output.symbol_nodes[symbol] in self.nodes:
                del output.symbol_nodes[symbol]

    def reads(self) -> list[torch.fx.Node]:
        """The nodes from outside that it reads."""
        own = set(self.nodes)
        return [n for node in self.nodes for n in node.all_input_nodes if n not in own]

    def cut_out(self, inputs: list[torch.fx.Node]) -> torch.fx.GraphModule:
        """The graph of its own, which takes `inputs`."""
        graph, copies = torch.fx.Graph(), {}
        for node in inputs:
            copies[node] = graph.placeholder(node.name)
        for node in self.nodes:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[node] for node in self.results))
        for node in reversed(self.nodes):
            self.output.graph.erase_node(node)
        return torch.fx.GraphModule(torch.nn.Module(), graph, "Branch")


def contents(function: Any) -> list[Any]:
    """What a function finds in its closure, and in the containers there."""
    found: list[Any] = []
    for cell in getattr(function, "closure", ()):
        content = peek(cell.content) if cell.content is not None else None
        items = getattr(getattr(content, "fields", None) or content, "items", ())
        found += [cell.content, list(items.items() if isinstance(items, dict) else items)]
    return found


def looked_at(found: Any) -> Any:
    """The same with what stands behind each value at which somebody has looked: reading a variable
    of the closure is no write."""
    if isinstance(found, (list, tuple)):
        return [looked_at(item) for item in found]
    return peek(found) if isinstance(found, Variable) else found


def shape_of(result: Any) -> Any:
    """A result's nesting, to compare."""
    if isinstance(result, SequenceVar):
        return [result.cls, *map(shape_of, result.items)]
    return type(result)


def in_place_of(result: Any, tensors: Any) -> Variable:
    """The result with the next of `tensors` for each of its own."""
    if isinstance(result, SequenceVar):
        return type(result)([in_place_of(item, tensors) for item in result.items], result.cls)
    return next(tensors)


@rule(torch.cond, cond_op)
def _cond(tx: Frame, pred: Any, true_fn: Any, false_fn: Any, operands: Any = None) -> Variable:
    given = [] if operands is None else tx.listed(operands)
    if type(pred) is not TensorVar:
        return (true_fn if pred.truth(tx) else false_fn).call(tx, given, {})
    if pred.fake.numel() != 1:
        raise Break("cond", "torch.cond of a tensor that holds more than one number", HINT)
    yes = Apart(tx, true_fn, list(given))
    no = Apart(tx, false_fn, list(given))
    plain = {TensorVar, *(item.cls for item in (yes.result,) if isinstance(item, SequenceVar))}
    if shape_of(yes.result) != shape_of(no.result) or not plain <= {TensorVar, tuple, list}:
        raise Break("cond", "torch.cond with branches whose results differ in kind", HINT)
    operands_read = [tensor.node for value in given for tensor in tensors_in(value)]
    inputs = list(dict.fromkeys([*operands_read, *yes.reads(), *no.reads()]))
    variables = [Node(node) for node in inputs]
    branches = Branches(tx, yes.cut_out(inputs), no.cut_out(inputs))
    made: Any = tx.node(branches, [pred, *variables])
    return in_place_of(yes.result, iter(made.items))


class Node(Variable):
    """A node of the graph as an argument."""

    node: torch.fx.Node

    def argument(self, part: Any) -> Any:
        is_fake = getattr(part, "__name__", "") == "to_fake"
        return self.node.meta["example_value"] if is_fake else self.node


# which objects torch.ops.higher_order.cond and cond_op are does not change
PINNED.rule(type(cond_op))(lambda builder, value: CallableVar(value))
BY_VALUE.rule(type(cond_op))(by_identity)

"""`y.register_hook(function)` on a tensor that the frame has computed: a node of the graph.

    y = x * 2
    y.register_hook(lambda grad: grad * scale)

In:   a TensorVar and the hook, a function of one gradient.
Out:  one node that registers a function on `y` when the graph runs.  The hook is traced now, and
      its operations become a graph of their own: backward calls no Python of the program's,
      whichever backend compiles the graph, and what the hook reads is guarded.

A hook that does anything but compute breaks the graph.  One on a tensor from outside, which stays
there after the call, is registered behind the graph as it is, and may do what it likes; the tensor
must not be written in this frame, for autograd hands hooks on to what it was before.
Mirrors torch/_dynamo/variables/tensor.py (`method_register_hook`).
"""

from typing import Any

import torch
import torch.utils.hooks

from ..errors import Break
from ..graph.graph_module import draws, storage
from ..rebuild.reconstruct import Codegen
from ..variables.base import Args, Frame, Variable
from ..variables.registry import rule
from ..variables.tensor import TensorVar
from .custom_functions import written_objects

KIND = "tensor method"
HINT = "register the hook outside the compiled function"


def incoming_gradient() -> None:
    """Stands in the graph for a hook's argument while the hook is traced."""


class HandleVar(Variable):
    """What `register_hook` gives: it can be neither used nor kept.  `made`: at which step of the
    root frame, and where the user's program was."""

    cls = torch.utils.hooks.RemovableHandle
    made: tuple[Any, Any]

    def reconstruct(self, cg: Codegen) -> None:
        stack, step = self.made
        raise Break(KIND, "the handle of a hook leaves the frame", HINT, stack, step)


@rule(torch.Tensor.register_hook)
def _register_hook(tx: Frame, tensor: TensorVar, hook: Variable) -> Variable:
    learns = torch.is_grad_enabled() and tensor.of_fake(tx, "requires_grad")
    if tensor.source is not None and learns:
        return on_input(tx, torch.Tensor.register_hook, tensor, hook)
    if not learns or tensor.of_fake(tx, "is_leaf"):
        raise Break(KIND, "Tensor.register_hook() is not traced", HINT)
    made = tx.user_stack(), tx.output.root.group_step
    body, others = traced(tx, hook, tensor.fake)

    def registered(value: torch.Tensor, *seen: Any) -> None:
        if value.requires_grad:
            value.register_hook(lambda gradient: body(gradient, *seen))

    target = registered
    target.__name__ = target.__qualname__ = "register_hook"
    node = tx.output.graph.create_node("call_function", target, (tensor.node, *others))
    tx.output.calls += 1
    tx.output.describe_node(tx, node, None)
    tx.output.hooked.append((tensor, made))
    return HandleVar(made)


@rule(torch.Tensor.register_post_accumulate_grad_hook)
def _register_post_accumulate_grad_hook(tx: Frame, tensor: TensorVar, hook: Variable) -> Variable:
    function = torch.Tensor.register_post_accumulate_grad_hook
    learns = tensor.of_fake(tx, "requires_grad") and tensor.of_fake(tx, "is_leaf")
    if tensor.source is None or not learns:
        raise Break(KIND, f"Tensor.{function.__name__}() is not traced", HINT)
    return on_input(tx, function, tensor, hook)


# ---- on tensors from outside
class InputHooks(Variable):
    """All of this frame's, in their order: (what registers one, tensor, hook, stack and step)."""

    cls = list

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[Any, TensorVar, Variable, tuple[Any, int]]] = []

    def replay(self, cg: Codegen) -> None:
        written = {storage(fake) for _, fake in cg.output.written}
        for _, tensor, _, (stack, step) in self.rows:
            if storage(tensor.fake) in written or tensor.mutated:
                raise Break(KIND, "a hook on a tensor that the frame writes", HINT, stack, step)
        parts = [part for register, *row, _ in self.rows for part in (pinned(cg, register), *row)]
        cg.commit_call(register_all, *parts)


def pinned(cg: Codegen, value: Any) -> Any:
    return lambda: cg.pinned(value)


def register_all(*parts: Any) -> None:
    for register, tensor, hook in zip(parts[::3], parts[1::3], parts[2::3]):
        register(tensor, hook)


def on_input(tx: Frame, register: Any, tensor: TensorVar, hook: Variable) -> Variable:
    """register(tensor, hook), behind the graph."""
    made = tx.user_stack(), tx.output.root.group_step
    known = tx.output.input_hooks
    if known is None:
        known = tx.output.input_hooks = tx.output.replayed(InputHooks())
        known.mutated = True
    known.rows.append((register, tensor, hook, made))
    return HandleVar(made)


def traced(tx: Frame, hook: Variable, value: torch.Tensor) -> tuple[torch.fx.GraphModule, Args]:
    """The hook as a graph of the gradient and of other nodes' values; and these nodes."""
    output, graph = tx.output, tx.output.graph
    before = written_objects(tx), len(output.written), set(output.symbol_nodes)
    with torch.no_grad():
        with output.fake_mode:
            fake = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=value.device
            )
        start = output.describe_node(tx, graph.call_function(incoming_gradient), fake)
        gradient = output.by_fake[id(fake)] = TensorVar(start, fake)
        for variable in before[0]:
            variable.mutated = False
        result = hook.call(tx, [gradient], {})
        repeated = written_objects(tx)
        for variable in before[0]:
            variable.mutated = True
    if repeated or len(output.written) > before[1]:
        raise Break(KIND, "a hook that writes", HINT)
    answer = check_answer(result, gradient)
    nodes = list(graph.nodes)
    made = [node for node in nodes[nodes.index(start) + 1 :] if node.op.startswith("call")]
    if any(draws(node) or node.is_impure() for node in made):
        raise Break(KIND, "a hook that draws random numbers or changes a state", HINT)
    output.calls -= len(made)
    for expr in [expr for expr in output.symbol_nodes if expr not in before[2]]:
        if output.symbol_nodes[expr] in made:
            del output.symbol_nodes[expr]
    return moved(graph, start, made, answer)


def check_answer(result: Variable, gradient: TensorVar) -> torch.fx.Node | None:
    """The node of what the hook gives instead of the gradient; None where it leaves that alone."""
    if result.identity() is None:
        return None
    if type(result) is not TensorVar:
        raise Break(KIND, f"a hook that gives {result}", HINT)
    ours, given = gradient.fake, result.fake
    alike = ours.dtype == given.dtype and ours.device == given.device
    if not alike or list(ours.shape) != list(given.shape):
        raise Break(KIND, "a hook that gives a gradient of another kind", HINT)
    return result.node


def moved(
    graph: torch.fx.Graph, start: torch.fx.Node, made: list[Any], answer: torch.fx.Node | None
) -> tuple[torch.fx.GraphModule, list[Any]]:
    """The nodes of the hook, as a graph of their own, and the nodes from outside that it reads."""
    inside, others = {start, *made}, {}
    for node in made:
        others.update(dict.fromkeys(n for n in node.all_input_nodes if n not in inside))
    if answer is not None and answer not in inside:
        others[answer] = None
    body = torch.fx.Graph()
    copies = {start: body.placeholder("gradient")}
    for number, node in enumerate(others):
        copies[node] = body.placeholder(f"seen{number}")
    for node in made:
        copies[node] = body.node_copy(node, copies.__getitem__)
    body.output(None if answer is None else copies[answer])
    for node in reversed([start, *made]):
        graph.erase_node(node)
    return torch.fx.GraphModule(torch.nn.Module(), body), list(others)


def refuse_results(cg: Codegen) -> None:
    """A compiled graph gives the tensor back without its hook: what is registered on it later, by
    whoever has it then, would see the gradient before this hook and not behind it."""
    for variable, (stack, step) in cg.output.hooked:
        if cg.output.generates_code and variable in cg.outputs:
            raise Break(KIND, "a tensor with a hook leaves the frame", HINT, stack, step)

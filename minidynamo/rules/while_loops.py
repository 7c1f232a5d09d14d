"""torch.while_loop: how often its body runs is known when the graph runs.

    i, x = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

In, out: see `symbolic_eval.registry`.  Condition and body are traced once, each into a graph of its
own as a branch of `torch.cond` is (conditionals.py), with tensors that nothing is known of; one
node runs them, eagerly.  What is carried are tensors, and the body gives tensors that are alike;
with gradients, numbers or nests the graph breaks.
Mirrors WhileLoopHigherOrderVariable of torch/_dynamo/variables/higher_order_ops.py.
# PyTorch: condition and body are compiled, too.
"""

from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor

from miniinductor.sizes.symbols import alike

from ..exceptions import Break
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.containers import SequenceVar, TupleVar
from ..variables.tensor import TensorVar
from .conditionals import Apart, Node, refuse_tracing
from .torch_state import at

KIND, NAME = "while_loop", "torch.while_loop()"
HINT = "carry a tuple of tensors, and give tensors that are alike, newly made"


def unknown(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor like it, of which fake tensors know no numbers (of `torch.tensor(0)` they do)."""
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


class Loop:
    """What the node calls: with what is carried at first, then all that condition and body read."""

    __name__ = __qualname__ = "while_loop"
    runs_apart = True  # for backends: no operation of one kernel

    def __init__(self, tx: Frame, carried: int, go_on: Any, body: Any) -> None:
        self.fake_mode, self.carried = tx.output.fake_mode, carried
        self.go_on, self.body = go_on, body

    def __call__(self, *operands: Any) -> Any:
        carried, read = operands[: self.carried], operands[self.carried :]
        fakes = [operand for operand in operands if isinstance(operand, FakeTensor)]
        if fakes:
            refuse_tracing(self, fakes[0])
            return self.checked(carried, read)
        if not self.go_on(*operands)[0]:
            return tuple([tensor.clone() for tensor in carried])
        while True:
            carried = self.body(*carried, *read)
            if not self.go_on(*carried, *read)[0]:
                return carried

    def checked(self, carried: Any, read: Any) -> Any:
        """What one turn gives, which is like what it is given."""
        (answer,) = self.go_on(*carried, *read)
        results = self.body(*carried, *read)
        if answer.dim() or answer.dtype is not torch.bool:
            raise Break(KIND, f"{NAME} with a condition that is not one truth", HINT)
        if len(results) != len(carried) or not all(map(alike, results, carried)):
            raise Break(KIND, f"{NAME} with a body that gives tensors of another kind", HINT)
        return results


@rule(at("while_loop"), at("_higher_order_ops.while_loop"))
def _while_loop(tx: Frame, cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Variable:
    output, given = tx.output, tx.listed(carried_inputs)
    given = [value.realize(tx) for value in given]
    if not given or any(type(value) is not TensorVar for value in given):
        raise Break(KIND, f"{NAME} that carries something else than tensors", HINT)
    tensors: list[Any] = given
    calls = output.calls
    carried: list[Any] = [tx.node(unknown, [value]) for value in tensors]
    go_on = Apart(tx, cond_fn, list(carried), NAME)
    body = Apart(tx, body_fn, list(carried), NAME)
    results = body.result
    flat = isinstance(results, SequenceVar) and results.cls in (tuple, list)
    if not flat or [item.node for item in results.items] != body.results:
        raise Break(KIND, f"{NAME} with a body that gives no tuple of tensors", HINT)
    if type(go_on.result) is not TensorVar:
        raise Break(KIND, f"{NAME} with a condition that is no tensor", HINT)
    own = [value.node for value in carried]
    read = [node for node in (*go_on.reads(), *body.reads()) if node not in own]
    inputs = [*own, *dict.fromkeys(read)]
    learning = [node.meta["example_value"] for node in read] + [v.fake for v in tensors]
    if torch.is_grad_enabled() and any(getattr(v, "requires_grad", False) for v in learning):
        raise Break(KIND, f"{NAME} with gradients", HINT)
    loop = Loop(tx, len(own), go_on.cut_out(inputs), body.cut_out(inputs))
    output.calls = calls
    operands: list[Variable] = [*given, *map(Node, inputs[len(own) :])]
    for node in own:
        output.graph.erase_node(node)
    made: Any = tx.node(loop, operands)
    return TupleVar(list(made.items))

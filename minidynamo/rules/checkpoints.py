"""torch.utils.checkpoint: the body is traced in its place, and backward computes it again.

    y = checkpoint(block, x, use_reentrant=False)

In, out: see `symbolic_eval.registry`.  Nodes of the body are marked, and the backward half of
miniinductor computes what they give from the body's inputs (`autograd/partition.py`); random
numbers are kept.  The backends "eager" and "aot_eager" keep all, as if there were no checkpoint.
A body that writes to what it has not made (the statistics of a batch norm) would write twice in
plain Python: it breaks the graph, as do functions that choose what to keep.
Mirrors torch/_dynamo/variables/higher_order_ops.py (CheckpointHigherOrderVariable).
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.checkpoint as torchs

from ..exceptions import Break
from ..extras.graph_errors import draws
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from ..variables.containers import DictVar, SequenceVar
from ..variables.functions import CellVar
from ..variables.tensor import TensorVar

HINT = "use checkpoint(function, ..., use_reentrant=False)"
OPTIONS = {  # -> what may be given
    "context_fn": (torchs.noop_context_fn,),
    "debug": (False,),
    "preserve_rng_state": (True, False),
    "determinism_check": ("default", "none"),
    "early_stop": (True, False),
}


@rule(torchs.checkpoint)
def _checkpoint(tx: Frame, function: Any, /, *args: Any, **kwargs: Any) -> Variable:
    reentrant = kwargs.pop("use_reentrant", None)
    if reentrant is None or reentrant.identity() not in (True, False):
        raise Break("checkpoint", "torch.utils.checkpoint warns of an unsaid use_reentrant", HINT)
    keeps = kwargs.get("preserve_rng_state")
    draws_anew = keeps is not None and keeps.identity() is False
    for name, allowed in OPTIONS.items():
        if name in kwargs and kwargs.pop(name).identity() not in allowed:
            raise Break("checkpoint", f"torch.utils.checkpoint with {name}", HINT)
    learning = any(isinstance(value, TensorVar) and value.fake.requires_grad for value in args)
    if reentrant.identity() and torch.is_grad_enabled() and (kwargs or not learning):
        text = "a checkpoint with use_reentrant=True, whose arguments need no gradients"
        raise Break("checkpoint", text, HINT)
    return body(tx, function, args, kwargs, draws_anew)


def body(tx: Frame, function: Any, args: Any, kwargs: Any, draws_anew: bool = False) -> Variable:
    """function(*args, **kwargs), its nodes marked: those of the results are kept."""
    output = tx.output
    last = next(iter(reversed(output.graph.nodes)), None)
    writes, changed = len(output.written), written_objects(tx)
    for variable in changed:
        variable.mutated = False
    result = function.call(tx, list(args), kwargs)
    repeated = written_objects(tx)
    for variable in changed:
        variable.mutated = True
    written = [tensor for _, tensor in output.written[writes:]]
    if torch.is_grad_enabled() and (repeated or not all(is_bodys(tx, t, last) for t in written)):
        text = "a checkpointed function that writes, and would write again in the backward pass"
        raise Break("checkpoint", text, "write outside the checkpoint")
    results = {id(tensor.node) for tensor in tensors_in(result)}
    for node in reversed(output.graph.nodes):
        if node is last:
            break
        if node.op.startswith("call"):
            if draws_anew and torch.is_grad_enabled() and draws(node):
                text = "random numbers under torch.utils.checkpoint with preserve_rng_state=False"
                raise Break("checkpoint", text, HINT)
            node.meta["checkpointed"] = "result" if id(node) in results else "body"
    return result


def is_bodys(tx: Frame, tensor: torch.Tensor, last: torch.fx.Node | None) -> bool:
    """Is its memory made by the body, behind the node `last`?  What is written there is computed
    again with the rest."""
    own, in_body = memory_of(tensor), False
    for node in tx.output.graph.nodes:
        given = node.meta.get("example_value")
        is_made = in_body and node.op.startswith("call")
        if not is_made and isinstance(given, torch.Tensor) and memory_of(given) == own:
            return False
        in_body = in_body or node is last
    return last is not None


def memory_of(tensor: torch.Tensor) -> int | None:
    """Tensors that share memory have the same; None: it has none that can be told."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def written_objects(tx: Frame) -> list[Any]:
    """The objects, globals and cells from outside that the frame has written so far."""
    output = tx.output
    known: list[Any] = [*output.sourced, *[variable for variable, _ in output.memo.values()]]
    frame: Any = tx
    while frame is not None:
        known += [cell for cell in frame.cells.values() if type(cell) is CellVar]
        frame = frame.parent
    return [variable for variable in known if variable.mutated]


def tensors_in(value: Any) -> Iterator[TensorVar]:
    if isinstance(value, TensorVar):
        yield value
    elif isinstance(value, SequenceVar):
        for item in value.items:
            yield from tensors_in(item)
    elif isinstance(value, DictVar):
        for _, item in value.items.values():
            yield from tensors_in(item)

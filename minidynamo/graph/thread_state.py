"""The thread's state, where a frame changes it: grad mode, autocast.

In:   the `StateChanges` that `functions/torch_state.py` writes down while tracing.
Out:  the state as it was, once the frame is traced; code that sets it as the frame left it.

    with torch.no_grad():
        y = x + 1
        graph_break()       # the replacement code sets grad mode to False again behind the graph

Changes are nodes of the graph, and made while tracing, for the ops that follow.  Left out:
inference mode and devices that are entered in a frame (the graph breaks there).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..variables.base import RealVar, Variable
from ..variables.constant import ConstantVar

if TYPE_CHECKING:
    from ..rebuild.reconstruct import Codegen
    from .output_graph import OutputGraph

# what a program may set for its thread: setter -> getter
STATES: dict[Callable, Callable] = {}


# ---- while tracing
@dataclass
class StateChanges:
    """What a frame does to the thread's state."""

    # (setter, its first arguments) -> value, of what the frame sets
    before: dict[Any, Any] = field(default_factory=dict)
    after: dict[Any, Any] = field(default_factory=dict)
    autocast_depth: int = 0  # autocast regions entered less those left


def call_state(output: "OutputGraph", tx: Any, setter: Any, values: Sequence[Any]) -> torch.fx.Node:
    """A change of the thread's state: made now for the ops that follow, and a node of the graph,
    which does not count as one that computes something."""
    constants: list[Variable] = [ConstantVar(value) for value in values]
    node = output.add_node(tx, "call_function", setter, constants, {}, None)
    output.calls -= 1
    setter(*values)
    return node


@contextmanager
def put_back(output: "OutputGraph") -> Iterator[None]:
    """The state is as it was once the frame is traced; what the frame left changed is written down
    for the replacement code."""
    changes = output.state
    try:
        yield
    finally:
        for (setter, key), value in changes.before.items():
            final = STATES[setter](*key)
            if final != value:
                changes.after[setter, key] = final
        set_all(changes.before)
        setters = [setter for setter, _ in changes.before]
        if changes.autocast_depth or torch.set_autocast_cache_enabled in setters:
            torch.clear_autocast_cache()  # of fake tensors


def set_all(values: dict[Any, Any]) -> None:
    for (setter, key), value in values.items():
        setter(*key, value)


# ---- the replacement code
def leave_as_the_frame(cg: "Codegen") -> None:
    """The state is what the traced code made of it: grad mode and the like, and how deep in
    autocast regions it is."""
    changes = cg.output.state
    calls: list[tuple] = [(setter, *key, final) for (setter, key), final in changes.after.items()]
    deeper = changes.autocast_depth > 0
    one_region = torch.autocast_increment_nesting if deeper else torch.autocast_decrement_nesting
    calls += [(one_region,)] * abs(changes.autocast_depth)
    for function, *args in calls:
        cg.call_object(function, *map(RealVar, args))
        cg.emit("POP_TOP")

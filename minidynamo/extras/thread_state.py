"""The thread's state, where a frame changes it: grad mode, autocast, inference mode, a device.

In:   the `StateChanges` that `rules/torch_state.py` writes down while tracing.
Out:  the state as it was, once the frame is traced; code that sets it as the frame left it; a graph
      that puts it back if it raises.

    with torch.no_grad():
        y = x + 1
        graph_break()       # the replacement code sets grad mode to False again behind the graph

Changes are nodes of the graph, and made while tracing, for the ops that follow.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from ..variables.base import RealVar, Variable
from ..variables.constant import ConstantVar
from ..variables.tensor import TensorVar

if TYPE_CHECKING:
    from ..graph_capture import OutputGraph
    from ..reconstruct import Codegen

# what a program may set for its thread: setter -> getter
STATES: dict[Callable, Callable] = {}
CONTEXTS = {"InferenceMode": torch._C._InferenceMode, "device": torch.device}


# ---- context managers of C
class Entered(threading.local):
    """`managers`: the context managers of C that this thread's graphs have entered and not left."""

    def __init__(self) -> None:
        self.managers: list[Any] = []


ENTERED = Entered()


def entered(make: Callable[[Any], Any], value: Any) -> Any:
    """A context manager of C, entered: for the code behind a graph break to leave."""
    made = make(value)
    made.__enter__()
    return made


@torch.fx.node.has_side_effect
def enter(kind: str, value: Any) -> None:
    """A node of the graph: enter inference mode (True) or a device; `leave` ends the last one."""
    ENTERED.managers.append(entered(CONTEXTS[kind], value))


@torch.fx.node.has_side_effect
def leave() -> None:
    ENTERED.managers.pop().__exit__(None, None, None)


setattr(enter, "ended_by", leave)  # for whoever runs the graph node by node


def depth() -> int:
    return len(ENTERED.managers)


def unwind(before: int) -> None:
    """Leave what was entered since there were `before` of them."""
    while depth() > before:
        leave()


# ---- while tracing
@dataclass
class StateChanges:
    """What a frame does to the thread's state."""

    # (setter, its first arguments) -> value, of what the frame sets
    before: dict[Any, Any] = field(default_factory=dict)
    after: dict[Any, Any] = field(default_factory=dict)
    # context managers of C (`torch_state.ContextVar`) that the graph has entered and not left
    entered: list[Any] = field(default_factory=list)
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
    before, changes = depth(), output.state
    try:
        yield
    finally:
        for (setter, key), value in changes.before.items():
            final = STATES[setter](*key)
            if final != value or changes.entered:
                changes.after[setter, key] = final
        unwind(before)
        set_all(changes.before)
        setters = [setter for setter, _ in changes.before]
        if changes.autocast_depth or torch.set_autocast_cache_enabled in setters:
            torch.clear_autocast_cache()  # of fake tensors


def set_all(values: dict[Any, Any]) -> None:
    for (setter, key), value in values.items():
        setter(*key, value)


# ---- the replacement code
def push_state(cg: "Codegen", values: dict[Any, Any], nesting: int = 0) -> None:
    """Set grad mode and the like to these values, and go `nesting` autocast regions deeper (or, if
    it is negative, out of so many)."""
    calls: list[tuple] = [(setter, *key, final) for (setter, key), final in values.items()]
    one_region = torch.autocast_increment_nesting
    if nesting < 0:
        one_region = torch.autocast_decrement_nesting
    calls += [(one_region,)] * abs(nesting)
    for function, *args in calls:
        cg.call_object(function, *map(RealVar, args))
        cg.emit("POP_TOP")


def enter_again(cg: "Codegen") -> None:
    """Enter what the traced code has entered and not left.  There may be no graph, or it has left
    that at its end (`leave_as_the_frame`)."""
    for context in cg.output.state.entered:
        push_state(cg, context.state)
        cg.call_object(entered, RealVar(context.make), ConstantVar(context.arg))
        cg.remember(context)
        cg.emit("POP_TOP")


def leave_as_the_frame(cg: "Codegen") -> None:
    """The graph leaves what it has entered; then the state is what the traced code made of it."""
    changes = cg.output.state
    for _ in changes.entered:
        cg.output.graph.call_function(leave)
    push_state(cg, changes.after, changes.autocast_depth)


# ---- around the compiled graph
def as_inference_tensors(compiled: Callable, places: list[int]) -> Callable:
    """`compiled`, whose results at `places` were made in inference mode by the program: tensors of
    that kind, over the same memory."""

    def run(*args: Any) -> list[Any]:
        results = list(compiled(*args))
        with torch.inference_mode():
            for n in places:
                made = results[n]
                if not made.is_inference():
                    results[n] = torch.empty(0, dtype=made.dtype, device=made.device).set_(
                        made.untyped_storage(), made.storage_offset(), made.shape, made.stride()
                    )
        return results

    return run


def restoring(compiled: Callable, state: dict[Any, Any]) -> Callable:
    """`compiled`, whose failure leaves the thread's state as it was."""

    def run(*args: Any) -> Any:
        before = depth()
        try:
            return compiled(*args)
        except BaseException:
            unwind(before)
            set_all(state)
            raise

    return run


def with_state(compiled: Callable, output: "OutputGraph", results: list[Variable]) -> Callable:
    """`compiled`, which gives results of inference mode as such, and puts the state back if it
    raises."""
    places = [
        n
        for n, variable in enumerate(results)
        if type(variable) is TensorVar and variable.fake.is_inference()
    ]
    if places and output.generates_code and not torch.is_inference_mode_enabled():
        compiled = as_inference_tensors(compiled, places)
    before = output.state.before
    return restoring(compiled, dict(before)) if before else compiled

"""The first step of torch's optimizers: `_init_group` fills the state while the frame is traced.

    optimizer = torch.optim.Adam(parameters)
    step = minidynamo.compile(optimizer.step)       # one compilation; the second step reuses it

In:   a call of `_init_group` before anything has been computed or written in the frame.
Out:  the optimizer with its state, as plain Python would have it at this moment; the frame is
      traced anew with it, and its guards are those of every later step.

A program's own optimizers, and a step behind other work, fill their state in the graph.
Mirrors torch/_dynamo/variables/optimizer.py (`call_method` of `_init_group`).
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from ..exceptions import Restart
from ..foreign import ours
from ..symbolic_eval.registry import rule
from ..variables.base import Frame, Variable
from .checkpoints import written_objects

METHOD = "_init_group"
CLASSES = [cls for cls in vars(torch.optim).values() if METHOD in getattr(cls, "__dict__", ())]


def sizes_of_state(optimizer: torch.optim.Optimizer) -> dict[Any, int]:
    """How many things are kept for each parameter."""
    return {parameter: len(kept) for parameter, kept in optimizer.state.items()}


def may_begin(tx: Frame, optimizer: Any, function: Callable) -> bool:
    """Is it all torch's, and nothing before it that plain Python would have done by now?"""
    kind = type(optimizer)
    if not issubclass(kind, torch.optim.Optimizer) or METHOD in vars(optimizer):
        return False
    own = inspect.unwrap(getattr(kind, METHOD, None) or begin) is function
    if not own or not kind.__module__.startswith("torch.optim."):
        return False
    output = tx.output
    return not (output.calls or written_objects(tx))


def begin(optimizer: torch.optim.Optimizer, function: Callable) -> bool:
    """Fill the state of all groups.  Has anything changed?"""
    before = sizes_of_state(optimizer)
    lists = len(inspect.signature(function).parameters) - 2  # what follows (self, group)
    try:
        for group in optimizer.param_groups:
            function(optimizer, group, *[[] for _ in range(lists)])
    except ours(Exception):  # plain Python comes there as well, and says what is wrong
        pass
    return sizes_of_state(optimizer) != before


def first_step(function: Callable) -> Callable[..., Variable]:
    """The rule of a class's `_init_group`."""

    def init_group(tx: Frame, self: Variable, /, *args: Variable, **kwargs: Variable) -> Variable:
        optimizer = getattr(self, "value", None)
        if may_begin(tx, optimizer, function) and begin(optimizer, function):
            raise Restart()
        return tx.inline(tx.output.wrap_pinned(function), [self, *args], kwargs)

    return init_group


for _cls in CLASSES:  # torch.compile, used before in this process, has wrapped them
    _function = inspect.unwrap(vars(_cls)[METHOD])
    rule(_function)(first_step(_function))

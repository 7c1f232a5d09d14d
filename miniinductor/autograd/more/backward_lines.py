"""(coverage) Each op of the backward half has the line of the program whose gradient it computes.

In:   a program's trace, forward and backward (joint.py).  Out: the same, in which the nodes of the
      backward half have the `meta` of their forward node: its line, its module, its origin.

    h = x @ w           # model.py:7        mm(tangent0, t(w)): model.py:7, backward
"""

import bisect
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...hooks import extends
from ..joint import ProgramTrace
from ..tracer import Op, OriginInterpreter, Tracer


@extends(Tracer)
class FollowingTracer(Tracer):
    """before_record: called before each op; it may set `meta`."""

    before_record: Callable[[], None] | None = None

    def __torch_dispatch__(self, func: Op, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.before_record is not None:
            self.before_record()
        return super().__torch_dispatch__(func, types, args, kwargs)


@extends(OriginInterpreter)
class FollowedInterpreter(OriginInterpreter):
    """Autograd numbers its functions as they are made.

    starts: for each node the number of the first one that it makes, which is the number that comes
      next when it starts.  origins: the origin of what it computes."""

    def __init__(self, gm: fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(gm, tracer)
        self.starts: list[int] = []
        self.origins: list[dict[str, Any]] = []

    def run_node(self, node: fx.Node) -> Any:
        self.starts.append(torch._C._autograd._get_sequence_nr())
        result = super().run_node(node)
        self.origins.append(self.tracer.meta)
        return result

    def begin_backward(self) -> None:
        tracer: Any = self.tracer
        tracer.before_record = self.find_origin

    def find_origin(self) -> None:
        """Sets the tracer's `meta` in backward: what autograd computes now has the origin of the
        forward node whose gradient it is.

        That is the last node at whose start the number of autograd's function was not yet given: a
        node that made no function has the same number as the one behind it.  Where two gradients of
        one value are added, the sum counts with the function that gave the later one."""
        function = torch._C._current_autograd_node()
        if function is not None:
            place = bisect.bisect_right(self.starts, function._sequence_nr()) - 1
            origin = self.origins[place] if place >= 0 else {}
            self.tracer.meta = dict(origin, backward=True)


@extends(ProgramTrace)
class FollowedTrace(ProgramTrace):
    def differentiate(self) -> list[torch.Tensor | None]:
        gradients = super().differentiate()
        tracer: Any = self.tracer
        tracer.before_record = None  # which knows the tracer: no cycle is left
        return gradients

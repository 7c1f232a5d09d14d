"""The captured graph, run node by node under the tracer: origins, rules for single calls.

In:   a captured graph and a tracer.  Out: what the graph gives for fake tensors; each recorded op
      knows the FX node and the line of the program that it came from, those of the backward half
      the line whose gradient they compute.

    h = x @ w           # model.py:7        mm(tangent0, t(w)): model.py:7, backward
"""

import bisect
from typing import Any

import torch
from torch import fx

from .rules import CALLS
from .tracer import Tracer


class OriginInterpreter(fx.Interpreter):
    """Runs the captured graph under a tracer, so that each ATen node knows from which FX node and
    line of the user it came.

    starts: autograd numbers its functions as they are made: for each node the number of the first
      one that it makes, which is the number that comes next when it starts.  origins: the origin of
      what each node computes."""

    def __init__(self, gm: fx.GraphModule, tracer: Tracer) -> None:
        super().__init__(gm)
        self.extra_traceback = False  # what is raised keeps its own words
        self.tracer = tracer
        self.starts: list[int] = []
        self.origins: list[dict[str, Any]] = []

    def run_node(self, node: fx.Node) -> Any:
        # (what the front end has written down of each node)
        kept = ("source_line", "stack_trace", "user_stack", "module_path", "checkpointed")
        self.tracer.meta = {key: node.meta[key] for key in kept if key in node.meta}
        self.tracer.meta["origins"] = frozenset([node.name])
        self.starts.append(torch._C._autograd._get_sequence_nr())
        result = super().run_node(node)
        self.origins.append(self.tracer.meta)
        return result

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

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        rule = CALLS.get(target, OriginInterpreter.plain_call)
        return rule(self, target, args, kwargs)

    def plain_call(self, target: Any, args: Any, kwargs: Any) -> Any:
        """The call as torch's own rules take it apart."""
        return super().call_function(target, args, kwargs)

    def call_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        rule = CALLS.get(target, OriginInterpreter.plain_method)
        return rule(self, target, args, kwargs)

    def plain_method(self, target: Any, args: Any, kwargs: Any) -> Any:
        return super().call_method(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        tensor = self.fetch_attr(target)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        self.tracer.constant(tensor, target)
        return self.tracer.to_fake(tensor)

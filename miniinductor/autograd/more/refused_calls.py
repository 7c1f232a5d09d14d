"""Calls that eager refuses, for their dtypes, or because a tensor has no elements: they raise, as
they do in plain Python.

In:   the ops of a trace.  Out: ops that stay whole, and in the graph: eager kernels raise;
      CannotTrace where shapes alone decide, for which the program runs eagerly.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...exceptions import CannotTrace
from ...fakes.mode import EAGER
from ...hooks import Op, extends, op_rule
from ..functionalize import Functionalizer, Node
from ..tracer import Tracer


@op_rule(lambda op: True, order=-1)
def check_nothing(tracer: Tracer, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
    if refused := EAGER.refusal_of_nothing(func, args, kwargs):
        raise CannotTrace(f"eager refuses: {refused}")
    return NotImplemented


@extends(Tracer)
class RefusingTracer(Tracer):
    def decomposition_of(
        self, func: Op | None, args: tuple, kwargs: dict[str, Any]
    ) -> Callable | None:
        """None where eager refuses the call."""
        found = super().decomposition_of(func, args, kwargs)
        return None if found is None or EAGER.refusal(func, args, kwargs) else found


def is_refused(node: Node) -> bool:
    """Would eager refuse this call, which nobody reads, for its dtypes or shapes?  Then it must
    stay, in order to raise; `node.meta["refused"]` tells later passes."""
    if node.users or not isinstance(node.target, torch._ops.OpOverload):
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    node.meta["refused"] = bool(EAGER.refusal_of_unread(node.target, args, kwargs))
    return node.meta["refused"]


@extends(Functionalizer)
class RefusingFunctionalizer(Functionalizer):
    def must_stay(self, node: Node) -> bool:
        return super().must_stay(node) or is_refused(node)

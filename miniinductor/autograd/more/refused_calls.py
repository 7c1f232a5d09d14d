"""Calls that eager refuses, for their dtypes, or because a tensor has no elements: they raise, as
they do in plain Python.

In:   the ops of a trace.  Out: ops that stay whole, and in the graph: eager kernels raise;
      CannotTrace where shapes alone decide, for which the program runs eagerly.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...exceptions import CannotTrace
from ...fakes.mode import EAGER
from ...hooks import extends
from .rules import op_rule
from ..functionalize import Functionalizer, Node
from ..tracer import Op, Tracer


@op_rule(lambda op: True, order=-1)
def check_nothing(tracer: Tracer, func: Op, args: tuple, kwargs: dict[str, Any]) -> Any:
    if refused := EAGER.refusal_of_nothing(func, args, kwargs):
        raise CannotTrace(f"eager refuses: {refused}")
    return NotImplemented


def is_beyond_floats(number: Any) -> bool:
    """A finite number that float32 does not hold, nor int64.  Some kernels take it for an infinity
    (nan_to_num, xlogy); no tensor may be filled with it, as their decompositions do."""
    if type(number) is float:
        return math.isfinite(number) and abs(number) > torch.finfo(torch.float32).max
    return type(number) is int and not -(2**63) <= number < 2**63


@extends(Tracer)
class RefusingTracer(Tracer):
    def decomposition_of(
        self, func: Op | None, args: tuple, kwargs: dict[str, Any]
    ) -> Callable | None:
        """None where eager refuses the call, or takes a number of which it fills no tensor."""
        found = super().decomposition_of(func, args, kwargs)
        if found is None or EAGER.refusal(func, args, kwargs):
            return None
        values = (*args, *kwargs.values())
        is_double = any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in values)
        return None if not is_double and any(map(is_beyond_floats, values)) else found


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

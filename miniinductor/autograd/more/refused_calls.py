"""Calls that eager refuses, for dtypes, shapes or numbers: they raise, as they do in plain Python.

In:   the ops of a trace.  Out: ops that stay whole, and in the graph: eager kernels raise.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ...eager_answers import refusal
from ...hooks import extends
from ..functionalize import Functionalizer, Node
from ..tracer import Op, Tracer


@extends(Tracer)
class RefusingTracer(Tracer):
    def decomposition_of(
        self, func: Op | None, args: tuple, kwargs: dict[str, Any]
    ) -> Callable | None:
        """None where eager refuses the call, or takes a number that no tensor of its dtype
        holds: nan_to_num makes that an infinity."""
        found = super().decomposition_of(func, args, kwargs)
        if func is None or found is None or refusal(func, args, kwargs):
            return None
        values = (*args, *kwargs.values())
        is_double = any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in values)
        numbers = [x for x in values if type(x) in (int, float) and math.isfinite(x)]
        is_beyond = any(abs(x) > torch.finfo(torch.float32).max for x in numbers)
        return None if is_beyond and not is_double else found


def is_refused(node: Node) -> bool:
    """Would eager refuse this call, which nobody reads?  Then it must stay, in order to raise;
    `node.meta["refused"]` tells later passes."""
    if node.users or not isinstance(node.target, torch._ops.OpOverload):
        return False
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
    node.meta["refused"] = bool(refusal(node.target, args, kwargs))
    return node.meta["refused"]


@extends(Functionalizer)
class RefusingFunctionalizer(Functionalizer):
    def must_stay(self, node: Node) -> bool:
        return super().must_stay(node) or is_refused(node)

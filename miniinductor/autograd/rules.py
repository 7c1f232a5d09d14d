"""Rules for single calls that are traced otherwise than torch takes them apart.

In:   functions that a captured program calls.  Out: what each gives, recorded as its rule wants it.

    @call_rule(torch.lstm)                  # a call of the captured graph
    def lstm(interpreter, target, args, kwargs): ...

All other calls are traced as torch's own rules take them apart.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

Op: TypeAlias = torch._ops.OpOverload

# (interpreter, target, args, kwargs) -> what the call gives; `interpreter.plain_call` is the rest
CallRule = Callable[[fx.Interpreter, Any, tuple, dict[str, Any]], Any]
CALLS: dict[Any, CallRule] = {}


def call_rule(*targets: Any) -> Callable[[CallRule], CallRule]:
    """Register how calls of these functions in a captured graph are run under the tracer."""

    def register(rule: CallRule) -> CallRule:
        CALLS.update(dict.fromkeys(targets, rule))
        return rule

    return register


def of_tensors(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """An op's arguments, perhaps nested, with change(t) in place of each tensor t."""
    return fx.node.map_aggregate(
        tree, lambda leaf: change(leaf) if isinstance(leaf, torch.Tensor) else leaf
    )


@functools.cache
def is_composite(func: Op) -> bool:
    """Does ATen define `func` purely in terms of other ops (CompositeImplicitAutograd)?"""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return (
        func.namespace != "prim"  # which has no kernels
        and has(func.name(), "CompositeImplicitAutograd")
        and not has(func.name(), "CPU")
    )

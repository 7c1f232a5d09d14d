"""Rules for single calls and ops that are traced otherwise than torch takes them apart.

In:   functions that a captured program calls, and the ATen ops that come of them.  Out: what each
      gives, recorded as its rule wants it.

    @call_rule(torch.lstm)                  # a call of the captured graph
    def lstm(interpreter, target, args, kwargs): ...

    @op_rule(lambda op: op._schema.is_mutable, order=20)        # an ATen op on its way
    def check_write(tracer, op, args, kwargs): ...

All other calls are traced as torch's own rules take them apart.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

Op: TypeAlias = torch._ops.OpOverload

# (interpreter, target, args, kwargs) -> what the call gives; `interpreter.plain_call` is the rest
CallRule = Callable[[fx.Interpreter, Any, tuple, dict[str, Any]], Any]
CALLS: dict[Any, CallRule] = {}
# (tracer, op, args, kwargs) -> what the op gives, or NotImplemented: the next rule is asked, in the
# end the tracer itself.  A rule may record nodes, or raise CannotTrace.
OpRule = Callable[[Any, Op, tuple, dict[str, Any]], Any]
OP_RULES: list[tuple[int, Callable[[Op], bool], OpRule]] = []


def call_rule(*targets: Any) -> Callable[[CallRule], CallRule]:
    """Register how calls of these functions in a captured graph are run under the tracer."""

    def register(rule: CallRule) -> CallRule:
        CALLS.update(dict.fromkeys(targets, rule))
        return rule

    return register


def op_rule(when: Callable[[Op], bool], order: int) -> Callable[[OpRule], OpRule]:
    """Register a rule for the ATen ops for which when(op) holds; `order` says which comes first."""

    def register(rule: OpRule) -> OpRule:
        OP_RULES.append((order, when, rule))
        rules_of.cache_clear()
        return rule

    return register


@functools.cache
def rules_of(op: Op) -> list[OpRule]:
    """The rules for this op, in their order."""
    found = [(order, rule) for order, when, rule in OP_RULES if when(op)]
    return [rule for _, rule in sorted(found, key=operator.itemgetter(0))]

"""Where coverage enters the driver and the tracer: registries that the core owns and asks.

    @call_rule(torch.lstm)                  # how the tracer runs a call of the captured graph
    def lstm(interpreter, target, args, kwargs): ...

    @op_rule(lambda op: op._schema.is_mutable, order=20)        # and an ATen op on its way
    def check_write(tracer, op, args, kwargs): ...

    @extends(Tracer)                        # a class of the core, made to do more
    class CarefulTracer(Tracer): ...

    JOINERS.append(join_groups)             # several groups of a schedule as one

    >>> [rule.__name__ for rule in rules_of(torch.ops.aten.add_.Tensor)]
    ['check_nothing', 'check_write']

One function in place of another: replaceable.py.

All of them empty, every graph is compiled anew, one with sizes that only the run knows runs
eagerly, and every call is traced as torch's own rules take it apart.
"""

import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import fx

from .records import CompileRecord

if TYPE_CHECKING:
    from .nodes import Schedule, ScheduledNode

Op = torch._ops.OpOverload

# --- classes --------------------------------------------------------------------------------------
Class = TypeVar("Class", bound=type)
EXTENDED: dict[type, list[type]] = {}  # a class of the core -> its subclasses in coverage


def extends(core: type) -> Callable[[Class], Class]:
    """Decorator: this subclass of a class of the core takes its place, with others that do."""

    def register(subclass: Class) -> Class:
        EXTENDED.setdefault(core, []).insert(0, subclass)
        extended.cache_clear()
        return subclass

    return register


@functools.cache
def extended(core: Any) -> Any:
    """The class, with all that coverage adds to it; what was registered last comes first."""
    return type(core.__name__, (*EXTENDED.get(core, ()), core), {})


# --- the tracer -----------------------------------------------------------------------------------
# (interpreter, target, args, kwargs) -> what the call gives; `interpreter.plain_call` is the rest
CallRule = Callable[[fx.Interpreter, Any, tuple, dict[str, Any]], Any]
CALLS: dict[Any, CallRule] = {}


def call_rule(*targets: Any) -> Callable[[CallRule], CallRule]:
    """Register how calls of these functions in a captured graph are run under the tracer."""

    def register(rule: CallRule) -> CallRule:
        CALLS.update(dict.fromkeys(targets, rule))
        return rule

    return register


# (tracer, op, args, kwargs) -> what the op gives, or NotImplemented: the next rule is asked, in the
# end the tracer itself.  A rule may record nodes, or raise CannotTrace.
OpRule = Callable[[Any, Op, tuple, dict[str, Any]], Any]
OP_RULES: list[tuple[int, Callable[[Op], bool], OpRule]] = []


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


# --- the driver -----------------------------------------------------------------------------------
# (schedule, record) -> its nodes, of which some stand for several; in any order
Joiner = Callable[["Schedule", CompileRecord], "list[ScheduledNode]"]
JOINERS: list[Joiner] = []

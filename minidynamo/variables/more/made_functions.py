"""Functions from outside that a program may make anew for each call: guarded by their code.

    def step(x, scale):
        return apply(x, lambda y: y * scale)        # another lambda each time, of the same code

In:   a function and its source.
Out:  its variable: guarded by its identity where it lies in a fixed object; else by its code, and
      by its defaults where those are used.  Defaults of a fixed function that are constants need no
      guards of their own.

Without this file each function is guarded by its identity.
"""

import types
from typing import Any

from ..base import Lazy, OutputGraph, Source, Variable
from ..constant import ConstantVar, is_constant_value
from ..functions import function_of, pinned_function
from ..registry import BY_VALUE, PINNED


@BY_VALUE.rule(types.FunctionType)
def wrap_function(builder: OutputGraph, value: Any, source: Source) -> Variable:
    if source.root().kind == "pinned":
        if source.kind != "pinned":
            builder.guard(source, "ID", "{0} is {pin}", value)
        return builder.wrap_pinned(value)
    known = builder.memo.get(id(value))
    if known is None:
        builder.guard(source, "TYPE", "type({0}) is {pin}", types.FunctionType)
        builder.guard(source, "CODE", "{0}.__code__ is {pin}", value.__code__)
        guard_defaults(builder, value, source)
        known = builder.memo[id(value)] = (function_of(builder, value, source), value)
    elif known[0].source is not source:
        builder.guard_pair("{0} is {1}", source, known[0].source)
    return known[0]


def guard_defaults(builder: OutputGraph, function: Any, source: Source) -> None:
    """As many defaults, for the same names: their values are guarded where they are used."""
    names = list(function.__kwdefaults__ or ())
    check = f"len({{0}}.__defaults__ or ()) == {len(function.__defaults__ or ())}"
    builder.guard(source, "DEFAULTS", f"{check} and [*({{0}}.__kwdefaults__ or ())] == {names!r}")


@PINNED.rule(types.FunctionType)
def fixed_function(builder: OutputGraph, value: Any) -> Variable:
    variable: Any = pinned_function(builder, value)
    variable.defaults = tuple(map(constant_at_once, variable.defaults))
    return variable


def constant_at_once(default: Lazy) -> Variable:
    """`guard_function` guards which tuple the defaults are: constants in it need no guard."""
    return ConstantVar(default.value) if is_constant_value(default.value) else default

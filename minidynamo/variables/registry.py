"""How a real value becomes a variable: tables from its type, or from a test, to a rule.

In:   rules, registered by the file that knows the kind of value (of `more/`, too).
Out:  the rule for a value: that of its exact type, else of the first test that holds.

    >>> @SHARED.rule(types.CellType)
    ... def wrap_cell(builder, cell, source): ...

A rule is called as `rule(builder, value, source)`, guards on `source` what it assumes, and gives
the variable; it raises `Break` for what it cannot trace.  Values that no rule knows are instances
of classes (`objects.wrap_object`).
Mirrors the table in torch/_dynamo/variables/builder.py (VariableBuilder._type_dispatch).
"""

from collections.abc import Callable
from typing import Any

from .base import Variable

Rule = Callable[..., Variable]
Test = Callable[[Any], bool]


class Registry:
    """Rules by type, and by tests that are asked in the order of their numbers (10 to 30: kinds of
    which another test would hold, too)."""

    def __init__(self) -> None:
        self.by_type: dict[type, Rule] = {}
        self.by_test: list[tuple[int, Test, Rule]] = []

    def rule(
        self, *types: type, test: Test | None = None, order: int = 50
    ) -> Callable[[Rule], Rule]:
        """A decorator: the function is the rule for values of exactly these `types`, and for those
        of other types for which the `test` holds.  Tests ask `type(value)`: `isinstance` would read
        `value.__class__`, and may run the program's code."""

        def register(rule: Rule) -> Rule:
            self.by_type.update(dict.fromkeys(types, rule))
            if test is not None:
                self.by_test.append((order, test, rule))
                self.by_test.sort(key=lambda entry: entry[0])
            return rule

        return register

    def of(self, value: Any) -> Rule | None:
        """The rule for this value, or None."""
        found = self.by_type.get(type(value))
        if found is not None:
            return found
        for _, test, rule in self.by_test:
            if test(value):
                return rule
        return None


class ByClass:
    """Handlers by class, found as methods are: by the bases, the nearest first."""

    def __init__(self) -> None:
        self.handlers: dict[type, Callable] = {}

    def __call__(self, *classes: type) -> Callable[[Callable], Callable]:
        """Decorator."""

        def register(handler: Callable) -> Callable:
            for cls in classes:
                self.handlers[cls] = handler
            return handler

        return register

    def ask(self, cls: type, *args: Any) -> Any:
        """What the nearest base of `cls` that has an answer answers; None if none has."""
        for base in cls.__mro__:
            handler = self.handlers.get(base)
            if handler is not None:
                result = handler(*args)
                if result is not None:
                    return result
        return None


# Constants, classes, functions, modules: one variable for each place where they lie, guarded there.
BY_VALUE = Registry()
# Objects that a program can write or tell apart: one variable, at however many places they lie;
# that it is the same object there is guarded.
SHARED = Registry()
# Values that a folded call gave, beside constants, lists and tuples: rules
# take (builder, value).
RESULTS = Registry()
# Objects that the entry itself holds, without a source: rules take (builder, value).
PINNED = Registry()


def by_identity(builder: Any, value: Any, source: Any) -> Variable:
    """The rule for what nobody is expected to replace: its identity is guarded."""
    builder.guard(source, "ID", "{0} is {pin}", value)
    return builder.wrap_pinned(value)

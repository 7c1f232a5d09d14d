"""The registries in which the evaluator looks up what a program's operations mean.

`rule`: what a call of a function or class means.  There is one rule for each; its arguments are
those of the function, after `tx`, the frame that calls.

    @rule(len)
    def _len(tx, value, /):
        return ConstantVar(value.length(tx))

`ByClass`: handlers that are found by the class of a variable, as a method would be, though they lie
in a file of their own subject; `operators` asks them.

    @right_operand(SetVar)
    def _set_from_the_right(tx, operator, a, b): ...

A handler returns None for Python's None where a call is meant, and for "I do not know how" where an
operator is.  Files of `minidynamo/rules/` register more; nothing registered means a graph break.
PyTorch: `BuiltinVariable.call_...` methods and tables of handlers, in torch/_dynamo/variables/builtin.py.
"""

from collections.abc import Callable
from typing import Any

from ..exceptions import Break
from ..foreign import ours
from ..variables.constant import ConstantVar

NONE = ConstantVar(None)
RULES: dict[Any, Callable] = {}  # function or class -> handler(tx, args, kwargs)


def rule(*functions: Any) -> Callable[[Callable], Callable]:
    """Decorator: the handler says what calling one of `functions` means (None: not in this torch,
    or this Python)."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            if function is not None:
                RULES[function] = _Call(function, handler)
        return handler

    return register


class _Call:
    """A handler that is given positional and named arguments as two containers."""

    __slots__ = ("function", "handler")

    def __init__(self, function: Any, handler: Callable):
        self.function = function
        self.handler = handler

    def __call__(self, tx, args, kwargs):
        try:
            result = self.handler(tx, *args, **kwargs)
        except ours(TypeError) as error:
            if error.__traceback__.tb_next is not None:
                raise
            name = getattr(self.function, "__name__", self.function)
            # plain Python says what is wrong with them
            raise Break("arguments", f"the arguments of {name}()") from None
        return NONE if result is None else result


class ByClass:
    """Handlers by the class of a variable; the nearest class that has one answers."""

    def __init__(self) -> None:
        self.registered: dict[type, Callable] = {}
        self.found: dict[type, Callable | None] = {}

    def __call__(self, *classes: type) -> Callable[[Callable], Callable]:
        """Decorator."""

        def register(handler: Callable) -> Callable:
            for cls in classes:
                self.registered[cls] = handler
            self.found.clear()
            return handler

        return register

    def of(self, cls: type) -> Callable | None:
        """The handler of a class of variables, or None."""
        if cls not in self.found:
            owners = (owner for owner in cls.__mro__ if owner in self.registered)
            owner = next(owners, None)
            self.found[cls] = None if owner is None else self.registered[owner]
        return self.found[cls]


def refused(kind: str, reason: str, hint: str = "") -> Callable:
    """The handler of what always breaks the graph."""

    def refuse(tx, *args, **kwargs):
        raise Break(kind, reason, hint)

    return refuse

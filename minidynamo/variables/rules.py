"""The registry in which the evaluator looks up what a program's calls mean.

`rule`: what a call of a function or class means.  There is one rule for each; its arguments are
those of the function, after `tx`, the frame that calls.

    @rule(callable)
    def _callable(tx, value, /):
        return hasattr(value.python_type(), "__call__")

A rule may return a Python constant.  Files of `minidynamo/rules/` register more, and know what a
call means by the type of what is called (calls.py); nothing registered means a graph break.
PyTorch: `BuiltinVariable.call_...` methods and tables of handlers, in
torch/_dynamo/variables/builtin.py.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import Break
from .base import Args, Named, Variable, fitting
from .constant import ConstantVar

if TYPE_CHECKING:
    from ..evaluate.evaluator import Frame

NONE = ConstantVar(None)
RULES: dict[Any, Callable] = {}  # function or class -> handler(tx, args, kwargs)


def rule(*functions: Any) -> Callable[[Callable], Callable]:
    """Decorator: the handler says what calling one of `functions` means.  (None among them is
    passed over: a function that this torch or Python has not.)"""

    def register(handler: Callable) -> Callable:
        for function in functions:
            if function is not None:
                name = getattr(function, "__name__", function)
                RULES[function] = checked(name, handler)
        return handler

    return register


def checked(name: str, handler: Callable) -> Callable:
    """The handler, called with a list of positional and a dict of named arguments."""

    def unfit() -> Break:
        return Break("arguments", f"the arguments of {name}()")

    def call(tx: "Frame", args: Args, kwargs: Named) -> Variable:
        result = fitting(unfit, handler, tx, args, kwargs)
        return result if isinstance(result, Variable) else ConstantVar(result)

    return call


def rules(table: dict[Any, Callable]) -> None:
    """`rule` for many functions, each with a handler of one line; a key may be a tuple of them."""
    for functions, handler in table.items():
        rule(*(functions if isinstance(functions, tuple) else (functions,)))(handler)


def refused(kind: str, reason: str, hint: str = "") -> Callable:
    """The handler of what always breaks the graph.

    rules({warnings.warn: refused("warning", "warnings.warn()", "warn outside")})"""

    def refuse(tx: "Frame", *args: Variable, **kwargs: Variable) -> NoReturn:
        raise Break(kind, reason, hint)

    return refuse

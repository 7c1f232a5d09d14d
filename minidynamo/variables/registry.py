"""The tables that say what a value of a program's is, and what a call means.  A key is entered
once.

In:   keys (functions, types) and handlers, entered by the file that knows the kind of value.
Out:  the handler of a key.  What no table knows is an instance of a class
      (`wrap_object`), or a graph break.

    >>> @SHARED(types.CellType)                     # how a real value becomes a variable
    ... def wrap_cell(builder, cell, source): ...
    >>> @rule(callable)                             # what a call means: the arguments are those
    ... def _callable(tx, value, /):                # of the function, after the calling frame
    ...     return hasattr(value.python_type(), "__call__")

A rule of a value guards on `source` what it assumes, and gives the variable; it raises `Break` for
what it cannot trace.  A rule of a call may return a Python constant.  Where subclasses have the
same rule, `builder.py` has a list of the classes, in the order in which they are asked.
Mirrors torch/_dynamo/variables/builder.py (VariableBuilder._type_dispatch) and the handlers of
torch/_dynamo/variables/builtin.py.
"""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import Break
from ..guards.originals import OURS
from .base import Args, Named, Variable, fitting
from .constant import ConstantVar

if TYPE_CHECKING:
    from ..evaluate.evaluator import Frame

Rule = Callable[..., Variable]


class Table(dict[Any, Callable]):
    """Key -> handler.  Nobody enters a key a second time, but a program may replace what it has
    entered itself (the cell of a notebook that is run again)."""

    def __init__(self) -> None:
        self.places: dict[Any, str] = {}

    def __setitem__(self, key: Any, handler: Callable) -> None:
        frame: Any = sys._getframe()
        while frame.f_globals is globals():
            frame = frame.f_back
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        known = self.places.get(key, "")
        if known.startswith(OURS):
            raise ValueError(f"{key} is entered by {known} and again by {place}")
        self.places[key] = place
        super().__setitem__(key, handler)

    def __call__(self, *keys: Any) -> Callable[[Callable], Callable]:
        """Decorator: the function is the handler of these keys."""

        def register(handler: Callable) -> Callable:
            for key in keys:
                self[key] = handler
            return handler

        return register


class ByClass(Table):
    """Handlers by class, found as methods are: by the bases, the nearest first."""

    def ask(self, cls: type, *args: Any) -> Any:
        """What the nearest base of `cls` that has an answer answers; None if none has."""
        for base in cls.__mro__:
            handler = self.get(base)
            if handler is not None:
                result = handler(*args)
                if result is not None:
                    return result
        return None


# Constants, classes, functions, modules: one variable for each place where they lie, guarded there.
BY_VALUE = Table()  # type -> rule(builder, value, source)
# Objects that a program can write or tell apart: one variable, at however many places they lie;
# that it is the same object there is guarded.
SHARED = Table()  # type -> rule(builder, value, source)
# Objects that the entry itself holds, without a source.
PINNED = Table()  # type -> rule(builder, value)


def by_identity(builder: Any, value: Any, source: Any) -> Variable:
    """The rule for what nobody is expected to replace: its identity is guarded."""
    builder.guard_fixed(source, value)
    return builder.wrap_pinned(value)


# ---- what a call means
NONE = ConstantVar(None)
RULES = Table()  # function or class -> handler(tx, args, kwargs)


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


def rule_of_each(*functions: Any) -> Callable[[Callable], Callable]:
    """Decorator: registers the handler for each of `functions`.  The handler's first argument,
    before `tx`, is the function that is called."""

    def register(handler: Callable) -> Callable:
        for function in functions:
            rule(function)(functools.partial(handler, function))
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

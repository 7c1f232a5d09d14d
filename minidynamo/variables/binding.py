"""The arguments of a call, bound to the parameters of a Python function as CPython binds them.

In:   a FunctionVar, positional and named arguments as variables.
Out:  parameter name -> variable; or the TypeError of the traced program, in CPython's words.

    >>> bind(tx, function, [a], {"scale": b})       # {"x": a, "scale": b}
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from .base import Args, Frame, Named
from .containers import DictVar, TupleVar, named

if TYPE_CHECKING:
    from .functions import FunctionVar


def bind(tx: Frame, function: FunctionVar, args: Args, kwargs: Named) -> dict[str, Any]:
    """Parameters of a call: name -> variable, or a default that nobody looked at."""
    code = function.code
    count = code.co_argcount
    parameters = code.co_varnames[: count + code.co_kwonlyargcount]
    stars = iter(code.co_varnames[len(parameters) :])
    by_position, extra = parameters[:count], args[count:]
    given: dict[str, Any] = dict(zip(by_position, args))
    rest = {}
    for name, value in kwargs.items():
        if name not in parameters[code.co_posonlyargcount :]:
            rest[name] = value
        elif name in given:
            tx.wrong_arguments(function, args, kwargs)
        else:
            given[name] = value
    if code.co_flags & inspect.CO_VARARGS:
        given[next(stars)] = TupleVar(list(extra))
        extra = []
    if code.co_flags & inspect.CO_VARKEYWORDS:
        given[next(stars)] = DictVar(named(rest))
        rest = {}
    with_default = by_position[count - len(function.defaults) :]
    bound = dict(zip(with_default, function.defaults)) | function.kwdefaults | given
    if extra or rest or not bound.keys() >= {*parameters}:
        tx.wrong_arguments(function, args, kwargs)
    return bound

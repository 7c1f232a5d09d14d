"""The arguments of a call, bound to the parameters of a Python function as CPython binds them.

In:   a FunctionVar, positional and named arguments as variables.
Out:  parameter name -> variable; or the TypeError of the traced program, in CPython's words.

    >>> bind(tx, function, [a], {"scale": b})       # {"x": a, "scale": b}
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .base import Variable
from .constant import ConstantVar
from .containers import DictVar, TupleVar

if TYPE_CHECKING:
    from ..symbolic_eval.evaluator import Frame
    from .functions import FunctionVar


def bind(
    tx: Frame, function: FunctionVar, args: list[Variable], kwargs: dict[str, Variable]
) -> dict[str, Any]:
    """Parameters of a call: name -> variable, or a default that nobody looked at."""
    code = function.code
    positional, names = code.co_argcount, code.co_varnames
    keyword_only = names[positional : positional + code.co_kwonlyargcount]
    slot = positional + code.co_kwonlyargcount
    bound: dict[str, Any] = dict(zip(names[:positional], args))
    extra = args[positional:]
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[slot]] = TupleVar(list(extra))
        slot += 1
    elif extra:
        too_many(tx, function, args, sum(name in kwargs for name in keyword_only))
    rest = {}
    for name, value in kwargs.items():
        if name not in names[code.co_posonlyargcount : positional] and name not in keyword_only:
            rest[name] = value
        elif name in bound:
            tx.raise_(TypeError, f"{function.name}() got multiple values for argument {name!r}")
        else:
            bound[name] = value
    if code.co_flags & inspect.CO_VARKEYWORDS:
        items = {name: (ConstantVar(name), value) for name, value in rest.items()}
        bound[names[slot]] = DictVar(items)
    elif rest:
        unknown = next(iter(rest))
        tx.raise_(TypeError, f"{function.name}() got an unexpected keyword argument {unknown!r}")
    fill(tx, function, bound, names[:positional], "positional")
    fill(tx, function, bound, keyword_only, "keyword-only")
    return bound


def fill(
    tx: Frame, function: FunctionVar, bound: dict[str, Any], names: Sequence[str], kind: str
) -> None:
    """Defaults for those of the parameters `names` that no argument was given for."""
    missing = [name for name in names if name not in bound]
    if not missing:
        return
    positional = function.code.co_argcount
    with_default = function.code.co_varnames[positional - len(function.defaults) : positional]
    defaults = dict(zip(with_default, function.defaults)) | function.kwdefaults
    bound.update({name: defaults[name] for name in missing if name in defaults})
    missing = [repr(name) for name in missing if name not in defaults]
    if missing:
        needed = counted(len(missing), f"required {kind} argument")
        tx.raise_(TypeError, f"{function.name}() missing {needed}: {listed(missing)}")


def too_many(tx: Frame, function: FunctionVar, args: list[Variable], named: int) -> NoReturn:
    """The TypeError of more arguments than parameters; `named` keyword-only ones came, too."""
    most = function.code.co_argcount
    least = most - len(function.defaults)
    if function.defaults:
        takes = f"from {least} to {most} positional arguments"
    else:
        takes = counted(most, "positional argument")
    given = str(len(args))
    if named:
        others = counted(named, "keyword-only argument")
        given = f"{counted(len(args), 'positional argument')} (and {others})"
    verb = "was" if len(args) == 1 and not named else "were"
    tx.raise_(TypeError, f"{function.name}() takes {takes} but {given} {verb} given")


def counted(number: int, thing: str) -> str:
    """ "1 argument", "2 arguments"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def listed(names: list[str]) -> str:
    """ "a", "a and b", "a, b, and c"."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"

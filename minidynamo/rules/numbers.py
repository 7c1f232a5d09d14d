"""Functions of numbers: abs, round, divmod, pow, operator.index.

divmod(7, 2)        round(x, 2)        operator.index(n)
"""

import operator

from ..exceptions import Break
from ..symbolic_eval.registry import NONE, rules
from ..variables.containers import TupleVar
from ..variables.lookup import type_text
from ..variables.more.object_operations import through
from ..variables.objects import ObjectVar
from ..variables.symbolic import CALLS, SymVar, apply
from ..variables.tensor import TensorVar


def _abs(tx, value, /):
    if isinstance(value, TensorVar):
        return value.call_method(tx, "abs", [], {})
    if isinstance(value, ObjectVar):
        return through(value, tx, "__abs__", [])
    return (
        type(value) is SymVar and apply(tx, CALLS[abs], value) or tx.fold(abs, value.as_constant())
    )


def _divmod(tx, a, b, /):
    if a.is_constant() and b.is_constant():
        return tx.fold(divmod, a.as_constant(), b.as_constant())
    if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        raise Break("C function", "divmod() of objects")
    for operand in (a, b):
        if not hasattr(operand.python_type(), "__divmod__"):
            first, second = type_text(a.python_type()), type_text(b.python_type())
            tx.raise_(
                TypeError,
                f"unsupported operand type(s) for divmod(): '{first}' and '{second}'",
            )
    return TupleVar([tx.binary("//", a, b), tx.binary("%", a, b)])


def _round(tx, number, ndigits=NONE):
    digits = [] if ndigits is NONE else [ndigits]
    if isinstance(number, TensorVar):
        return number.call_method(tx, "round", digits, {})
    return (
        type(number) is SymVar
        and apply(tx, round, number, *digits)
        or tx.fold(round, number.as_constant(), *[d.as_constant() for d in digits])
    )


def _index(tx, value, /):
    if isinstance(value, TensorVar):
        return value.call_method(tx, "__index__", [], {})
    return (
        value
        if type(value) is SymVar and value.python_type() is int
        else tx.fold(operator.index, value.as_constant())
    )


rules(
    {
        abs: _abs,
        divmod: _divmod,
        round: _round,
        operator.index: _index,
        pow: lambda tx, *args: (
            tx.binary("**", *args)
            if len(args) == 2
            else tx.fold(pow, *[a.as_constant() for a in args])
        ),
    }
)

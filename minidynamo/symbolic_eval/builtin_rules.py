"""The rules of Python's builtins: len, getattr, iter, sorted, list...

    >>> RULES[len](tx, [list_variable], {})

In, out: see `registry`.  Pure functions that have no rule are called (`calls.called_now`).  Mirrors
torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

import torch

from ..exceptions import Break, ObservedException
from ..variables.constant import ConstantVar
from ..variables.containers import (
    DictVar,
    ListVar,
    TupleVar,
)
from .operators import COMPARISONS, OPERATORS, UNARY
from .registry import refused, rules

if TYPE_CHECKING:
    from ..variables.base import Variable
    from .evaluator import Frame

EMPTY = TupleVar([])


def name_of(variable: Variable) -> str:
    if not isinstance(variable.as_constant(), str):
        raise Break("arguments", f"{variable} as the name of an attribute")
    return variable.as_constant()


def _getattr(tx, owner, name, default=None, /):
    try:
        return owner.getattr(tx, name_of(name))
    except ObservedException as raised:
        if default is None or not issubclass(raised.var.python_type(), AttributeError):
            raise
        return default


def _tuple(tx, values=EMPTY, /):
    return (
        values
        if isinstance(values, TupleVar) and values.cls is tuple
        else TupleVar(tx.listed(values))
    )


def updated(made: DictVar, tx: Frame, args: Any, kwargs: dict[str, Variable]) -> DictVar:
    made.call_method(tx, "update", args, kwargs)
    return made


def _each(table, method):
    """Operators: the function of each symbol in `table` is tx.method(symbol, operands)."""
    return {
        function: functools.partial(on_operands, method, symbol)
        for symbol, function in table.items()
    }


def on_operands(method: str, symbol: str, tx: Frame, *operands: Variable) -> Variable:
    return getattr(tx, method)(symbol, *operands)


rules(
    {
        getattr: _getattr,
        tuple: _tuple,
        **_each({symbol: found.function for symbol, found in OPERATORS.items()}, "binary"),
        **_each(COMPARISONS, "compare"),
        **_each(UNARY, "unary"),
        hasattr: lambda tx, owner, name, /: ConstantVar(tx.has_attr(owner, name_of(name))),
        setattr: lambda tx, owner, name, value, /: owner.setattr(tx, name_of(name), value),
        len: lambda tx, value, /: tx.output.wrap_result(value.length(tx)),
        any: lambda tx, values, /: ConstantVar(any(item.truth(tx) for item in values.iterate(tx))),
        all: lambda tx, values, /: ConstantVar(all(item.truth(tx) for item in values.iterate(tx))),
        iter: lambda tx, values: tx.iter_of(values),
        operator.getitem: lambda tx, owner, key, /: owner.getitem(tx, key),
        list: lambda tx, values=EMPTY, /: ListVar(tx.listed(values)),
        dict: lambda tx, *args, **kwargs: updated(DictVar({}), tx, args, kwargs),
        type: lambda tx, value, *more, **kwargs: (
            refused("class", "making a class in a compiled frame")(tx)
            if more
            else tx.output.wrap_pinned(value.python_type())
        ),
        torch.nn.Module.__setattr__: lambda tx, self, name, value, /: self.module_setattr(
            tx, name.as_constant(), value
        ),
        torch.nn.Module.__getattr__: lambda tx, self, name, /: self.module_getattr(
            tx, name.as_constant()
        ),
    }
)

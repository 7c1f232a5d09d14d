"""The rules of Python's builtins: len, getattr, iter, sorted, list...

    >>> RULES[len](tx, [list_variable], {})

In, out: see `registry`.  Pure functions that have no rule are called (`calls.called_now`).  Mirrors
torch/_dynamo/variables/builtin.py.
"""

import builtins
import functools
import operator
import sys

import torch

from ..exceptions import Break, ObservedException
from ..variables.constant import ConstantVar
from ..variables.containers import (
    Container,
    DictVar,
    ListVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import EnumerateVar, ZipVar
from ..variables.classes import ClassVar
from ..variables.lookup import MISSING, lookup, type_text
from ..variables.objects import ObjectVar
from ..variables.super import SuperVar
from ..variables.symbolic import CALLS, SymVar, apply, is_number
from .operators import COMPARISONS, OPERATORS, UNARY
from .registry import refused, rule, rules
from .text import text

EMPTY = TupleVar([])


def name_of(variable):
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


def _hash(tx, value, /):
    if isinstance(value, ObjectVar):
        method = value.special(tx, "__hash__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
            return method.call(tx, [], {})
        raise Break("C function", "hash() of an object")
    return tx.fold(hash, value.as_constant())


@rule(super)
def _super(tx, *args, **kwargs):
    cls = args[0].value if len(args) == 2 and not kwargs and isinstance(args[0], ClassVar) else None
    mro = (
        args[1].value.__mro__ if cls is not None and isinstance(args[1], ClassVar) else ()
    )  # None while the class is made
    if (
        cls is None
        or mro is None
        or not issubclass(args[1].value if cls in mro else args[1].python_type(), cls)
    ):
        raise Break(
            "class", "super() with these arguments"
        )  # plain Python says what is wrong with them
    return SuperVar(cls, args[1])


def _tuple(tx, values=EMPTY, /):
    return (
        values
        if isinstance(values, TupleVar) and values.cls is tuple
        else TupleVar(tx.listed(values))
    )


def updated(made, tx, args, kwargs):
    made.call_method(tx, "update", args, kwargs)
    return made


def _next(tx, iterator, default=None, /):
    if not hasattr(iterator.python_type(), "__next__"):
        tx.raise_(TypeError, f"'{type_text(iterator.python_type())}' object is not an iterator")
    try:
        return iterator.call_method(tx, "__next__", [], {})
    except ObservedException as raised:
        if default is None or not issubclass(raised.var.python_type(), StopIteration):
            raise
        return default


def _extreme(function, symbol, tx, first, /, *others, key=None, default=None):
    values = [first, *others] if others else first.iterate(tx)
    if isinstance(first, Container):
        values = list(values)

    def measure(value):
        return value if key is None or key.identity() is None else key.call(tx, [value], {})

    if (
        key is None
        and isinstance(values, list)
        and any(type(value) is SymVar for value in values)
        and all(is_number(value) and value.python_type() is int for value in values)
    ):
        return functools.reduce(lambda a, b: apply(tx, CALLS[function], a, b), values)
    best = best_key = None
    for value in values:  # each is measured and compared before the next is asked for
        value_key = measure(value)
        if best is None or tx.compare(symbol, value_key, best_key).truth(tx):
            best, best_key = value, value_key
    if best is None and default is None:
        name = function.__name__
        tx.raise_(
            ValueError,
            f"{name}() iterable argument is empty"
            if sys.version_info >= (3, 12)
            else f"{name}() arg is an empty sequence",
        )
    return default if best is None else best


def _sum(tx, values, /, start=ConstantVar(0)):
    if issubclass(start.python_type(), (str, bytes, bytearray)):
        raise Break("arguments", "sum() of text")  # plain Python says what is wrong with it
    return functools.reduce(functools.partial(tx.binary, "+"), values.iterate(tx), start)


def _vars(tx, owner):
    if not tx.has_attr(owner, "__dict__"):
        tx.raise_(TypeError, "vars() argument must have __dict__ attribute")
    return owner.getattr(tx, "__dict__")


def _each(table, method):
    """Operators: the function of each symbol in `table` is tx.method(symbol, operands)."""
    return {
        function: functools.partial(_operator, method, symbol) for symbol, function in table.items()
    }


def _operator(method, symbol, tx, *operands):
    return getattr(tx, method)(symbol, *operands)


rules(
    {
        getattr: _getattr,
        hash: _hash,
        next: _next,
        tuple: _tuple,
        max: functools.partial(_extreme, max, ">"),
        min: functools.partial(_extreme, min, "<"),
        operator.iconcat: functools.partial(_operator, "binary", "+="),
        **_each({symbol: found.function for symbol, found in OPERATORS.items()}, "binary"),
        **_each(COMPARISONS, "compare"),
        **_each(UNARY, "unary"),
        sum: _sum,
        repr: lambda tx, value, /: ConstantVar(text(tx, value, "repr")),
        format: lambda tx, *args: tx.fold(format, *[a.as_constant() for a in args]),
        vars: lambda tx, owner=None, /: (
            refused("C function", "the call of vars()")(tx) if owner is None else _vars(tx, owner)
        ),
        hasattr: lambda tx, owner, name, /: ConstantVar(tx.has_attr(owner, name_of(name))),
        setattr: lambda tx, owner, name, value, /: owner.setattr(tx, name_of(name), value),
        delattr: lambda tx, owner, name, /: owner.delattr(tx, name_of(name)),
        callable: lambda tx, value, /: ConstantVar(
            lookup(value.python_type(), "__call__")[1] is not MISSING
        ),
        id: refused("C function", "the call of id()"),
        len: lambda tx, value, /: tx.output.wrap_result(value.length(tx)),
        any: lambda tx, values, /: ConstantVar(any(item.truth(tx) for item in values.iterate(tx))),
        all: lambda tx, values, /: ConstantVar(all(item.truth(tx) for item in values.iterate(tx))),
        iter: lambda tx, values: tx.iter_of(values),
        sorted: lambda tx, values, /, *, key=None, reverse=ConstantVar(False): ListVar(
            tx.sorted(tx.listed(values), key, reverse)
        ),
        operator.getitem: lambda tx, owner, key, /: owner.getitem(tx, key),
        operator.setitem: lambda tx, owner, key, value, /: owner.setitem(tx, key, value),
        operator.delitem: lambda tx, owner, key, /: owner.delitem(tx, key),
        operator.contains: lambda tx, owner, item, /: ConstantVar(owner.contains(tx, item)),
        operator.truth: lambda tx, value, /: ConstantVar(value.truth(tx)),
        operator.is_: lambda tx, a, b, /: ConstantVar(tx.same(a, b)),
        operator.is_not: lambda tx, a, b, /: ConstantVar(not tx.same(a, b)),
        list: lambda tx, values=EMPTY, /: ListVar(tx.listed(values)),
        dict: lambda tx, *args, **kwargs: updated(DictVar({}), tx, args, kwargs),
        enumerate: lambda tx, iterable, start=ConstantVar(0): EnumerateVar(
            tx.iter_of(iterable), tx.fold(operator.index, start.as_constant()).value
        ),
        zip: lambda tx, *values, strict=ConstantVar(False): ZipVar(
            [tx.iter_of(a) for a in values], strict.truth(tx)
        ),
        type: lambda tx, value, *more, **kwargs: (
            refused("class", "making a class in a compiled frame")(tx)
            if more
            else tx.output.wrap_pinned(value.python_type())
        ),
        (property, staticmethod, classmethod): refused(
            "class", "making a descriptor in a compiled frame"
        ),
        builtins.__build_class__: refused(
            "class", "a class statement in a compiled frame", "define the class outside"
        ),
        torch.nn.Module.__setattr__: lambda tx, self, name, value, /: self.module_setattr(
            tx, name.as_constant(), value
        ),
        torch.nn.Module.__getattr__: lambda tx, self, name, /: self.module_getattr(
            tx, name.as_constant()
        ),
    }
)

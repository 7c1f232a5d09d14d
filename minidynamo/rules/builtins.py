"""Builtins that few compiled programs call: max, sum, sorted, reversed, hash, vars.

    max(sizes, key=abs)        sorted(names)        for value in reversed(d.values()): ...

In, out: see `symbolic_eval.registry`.
"""

import builtins
import functools
import operator
import sys

from ..exceptions import Break, ObservedException
from ..symbolic_eval.builtin_rules import name_of, on_operands
from ..symbolic_eval.registry import ByClass, refused, rule, rules
from ..symbolic_eval.text import text
from ..variables.constant import ConstantVar
from ..variables.containers import (
    Container,
    DictVar,
    DictViewVar,
    ListVar,
    SequenceVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import HostIterator, SequenceIterator
from ..variables.lookup import MISSING, lookup, type_text
from ..variables.more.proxies import ProxyVar
from ..variables.objects import ObjectVar
from ..variables.symbolic import CALLS, SymVar, apply, is_number

reversed_of = ByClass()  # class of a variable -> handler(tx, value)


def _hash(tx, value, /):
    if isinstance(value, ObjectVar):
        method = value.special(tx, "__hash__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
            return method.call(tx, [], {})
        raise Break("C function", "hash() of an object")
    return tx.fold(hash, value.as_constant())


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
    if key is None and isinstance(values, list) and are_sizes(values):
        return functools.reduce(functools.partial(apply, tx, CALLS[function]), values)
    best = best_measure = None
    for value in values:  # each is measured and compared before the next is asked for
        plain = key is None or key.identity() is None
        measure = value if plain else key.call(tx, [value], {})
        if best is None or tx.compare(symbol, measure, best_measure).truth(tx):
            best, best_measure = value, measure
    if best is not None:
        return best
    if default is None:
        complaint = "arg is an empty sequence"
        if sys.version_info >= (3, 12):
            complaint = "iterable argument is empty"
        tx.raise_(ValueError, f"{function.__name__}() {complaint}")
    return default


def are_sizes(values):
    """Whole numbers, of which one or more are symbols."""
    whole = all(is_number(value) and value.python_type() is int for value in values)
    return whole and any(type(value) is SymVar for value in values)


def _sum(tx, values, /, start=ConstantVar(0)):
    if issubclass(start.python_type(), (str, bytes, bytearray)):
        raise Break("arguments", "sum() of text")  # plain Python says what is wrong with it
    return functools.reduce(functools.partial(tx.binary, "+"), values.iterate(tx), start)


def _vars(tx, owner):
    if not tx.has_attr(owner, "__dict__"):
        tx.raise_(TypeError, "vars() argument must have __dict__ attribute")
    return owner.getattr(tx, "__dict__")


# ---- reversed()
@rule(reversed)
def _reversed(tx, value, /):
    result = reversed_of.ask(type(value), tx, value)
    if result is None:
        name = type_text(value.python_type())
        tx.raise_(TypeError, f"'{name}' object is not reversible")
    return result


@reversed_of(ObjectVar)
def _reversed_object(tx, value):
    method = value.special(tx, "__reversed__")
    if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
        return method.call(tx, [], {})
    if method is not None and value.payload is not None:
        return _reversed(tx, value.payload)
    if method is None and not is_sequence(value.cls):
        return None
    if value.payload is not None:
        items = list(value.iterate(tx))
    else:
        items = [value.getitem(tx, ConstantVar(n)) for n in range(value.length(tx))]
    return tx.iter_of(TupleVar(items[::-1]))


def is_sequence(cls):
    """May its objects be walked from the end?  Not where `__reversed__` is None."""
    asked = lookup(cls, "__reversed__")[1] is not None
    return asked and hasattr(cls, "__getitem__") and hasattr(cls, "__len__")


@reversed_of(ConstantVar)
def _reversed_constant(tx, value):
    if isinstance(value.value, range):
        return tx.iter_of(ConstantVar(value.value[::-1]))
    if hasattr(type(value.value), "__getitem__"):
        raise Break("iteration", "reversed() of text")  # whose iterator is one of its own
    return None


@reversed_of(SequenceVar)
def _reversed_sequence(tx, value):
    return SequenceIterator(value, len(value.items) - 1, -1)


@reversed_of(DictVar, DictViewVar, ProxyVar)
def _reversed_dict(tx, value):
    like = getattr(value, "dict", value).cls()
    kind = getattr(value, "kind", None)  # of a dict's view
    iterator = reversed(getattr(like, kind)() if kind else like)
    return HostIterator(iter(list(value.iterate(tx))[::-1]), type(iterator))


rules(
    {
        hash: _hash,
        next: _next,
        max: functools.partial(_extreme, max, ">"),
        min: functools.partial(_extreme, min, "<"),
        operator.iconcat: functools.partial(on_operands, "binary", "+="),
        sum: _sum,
        repr: lambda tx, value, /: ConstantVar(text(tx, value, "repr")),
        format: lambda tx, *args: tx.fold(format, *[a.as_constant() for a in args]),
        vars: lambda tx, owner=None, /: (
            refused("C function", "the call of vars()")(tx) if owner is None else _vars(tx, owner)
        ),
        delattr: lambda tx, owner, name, /: owner.delattr(tx, name_of(name)),
        callable: lambda tx, value, /: ConstantVar(
            lookup(value.python_type(), "__call__")[1] is not MISSING
        ),
        id: refused("C function", "the call of id()"),
        sorted: lambda tx, values, /, *, key=None, reverse=ConstantVar(False): ListVar(
            tx.sorted(tx.listed(values), key, reverse)
        ),
        operator.setitem: lambda tx, owner, key, value, /: owner.setitem(tx, key, value),
        operator.delitem: lambda tx, owner, key, /: owner.delitem(tx, key),
        operator.contains: lambda tx, owner, item, /: ConstantVar(owner.contains(tx, item)),
        operator.truth: lambda tx, value, /: ConstantVar(value.truth(tx)),
        operator.is_: lambda tx, a, b, /: ConstantVar(tx.same(a, b)),
        operator.is_not: lambda tx, a, b, /: ConstantVar(not tx.same(a, b)),
        (property, staticmethod, classmethod): refused(
            "class", "making a descriptor in a compiled frame"
        ),
        builtins.__build_class__: refused(
            "class", "a class statement in a compiled frame", "define the class outside"
        ),
    }
)

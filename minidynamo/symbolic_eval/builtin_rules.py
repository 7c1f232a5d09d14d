"""The rules of Python's builtins: len, getattr, iter, sorted, list...

    >>> RULES[len](tx, [list_variable], {})

In, out: see `registry`.  Pure functions that have no rule are called (`calls.called_now`).  Mirrors
torch/_dynamo/variables/builtin.py.
"""

import builtins
import collections
import functools
import operator
import sys
import types

import torch

from ..exceptions import Break, ObservedException
from ..variables.constant import ConstantVar
from ..variables.containers import (
    DictVar,
    DictViewVar,
    ListVar,
    ProxyVar,
    SequenceVar,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import (
    CallIterator,
    EnumerateVar,
    FilterVar,
    HostIterator,
    MapVar,
    SequenceIterator,
    ZipVar,
)
from ..variables.classes import ClassVar
from ..variables.lookup import MISSING, lookup, type_text
from ..variables.objects import ObjectVar
from ..variables.super import SuperVar
from ..variables.symbolic import CALLS, SymVar, apply, is_number
from ..variables.tensor import TensorVar
from .opcodes import slice_of
from .operators import COMPARISONS, OPERATORS, UNARY
from .registry import NONE, refused, rule, rules
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


def _frozenset(tx, values=EMPTY, /):
    return (
        values
        if isinstance(values, SetVar) and values.cls is frozenset
        else SetVar.made(tx, values, frozenset)
    )


def _updated(made, tx, args, kwargs):
    made.call_method(tx, "update", args, kwargs)
    return made


def _deque(tx, values=EMPTY, maxlen=NONE):
    limit = maxlen.as_constant()
    if limit is not None and (type(limit) is not int or limit < 0):
        raise Break("arguments", "the maxlen of a deque")
    made = ListVar(list(values.iterate(tx)), collections.deque)
    made.extra = limit
    made._changed()
    made.mutated = False
    return made


def _defaultdict(tx, factory=None, /, *args, **kwargs):
    if (
        factory is not None
        and factory.identity() is not None
        and lookup(factory.python_type(), "__call__")[1] is MISSING
    ):
        tx.raise_(TypeError, "first argument must be callable or None")
    return _updated(DictVar({}, collections.defaultdict, factory=factory), tx, args, kwargs)


def _reversed(tx, value, /):
    if isinstance(value, ObjectVar):
        method = value.special(tx, "__reversed__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
            return method.call(tx, [], {})
        if method is not None and value.payload is not None:
            return _reversed(tx, value.payload)
        if method is None and (
            lookup(value.cls, "__reversed__")[1] is None
            or not hasattr(value.cls, "__getitem__")
            or not hasattr(value.cls, "__len__")
        ):
            tx.raise_(TypeError, f"'{type_text(value.cls)}' object is not reversible")
        items = (
            list(value.iterate(tx))
            if value.payload is not None
            else [value.getitem(tx, ConstantVar(n)) for n in range(value.length(tx))]
        )
        return tx.iter_of(TupleVar(items[::-1]))
    if isinstance(value, ConstantVar) and isinstance(value.value, range):
        return tx.iter_of(ConstantVar(value.value[::-1]))
    if isinstance(value, SequenceVar):
        return SequenceIterator(value, len(value.items) - 1, -1)
    if isinstance(value, ConstantVar):
        if hasattr(type(value.value), "__getitem__"):
            raise Break("iteration", "reversed() of text")  # whose iterator is one of its own
        tx.raise_(TypeError, f"'{type_text(value.python_type())}' object is not reversible")
    if isinstance(value, (DictVar, DictViewVar, ProxyVar)):
        like = getattr(value, "dict", value).cls()
        kind = getattr(value, "kind", None)  # of a dict's view
        return HostIterator(
            iter(list(value.iterate(tx))[::-1]),
            type(reversed(getattr(like, kind)() if kind else like)),
        )
    tx.raise_(TypeError, f"'{type_text(value.python_type())}' object is not reversible")


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
    if isinstance(first, (SequenceVar, SetVar, DictVar, DictViewVar)):
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


def _abs(tx, value, /):
    if isinstance(value, TensorVar):
        return value.call_method(tx, "abs", [], {})
    if isinstance(value, ObjectVar):
        return value._through(tx, "__abs__", [])
    return (
        type(value) is SymVar and apply(tx, CALLS[abs], value) or tx.fold(abs, value.as_constant())
    )


def _vars(tx, owner):
    if not tx.has_attr(owner, "__dict__"):
        tx.raise_(TypeError, "vars() argument must have __dict__ attribute")
    return owner.getattr(tx, "__dict__")


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
        reversed: _reversed,
        next: _next,
        abs: _abs,
        round: _round,
        tuple: _tuple,
        frozenset: _frozenset,
        collections.deque: _deque,
        collections.defaultdict: _defaultdict,
        operator.index: _index,
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
        iter: lambda tx, values, *sentinel: (
            CallIterator(values, *sentinel) if sentinel else tx.iter_of(values)
        ),
        sorted: lambda tx, values, /, *, key=None, reverse=ConstantVar(False): ListVar(
            tx.sorted(tx.listed(values), key, reverse)
        ),
        pow: lambda tx, *args: (
            tx.binary("**", *args)
            if len(args) == 2
            else tx.fold(pow, *[a.as_constant() for a in args])
        ),
        divmod: _divmod,
        operator.getitem: lambda tx, owner, key, /: owner.getitem(tx, key),
        operator.setitem: lambda tx, owner, key, value, /: owner.setitem(tx, key, value),
        operator.delitem: lambda tx, owner, key, /: owner.delitem(tx, key),
        operator.contains: lambda tx, owner, item, /: ConstantVar(owner.contains(tx, item)),
        operator.truth: lambda tx, value, /: ConstantVar(value.truth(tx)),
        operator.is_: lambda tx, a, b, /: ConstantVar(tx.same(a, b)),
        operator.is_not: lambda tx, a, b, /: ConstantVar(not tx.same(a, b)),
        list: lambda tx, values=EMPTY, /: ListVar(tx.listed(values)),
        set: lambda tx, values=EMPTY, /: SetVar.made(tx, values),
        torch.Size: lambda tx, values=EMPTY, /: TupleVar(list(values.iterate(tx)), torch.Size),
        dict: lambda tx, *args, **kwargs: _updated(DictVar({}), tx, args, kwargs),
        collections.OrderedDict: lambda tx, *args, **kwargs: _updated(
            DictVar({}, collections.OrderedDict), tx, args, kwargs
        ),
        types.MappingProxyType: lambda tx, of, /: (
            ProxyVar(of) if type(of) is DictVar else refused("class", f"a mappingproxy of {of}")(tx)
        ),
        slice: lambda tx, first, second=None, step=NONE, /: slice_of(
            [NONE, first, step] if second is None else [first, second, step]
        ),
        enumerate: lambda tx, iterable, start=ConstantVar(0): EnumerateVar(
            tx.iter_of(iterable), tx.fold(operator.index, start.as_constant()).value
        ),
        zip: lambda tx, *values, strict=ConstantVar(False): ZipVar(
            [tx.iter_of(a) for a in values], strict.truth(tx)
        ),
        map: lambda tx, function, first, /, *others: MapVar(
            function, ZipVar([tx.iter_of(a) for a in (first, *others)], False)
        ),
        filter: lambda tx, function, values, /: FilterVar(function, tx.iter_of(values)),
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

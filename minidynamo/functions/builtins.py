"""Builtins, containers, numbers and operators as functions: isinstance, range, sorted, getattr...

    max(sizes, key=abs)        sorted(names)        for value in reversed(d.values()): ...
    collections.OrderedDict(xs)        frozenset(xs)        slice(1, n)        divmod(7, 2)

In:   the arguments of the call, as variables.   Out: a variable, or a Python constant; a break.

Errors that C code words (too few values, no such conversion) are graph breaks: plain Python raises
them.  Mirrors torch/_dynamo/variables/builtin.py.

For isinstance() every class is asked for its instances in its own way, as its metaclass says:

| metaclass's `__instancecheck__` | what answers |
|---|---|
| type's | the MRO of the value's type, then its `__class__` |
| abc's | `issubclass` of the type, guarded: a class may be registered later |
| a protocol's, torch.FloatTensor's and the like (C) | nobody: a graph break |
| any other in Python | is traced |

Other builtins: super (instances.py); str, repr and f-strings (strings.py); int and other classes of
constants (`CONSTANT_CLASSES` in evaluate/calls.py).
"""

import abc
import builtins
import collections
import functools
import math
import operator
import types
import typing
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ..errors import Break, ObservedException
from ..evaluate.operators import COMPARISONS, OPERATORS, UNARY
from ..variables.base import MISSING, Frame, Named, OpaqueVar, Variable, lookup, trusted
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import (
    Container,
    DictVar,
    DictViewVar,
    ListVar,
    SequenceVar,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import EnumerateVar, FilterVar, MapVar, ZipVar
from ..variables.objects import ObjectVar, through
from ..variables.registry import NONE, refused, rule, rule_of_each, rules
from ..variables.sequences import slice_of
from ..variables.symbolic import SymVar, apply, is_number
from ..variables.tensor import TensorVar

EMPTY = TupleVar([])
ABC_CHECKS = (abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__)
TYPING = ("typing", "typing_extensions")


# ---- attributes
def name_of(variable: Variable) -> str:
    if not isinstance(variable.as_constant(), str):
        raise Break("arguments", f"{variable} as the name of an attribute")
    return variable.as_constant()


def _getattr(tx: Frame, owner: Variable, name: Variable, default: Any = None, /) -> Variable:
    try:
        return owner.getattr(tx, name_of(name))
    except ObservedException as raised:
        if default is None or not issubclass(raised.var.python_type(), AttributeError):
            raise
        return default


def _vars(tx: Frame, owner: Any = None, /) -> Variable:
    if owner is None or not tx.has_attr(owner, "__dict__"):
        raise Break("C function", "the call of vars()")
    return owner.getattr(tx, "__dict__")


def is_callable(value: Variable) -> bool:
    return lookup(value.python_type(), "__call__")[1] is not MISSING


def _type(tx: Frame, value: Variable, *more: Variable, **kwargs: Variable) -> Variable:
    if more:
        raise Break("class", "a class that is made in the frame", "define the class outside")
    return ClassVar(value.python_type())


def of_class(cls: type, result: Variable, name: str) -> Variable:
    """What a method of the program's gave to C, which takes one class, and says itself what it does
    with others."""
    if result.python_type() is not cls:
        raise Break("C function", f"a method {name} that gives no {cls.__name__}")
    return result


def _hash(tx: Frame, value: Any, /) -> Variable:
    if isinstance(value, ObjectVar):
        method = value.special(tx, "__hash__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, FunctionVar):
            return of_class(int, method.call(tx, [], {}), "__hash__")
        raise Break("C function", "hash() of an object")
    if isinstance(value, ClassVar):
        value.hash_key(tx)
    return tx.fold(hash, value.as_constant())


# ---- isinstance, issubclass
@rule(isinstance)
def is_instance(tx: Frame, value: Variable, kinds: Variable, /) -> bool:
    """PyObject_IsInstance."""
    cls = kinds.identity()
    if cls is value.python_type():
        return True
    parts = parts_of(tx, kinds)
    if parts is not None:
        return any(is_instance(tx, value, part) for part in parts)
    if isinstance(cls, type):
        return ask_class(tx, value, cls)
    raise Break("class", f"isinstance() of {value} and {kinds}")


def parts_of(tx: Frame, kinds: Variable) -> Iterable[Variable] | None:
    """The variables of a tuple or union, or None for what is one class."""
    if isinstance(kinds, TupleVar):
        return kinds.iterate(tx)
    found = kinds.identity()
    if isinstance(found, types.UnionType) or typing.get_origin(found) is typing.Union:
        return [tx.output.wrap_pinned(part) for part in typing.get_args(found)]
    return None


def ask_class(tx: Frame, value: Variable, cls: type) -> bool:
    owner, check = lookup(type(cls), "__instancecheck__")
    if check is type.__instancecheck__:
        return any(cls in kind.__mro__ for kind in classes_of(tx, value))
    if not isinstance(check, types.FunctionType) or getattr(cls, "_is_protocol", False):
        raise Break("class", f"isinstance() of {value} and {cls.__name__}")
    if check in ABC_CHECKS or check.__module__ in TYPING:
        return any(is_registered(tx, kind, cls) for kind in classes_of(tx, value))
    made = tx.output.wrap_class_attribute(owner, check, "__instancecheck__")
    return made.call(tx, [ClassVar(cls), value], {}).truth(tx)


def classes_of(tx: Frame, value: Any) -> Iterator[type]:
    """The type of a value, then what it says of itself: `__class__` may be a property (a
    mock's)."""
    kind = value.python_type()
    yield kind
    if isinstance(value, OpaqueVar):
        if kind in weakref.ProxyTypes or lookup(kind, "__class__")[0] is not object:
            raise value.broken
    elif isinstance(value, ObjectVar):
        own = lookup(kind, "__class__")[0] is not object
        if own or isinstance(lookup(kind, "__getattribute__")[1], types.FunctionType):
            said = value.getattr(tx, "__class__").identity()
            if isinstance(said, type) and said is not kind:
                yield said


def is_registered(tx: Frame, kind: type, cls: type) -> bool:
    """issubclass(kind, cls) of an abstract class, which may learn of `kind` later."""
    if cls in kind.__mro__:
        return True
    found = bool(tx.run_now(issubclass, kind, cls))
    if not (trusted(kind.__module__) and trusted(cls.__module__)):
        word = "" if found else "not "
        source = tx.output.tree.pinned(cls)
        tx.output.guard(source, ("SUBCLASS", kind), f"{word}issubclass({{pin}}, {{0}})", kind)
    return found


@rule(issubclass)
def is_subclass(tx: Frame, cls: Variable, kinds: Variable, /) -> bool:
    """PyObject_IsSubclass."""
    parts = parts_of(tx, kinds)
    if parts is not None:
        return any(is_subclass(tx, cls, part) for part in parts)
    asked = kinds.identity()
    if not isinstance(cls, ClassVar) or not isinstance(asked, type):
        raise Break("class", f"issubclass() of {cls} and {kinds}")
    check = lookup(type(asked), "__subclasscheck__")[1]
    if check is type.__subclasscheck__:
        return asked in cls.value.__mro__
    if check not in ABC_CHECKS:
        raise Break("class", f"issubclass() asks {type(asked).__name__}.__subclasscheck__")
    return is_registered(tx, cls.value, asked)


rules(
    {
        # what a metaclass's own check comes to when it calls super()
        type.__instancecheck__: lambda tx, cls, value, /: any(
            cls.value in kind.__mro__ for kind in classes_of(tx, value)
        ),
        type.__subclasscheck__: lambda tx, cls, other, /: cls.value in other.value.__mro__,
    }
)


# ---- values one after the other
def _next(tx: Frame, iterator: Variable, default: Any = None, /) -> Variable:
    if not hasattr(iterator.python_type(), "__next__"):
        raise Break("iteration", f"next() of {iterator}")
    try:
        return iterator.call_method(tx, "__next__", [], {})
    except ObservedException as raised:
        if default is None or not issubclass(raised.var.python_type(), StopIteration):
            raise
        return default


def _extreme(
    function: Any,
    symbol: str,
    tx: Frame,
    first: Any,
    /,
    *others: Any,
    key: Any = None,
    default: Any = None,
) -> Variable:
    values: Any = [first, *others] if others else first.iterate(tx)
    if key is not None and key.identity() is None:
        key = None
    if isinstance(first, Container):
        values = list(values)
    if key is None and isinstance(values, list) and are_sizes(values):
        return functools.reduce(functools.partial(apply, tx, function), values)
    best: Any = None
    best_measure: Any = None
    for value in values:  # each is measured and compared before the next is asked for
        measure = value if key is None else key.call(tx, [value], {})
        if best is None or tx.compare(symbol, measure, best_measure).truth(tx):
            best, best_measure = value, measure
    if best is not None:
        return best
    if default is None:
        raise Break("arguments", f"{function.__name__}() of no values")
    return default


def are_sizes(values: list[Variable]) -> bool:
    """Are all of them ints, and one or more a symbol?"""
    whole = all(is_number(value) and value.python_type() is int for value in values)
    return whole and any(type(value) is SymVar for value in values)


def _sum(tx: Frame, values: Variable, /, start: Variable = ConstantVar(0)) -> Variable:
    if issubclass(start.python_type(), (str, bytes, bytearray)):
        raise Break("arguments", "sum() of text")  # plain Python says what is wrong with it
    return functools.reduce(functools.partial(tx.binary, "+"), values.iterate(tx), start)


def _prod(tx: Frame, values: Variable, /, *, start: Variable = ConstantVar(1)) -> Variable:
    return functools.reduce(functools.partial(tx.binary, "*"), values.iterate(tx), start)


def _reversed(tx: Frame, value: Any, /) -> Variable:
    if isinstance(value, SequenceVar):
        walk = tx.iter_of(value)
        walk.index, walk.step = len(value.items) - 1, -1
        return walk
    if isinstance(value, ConstantVar) and isinstance(value.value, range):
        return tx.iter_of(ConstantVar(value.value[::-1]))
    if isinstance(value, (DictVar, DictViewVar)):
        return tx.iter_of(TupleVar([*value.iterate(tx)][::-1]))
    if isinstance(value, ObjectVar) and value.special(tx, "__reversed__") is None:
        items = [value.getitem(tx, ConstantVar(n)) for n in range(value.length(tx))]
        return tx.iter_of(TupleVar(items[::-1]))
    raise Break("reversed", f"reversed() of {value}")


# ---- numbers
def _abs(tx: Frame, value: Any, /) -> Variable:
    if isinstance(value, TensorVar):
        return value.call_method(tx, "abs", [], {})
    if isinstance(value, ObjectVar):
        return through("__abs__")(value, tx)
    return tx.computed(abs, [value], {})


def _divmod(tx: Frame, a: Variable, b: Variable, /) -> Variable:
    if a.is_constant() and b.is_constant():
        return tx.computed(divmod, [a, b], {})
    if not is_number(a) or not is_number(b):
        raise Break("C function", f"divmod() of {a} and {b}")
    return TupleVar([tx.binary("//", a, b), tx.binary("%", a, b)])


def _index(tx: Frame, value: Any, /) -> Variable:
    if isinstance(value, TensorVar):
        return value.call_method(tx, "__index__", [], {})
    if type(value) is SymVar and value.python_type() is int:
        return value
    return tx.fold(operator.index, value.as_constant())


@rule_of_each(int, float, complex, bool)
def _converted(cls: type, tx: Frame, *args: Any, **kwargs: Any) -> Any:
    """int(), float(), complex(), bool() of a tensor, an object, or anything else."""
    value, name = args[0] if args else None, f"__{cls.__name__}__"
    if isinstance(value, TensorVar):
        return value.call_method(tx, name, [], {})
    if cls is bool and value is not None:
        return value.truth(tx)
    method = value.special(tx, name) if isinstance(value, ObjectVar) else None
    if method is not None:
        return of_class(cls, method.call(tx, [], {}), name)
    return tx.computed(cls, args, kwargs)


def _pow(tx: Frame, base: Variable, exponent: Variable, *modulo: Variable) -> Variable:
    if not modulo:
        return tx.binary("**", base, exponent)
    return tx.computed(pow, [base, exponent, *modulo], {})


# ---- containers
@rule(tuple)
def _tuple(tx: Frame, values: Any = EMPTY, /) -> Variable:
    """CPython makes no copy of a tuple."""
    is_tuple = isinstance(values, TupleVar) and values.cls is tuple
    return values if is_tuple else TupleVar(tx.listed(values))


def _frozenset(tx: Frame, values: Any = EMPTY, /) -> Variable:
    if isinstance(values, SetVar) and values.cls is frozenset:
        return values
    return SetVar.made(tx, values, frozenset)


def updated(made: DictVar, tx: Frame, args: Any, kwargs: Named) -> DictVar:
    made.call_method(tx, "update", args, kwargs)
    return made


def _defaultdict(tx: Frame, factory: Any = NONE, /, *args: Any, **kwargs: Any) -> Variable:
    if factory.identity() is not None and not is_callable(factory):
        raise Break("arguments", f"a defaultdict of {factory}")
    made = DictVar({}, collections.defaultdict)
    made.factory = factory
    return updated(made, tx, args, kwargs)


def _on_operands(method: str, symbol: str, tx: Frame, *operands: Variable) -> Variable:
    return getattr(tx, method)(symbol, *operands)


rules(
    {
        reversed: _reversed,
        id: refused("C function", "id()", "compare objects with `is`"),
        len: lambda tx, value, /: tx.output.wrap_result(value.length(tx)),
        list: lambda tx, values=EMPTY, /: ListVar(tx.listed(values)),
        getattr: _getattr,
        hasattr: lambda tx, owner, name, /: tx.has_attr(owner, name_of(name)),
        setattr: lambda tx, owner, name, value, /: owner.setattr(tx, name_of(name), value),
        any: lambda tx, values, /: any(item.truth(tx) for item in values.iterate(tx)),
        all: lambda tx, values, /: all(item.truth(tx) for item in values.iterate(tx)),
        operator.getitem: lambda tx, owner, key, /: owner.getitem(tx, key),
        dict: lambda tx, *args, **kwargs: updated(DictVar({}), tx, args, kwargs),
        iter: lambda tx, values, /: tx.iter_of(values),
        map: lambda tx, function, first, /, *others: MapVar(
            function, ZipVar([tx.iter_of(values) for values in (first, *others)], False)
        ),
        filter: lambda tx, function, values, /: FilterVar(function, tx.iter_of(values)),
        enumerate: lambda tx, iterable, start=ConstantVar(0): EnumerateVar(
            tx.iter_of(iterable), tx.fold(operator.index, start.as_constant()).value
        ),
        zip: lambda tx, *values, strict=ConstantVar(False): ZipVar(
            [tx.iter_of(a) for a in values], strict.truth(tx)
        ),
        type: _type,
        hash: _hash,
        next: _next,
        max: functools.partial(_extreme, max, ">"),
        min: functools.partial(_extreme, min, "<"),
        sum: _sum,
        math.prod: _prod,
        vars: _vars,
        delattr: lambda tx, owner, name, /: owner.delattr(tx, name_of(name)),
        callable: lambda tx, value, /: is_callable(value),
        operator.setitem: lambda tx, owner, key, value, /: owner.setitem(tx, key, value),
        operator.delitem: lambda tx, owner, key, /: owner.delitem(tx, key),
        operator.contains: lambda tx, owner, item, /: owner.contains(tx, item),
        operator.truth: lambda tx, value, /: value.truth(tx),
        operator.is_: lambda tx, a, b, /: tx.same(a, b),
        operator.is_not: lambda tx, a, b, /: not tx.same(a, b),
        (property, staticmethod, classmethod): refused("class", "making a descriptor"),
        types.MappingProxyType: refused("class", "making a proxy"),
        sorted: lambda tx, values, /, *, key=None, reverse=ConstantVar(False): ListVar(
            tx.sorted(tx.listed(values), key, reverse)
        ),
        abs: _abs,
        divmod: _divmod,
        operator.index: _index,
        pow: _pow,
        set: lambda tx, values=EMPTY, /: SetVar.made(tx, values),
        frozenset: _frozenset,
        collections.defaultdict: _defaultdict,
        collections.OrderedDict: lambda tx, *args, **kwargs: updated(
            DictVar({}, collections.OrderedDict), tx, args, kwargs
        ),
        builtins.__build_class__: refused("class", "a class statement", "define the class outside"),
        torch.Size: lambda tx, values=EMPTY, /: TupleVar(list(values.iterate(tx)), torch.Size),
        slice: lambda tx, first, second=None, step=NONE, /: slice_of(
            [NONE, first, step] if second is None else [first, second, step]
        ),
    }
)
BINARY = {each.symbol: each.function for each in OPERATORS.values()}
for _method, _table in (("binary", BINARY), ("compare", COMPARISONS), ("unary", UNARY)):
    for _symbol, _function in _table.items():  # operator.add...: tx.binary("+", a, b)
        rule(_function)(functools.partial(_on_operands, _method, _symbol))
rule(operator.iconcat)(functools.partial(_on_operands, "binary", "+="))

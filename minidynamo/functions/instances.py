"""Instances that a program makes: `__new__` and `__init__` of its classes, traced.

In:   a class and the arguments of its call.   Out: an ObjectVar.

    >>> instantiate(tx, Config, [], {"hidden_size": ConstantVar(8)})

Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedClassVariable.call_function).
"""

import collections
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..errors import Break
from ..evaluate.calls import class_with_base
from ..variables.base import FOUND, MISSING, Args, Frame, Named, Variable, can_change, lookup
from ..variables.dicts import DictVar, ListVar, SetVar, TupleVar
from ..variables.exceptions import ExceptionVar, initialise_exception
from ..variables.objects import ObjectVar, is_inherited

CONTENTS: dict[type, Callable[[], Variable]] = {  # of an instance of a subclass, when it is made
    collections.OrderedDict: lambda: DictVar({}, collections.OrderedDict),
    dict: lambda: DictVar({}),
    list: lambda: ListVar([]),
    set: lambda: SetVar({}),
}
VALUES = {kind.__new__ for kind in (str, bytes, int, float, complex)}  # of subclasses of these

NO_INSTANCES = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION


def guard_concrete(tx: Frame, cls: type) -> None:
    """No abstract methods are given to `cls` later: `__abstractmethods__` is looked up in its own
    dictionary alone."""
    name = "__abstractmethods__"
    if name not in vars(cls):
        FOUND[cls, name] = MISSING
    elif can_change(cls):
        source = tx.output.tree.pinned(cls).child("class_item", name)
        tx.output.guard(source, "ID", "{0} is {pin}", vars(cls)[name])


@class_with_base(object)
def instantiate(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable:
    """type.__call__: an object of a Python class, its `__new__` and `__init__` traced."""
    refuse_uninstantiable(tx, cls)
    new = lookup(cls, "__new__")[1]
    own_new = isinstance(new, staticmethod)
    if own_new and isinstance(new.__func__, types.FunctionType):
        function = tx.output.wrap_pinned(new.__func__)
        made = function.call(tx, [tx.output.wrap_pinned(cls), *args], kwargs)
    else:
        made = allocate(tx, cls, args)
    if cls in made.python_type().__mro__ and isinstance(made, ObjectVar):
        initialise(tx, made, cls, args, kwargs, own_new)
    return made


def refuse_uninstantiable(tx: Frame, cls: type) -> None:
    """Classes that a call makes no plain object of."""
    if getattr(cls, "__abstractmethods__", None):
        raise Break("class", f"{cls.__name__} is abstract")
    guard_concrete(tx, cls)
    if lookup(cls, "__del__")[1] is not MISSING:
        raise Break("class", f"{cls.__name__} has a finalizer", "make the object outside")


def initialise(
    tx: Frame, made: ObjectVar, cls: type, args: Args, kwargs: Named, own_new: bool
) -> None:
    """`__init__`: the program's, or that of the C type from which the class inherits."""
    owner, init = lookup(cls, "__init__")
    container = made.payload is not None and not isinstance(made.payload, TupleVar)
    if container or not is_inherited(cls, "__init__"):
        result = made.class_attribute(tx, owner, init, "__init__").call(tx, args, kwargs)
        if result.identity() is not None:
            kind = result.python_type().__name__
            tx.raise_(TypeError, f"__init__() should return None, not '{kind}'")
    elif issubclass(cls, BaseException):
        initialise_exception(cls, made, args, kwargs)
    elif made.value is not None and init is object.__init__:  # of text or a number
        return
    elif init is object.__init__ and (args or kwargs) and not own_new and made.payload is None:
        tx.raise_(TypeError, f"{cls.__name__}() takes no arguments")
    elif init is not object.__init__:
        raise Break("class", f"{cls.__name__}.__init__ is C code")


def allocate(tx: Frame, cls: type, args: Iterable[Variable] = (), new: Any = None) -> ObjectVar:
    """new(cls) for allocators that are object's or a container's; `new` is cls.__new__ unless one
    was called by name."""
    new = new or lookup(cls, "__new__")[1]
    fields = DictVar({}) if cls.__dictoffset__ else None
    if new is object.__new__ and not cls.__flags__ & NO_INSTANCES:
        return ObjectVar(cls, fields=fields)
    for base, make in CONTENTS.items():
        if issubclass(cls, base) and new is base.__new__:
            return ObjectVar(cls, fields=fields, payload=make())
    if new is tuple.__new__ and issubclass(cls, tuple):
        items = [item for values in args for item in tx.listed(values)]
        return ObjectVar(cls, fields=fields, payload=TupleVar(items))
    if new in VALUES and issubclass(cls, new.__self__):
        make = functools.partial(new, cls, *[value.as_constant() for value in args])
        value = tx.run_now(make)
        tx.output.makers[id(value)] = make
        known: Any = tx.output.wrap_pinned(value)
        return known
    if issubclass(cls, BaseException):
        made = ExceptionVar(cls, fields=fields)
        initialise_exception(cls, made, list(args), {})
        return made
    raise Break("class", f"{cls.__name__} is allocated by C code")


def initialise_payload(tx: Frame, payload: Any, args: Args, kwargs: Named) -> None:
    """dict.__init__, list.__init__, set.__init__."""
    if isinstance(payload, DictVar):
        payload.call_method(tx, "update", args, kwargs)
        return
    if kwargs or len(args) > 1:
        raise Break("arguments", "the arguments of a container's __init__()")
    payload.method_clear(tx)
    if args:
        payload.call_method(
            tx, "extend" if isinstance(payload, ListVar) else "update", list(args), {}
        )

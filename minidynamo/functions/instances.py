"""Calls of classes: instances, whose `__new__` and `__init__` are traced; super.

In:   a class and the arguments of its call.   Out: an ObjectVar, or what the class's rule gives.

    super().forward(x)        Pair(1, 2)        Color(3)
    >>> instantiate(tx, Config, [], {"hidden_size": ConstantVar(8)})

Mirrors torch/_dynamo/variables/user_defined.py (UserDefinedClassVariable) and builtin.py.
"""

import collections
import enum
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..errors import Break
from ..evaluate.calls import class_with_base
from ..evaluate.operations import on_host
from ..variables.base import MISSING, Args, Frame, Named, Variable, can_change, lookup
from ..variables.classes import ClassVar, SuperVar
from ..variables.constant import VALUES
from ..variables.dicts import DictVar, ListVar, SetVar, TupleVar, named
from ..variables.functions import CellVar
from ..variables.nn_modules import ModuleVar, has_state
from ..variables.objects import ExceptionVar, ObjectVar, initialise_exception, is_inherited
from ..variables.registry import rule, rules
from ..variables.containers import is_plain_named_tuple


# ---- super
@rule(super)
def _super(tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    given: list[Any] = list(args) or zero_argument_super(tx)
    first, second, *_ = *given, None, None
    cls = first.value if isinstance(first, ClassVar) else None
    if cls is not None and second is not None and len(args) in (0, 2) and not kwargs:
        # a class's MRO is None while the class is made
        mro = second.value.__mro__ if isinstance(second, ClassVar) else ()
        if mro is not None and (cls in mro or issubclass(second.python_type(), cls)):
            return SuperVar(cls, second)
    raise Break("class", "super() with these arguments")  # plain Python says what is wrong


def zero_argument_super(tx: Frame) -> list[Variable]:
    """What super() takes from the frame that calls it."""
    name = tx.code.co_varnames[0] if tx.code.co_argcount else ""
    cell = tx.cells.get(name)
    first = cell.load(tx) if cell is not None else tx.locals.get(name)
    cls = tx.cells.get("__class__", CellVar()).load(tx)
    if first is None or cls is None:
        raise Break("class", "super() without a class or a first argument")
    return [cls, first.realize(tx)]


# ---- instances of the program's classes
CONTENTS: dict[type, Callable[[], Variable]] = {  # of an instance of a subclass, when it is made
    collections.OrderedDict: lambda: DictVar({}, collections.OrderedDict),
    dict: lambda: DictVar({}),
    list: lambda: ListVar([]),
    set: lambda: SetVar({}),
}
NO_INSTANCES = 1 << 7  # Py_TPFLAGS_DISALLOW_INSTANTIATION


@class_with_base(object)
def instantiate(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable:
    """type.__call__: an object of a Python class, its `__new__` and `__init__` traced."""
    refuse_uninstantiable(tx, cls)
    new = lookup(cls, "__new__")[1]
    own_new = isinstance(new, staticmethod)
    if own_new and isinstance(new.__func__, types.FunctionType):
        made = tx.call_fixed(new.__func__, ClassVar(cls), *args, **kwargs)
    else:
        made = allocate(tx, cls, args)
    if cls in made.python_type().__mro__ and isinstance(made, ObjectVar):
        initialise(tx, made, cls, args, kwargs, own_new)
    return made


def refuse_uninstantiable(tx: Frame, cls: type) -> None:
    """Classes that a call makes no plain object of.  No abstract methods may be given to `cls`
    later: `__abstractmethods__` is looked up in its own dictionary alone."""
    name = "__abstractmethods__"
    if getattr(cls, name, None):
        raise Break("class", f"{cls.__name__} is abstract")
    if lookup(cls, name, [cls])[1] is not MISSING and can_change(cls):
        source = tx.output.tree.pinned(cls).child("class_item", name)
        tx.output.guard_fixed(source, vars(cls)[name])
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
            raise Break("class", f"{cls.__name__}.__init__ returns {result}")
    elif issubclass(cls, BaseException):
        initialise_exception(cls, made, args, kwargs)
    elif init is not object.__init__:
        raise Break("class", f"{cls.__name__}.__init__ is C code")
    elif (args or kwargs) and made.value is None and not own_new and made.payload is None:
        raise Break("arguments", f"arguments of {cls.__name__}(), which takes none")


def allocate(tx: Frame, cls: type, args: Iterable[Variable] = (), new: Any = None) -> Variable:
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
    if any(new is kind.__new__ and issubclass(cls, kind) for kind in VALUES):
        return made_anew(tx, functools.partial(new, cls, *[value.as_constant() for value in args]))
    if issubclass(cls, BaseException):
        made = ExceptionVar(cls, fields=fields)
        initialise_exception(cls, made, list(args), {})
        return made
    raise Break("class", f"{cls.__name__} is allocated by C code")


def made_anew(tx: Frame, make: Callable[[], Any]) -> Variable:
    """What each call makes anew; this one stands for it while tracing."""
    made = tx.run_now(make)
    tx.output.makers[id(made)] = make
    return tx.output.wrap_pinned(made)


def initialise_payload(tx: Frame, payload: Any, args: Args, kwargs: Named) -> None:
    """dict.__init__, list.__init__, set.__init__."""
    if isinstance(payload, DictVar):
        payload.call_method(tx, "update", args, kwargs)
        return
    if kwargs or len(args) > 1:
        raise Break("arguments", "the arguments of a container's __init__()")
    payload.call_method(tx, "clear", [], {})
    if args:
        name = "extend" if isinstance(payload, ListVar) else "update"
        payload.call_method(tx, name, list(args), {})


# ---- classes that are made in ways of their own
@class_with_base(tuple)
def _named_tuple(tx: Frame, cls: Any, args: Args, kwargs: Named) -> Variable | None:
    if isinstance(cls.__new__, types.FunctionType) and is_plain_named_tuple(cls):
        return tx.call_fixed(cls.__new__, ClassVar(cls), *args, **kwargs)
    if cls.__module__ == "torch.return_types":
        raise Break("class", f"making a {cls.__name__}")
    return None


@rule(types.SimpleNamespace)
def _namespace(tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    """An object that has what it was given."""
    if args:  # a mapping: Python 3.13
        raise Break("arguments", "a SimpleNamespace of a mapping")
    return ObjectVar(types.SimpleNamespace, fields=DictVar(named(kwargs)))


@class_with_base(enum.Enum)
def _enum(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable | None:
    if type(cls) is not enum.EnumMeta:
        return None
    return tx.fold(on_host(cls, args, kwargs, "as_constant"))


@class_with_base(torch.nn.Module)
def _module(tx: Frame, cls: Any, args: Args, kwargs: Named) -> Variable:
    """Making a module: only torch's, and without parameters, buffers and submodules."""
    is_torchs = lookup(cls, "__init__")[0].__module__.startswith("torch.nn.modules.")
    if is_torchs and all(value.is_constant() for value in (*args, *kwargs.values())):
        make = on_host(cls, args, kwargs, "as_constant")
        with torch.device("meta"):  # weights would be drawn: the program's random numbers
            first = make()
        if not has_state(first):
            return made_anew(tx, make)
    raise Break("module", f"making a {cls.__name__} in a compiled frame", "make it in __init__")


def module_of(variable: Variable) -> ModuleVar:
    if not isinstance(variable, ModuleVar):
        raise Break("module", f"a method of torch.nn.Module on {variable}")
    return variable


rules(
    {
        torch.nn.Module.__getattr__: lambda tx, self, name, /: module_of(self).module_getattr(
            tx, name.as_constant()
        ),
        torch.nn.Module.__setattr__: lambda tx, self, name, value, /: module_of(
            self
        ).module_setattr(tx, name.as_constant(), value),
    }
)


@class_with_base(torch.Tensor, torch.autograd.Function)
def _refuse(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable:
    raise Break("class", f"making a {cls.__name__}")

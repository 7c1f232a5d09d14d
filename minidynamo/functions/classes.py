"""isinstance() and issubclass(); super(); calls of classes that are made in ways of their own.

    isinstance(x, torch.Tensor)        super().forward(x)        Pair(1, 2)        Color(3)

Every class is asked in its own way, as its metaclass says:

| metaclass's `__instancecheck__` | what answers |
|---|---|
| type's | the MRO of the value's type, then its `__class__` |
| abc's | `issubclass` of the type, guarded: a class may be registered later |
| a protocol's, torch.FloatTensor's and the like (C) | nobody: a graph break |
| any other in Python | is traced |
"""

import abc
import collections
import enum
import types
import typing
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from miniinductor.errors import ours

from ..errors import Break
from ..evaluate.calls import class_with_base
from ..evaluate.operations import on_host
from ..guards.originals import NN_MODULE
from ..variables.base import Variable, lookup, trusted
from ..variables.classes import ClassVar, SuperVar
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, ListVar, TupleVar, named
from ..variables.functions import CellVar
from ..variables.modules import OpaqueVar
from ..variables.nn_modules import ModuleVar
from ..variables.objects import ObjectVar
from ..variables.rules import RULES, rule, rules
from ..wrap.containers import is_plain_named_tuple

ABC_CHECKS = (abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__)
TYPING = ("typing", "typing_extensions")


@rule(isinstance)
def is_instance(tx, value, kinds, /) -> bool:
    """PyObject_IsInstance."""
    cls = kinds.identity()
    if cls is value.python_type():
        return True
    parts = parts_of(tx, kinds)
    if parts is not None:
        return any(is_instance(tx, value, part) for part in parts)
    if isinstance(cls, type):
        return ask_class(tx, value, cls)
    if isinstance(cls, typing._BaseGenericAlias):  # asks the type alone
        return folded_check(tx, value.python_type(), cls)
    checker = kinds.special(tx, "__instancecheck__") if isinstance(kinds, ObjectVar) else None
    if checker is not None:
        return checker.call(tx, [value], {}).truth(tx)
    raise Break("class", f"isinstance() of {value} and {kinds}")  # plain Python says what is wrong


def parts_of(tx, kinds) -> Iterable[Variable] | None:
    """The variables of a tuple or union, or None for what is one class."""
    if isinstance(kinds, TupleVar):
        return kinds.iterate(tx)
    found = kinds.identity()
    if isinstance(found, types.UnionType) or typing.get_origin(found) is typing.Union:
        return [tx.output.wrap_pinned(part) for part in typing.get_args(found)]
    return None


def ask_class(tx, value, cls) -> bool:
    check = lookup(type(cls), "__instancecheck__")[1]
    if check is type.__instancecheck__:
        return by_type(tx, value, cls)
    of_typing = isinstance(cls, abc.ABCMeta) and check.__module__ in TYPING
    if of_typing and getattr(cls, "_is_protocol", False):
        raise Break("class", f"isinstance() of {value} and the protocol {cls.__name__}")
    if of_typing or check is abc.ABCMeta.__instancecheck__:
        return any(is_registered(tx, kind, cls) for kind in classes_of(tx, value))
    if isinstance(check, types.FunctionType):
        made = tx.output.wrap_class_attribute(
            *lookup(type(cls), "__instancecheck__"), "__instancecheck__"
        )
        return made.call(tx, [ClassVar(cls), value], {}).truth(tx)
    raise Break("class", f"isinstance() asks {type(cls).__name__}.__instancecheck__")


def classes_of(tx, value) -> Iterator[type]:
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


def by_type(tx, value, cls) -> bool:
    """type.__instancecheck__."""
    return any(cls in kind.__mro__ for kind in classes_of(tx, value))


def is_registered(tx, kind, cls) -> bool:
    """issubclass(kind, cls) of an abstract class, which may learn of `kind` later."""
    if cls in kind.__mro__:
        return True
    found = bool(tx.run_now(issubclass, kind, cls))
    if not (trusted(kind.__module__) and trusted(cls.__module__)):
        word = "" if found else "not "
        source = tx.output.tree.pinned(cls)
        tx.output.guard(source, ("SUBCLASS", kind), f"{word}issubclass({{pin}}, {{0}})", kind)
    return found


def folded_check(tx, kind, cls) -> bool:
    """issubclass(kind, cls) of a typing construct.  What raises is left to plain Python."""
    try:
        return issubclass(kind, cls)
    except ours(Exception):
        raise Break("class", f"isinstance() with {cls}") from None


@rule(issubclass)
def is_subclass(tx, cls, kinds, /) -> bool:
    """PyObject_IsSubclass."""
    parts = parts_of(tx, kinds)
    if parts is not None:
        return any(is_subclass(tx, cls, part) for part in parts)
    asked = kinds.identity()
    if not isinstance(cls, ClassVar):
        raise Break("class", f"issubclass() of {cls}")  # plain Python says what is wrong with it
    if isinstance(asked, typing._BaseGenericAlias):
        return folded_check(tx, cls.value, asked)
    if not isinstance(asked, type):
        checker = kinds.special(tx, "__subclasscheck__") if isinstance(kinds, ObjectVar) else None
        if checker is None:
            raise Break("class", f"issubclass() of {cls} and {kinds}")
        return checker.call(tx, [cls], {}).truth(tx)
    owner, check = lookup(type(asked), "__subclasscheck__")
    if check is type.__subclasscheck__:
        return asked in cls.value.__mro__
    if not isinstance(check, types.FunctionType):
        raise Break("class", f"issubclass() asks {type(asked).__name__}.__subclasscheck__")
    if check in ABC_CHECKS or isinstance(asked, abc.ABCMeta) and check.__module__ in TYPING:
        return is_registered(tx, cls.value, asked)
    traced = tx.output.wrap_class_attribute(owner, check, "__subclasscheck__")
    return traced.call(tx, [kinds, cls], {}).truth(tx)


rules(
    {
        # what a metaclass's own check comes to when it calls super()
        type.__instancecheck__: lambda tx, cls, value, /: by_type(tx, value, cls.value),
        type.__subclasscheck__: lambda tx, cls, other, /: cls.value in other.value.__mro__,
    }
)


@rule(super)
def _super(tx, *args, **kwargs):
    first, second, *_ = *(args or zero_argument_super(tx)), None, None
    cls = first.value if isinstance(first, ClassVar) else None
    if cls is not None and second is not None and len(args) in (0, 2) and not kwargs:
        # a class's MRO is None while the class is made
        mro = second.value.__mro__ if isinstance(second, ClassVar) else ()
        if mro is not None and (cls in mro or issubclass(second.python_type(), cls)):
            return SuperVar(cls, second)
    raise Break("class", "super() with these arguments")  # plain Python says what is wrong


def zero_argument_super(tx) -> list[Variable]:
    """What super() takes from the frame that calls it."""
    name = tx.code.co_varnames[0] if tx.code.co_argcount else ""
    cell = tx.cells.get(name)
    first = cell.load(tx) if cell is not None else tx.locals.get(name)
    cls = tx.cells.get("__class__", CellVar()).load(tx)
    if first is None or cls is None:
        raise Break("class", "super() without a class or a first argument")
    return [cls, first.realize(tx)]


# ---- modules that a frame makes, and writes to modules: torch's own Python code, traced
# A module from outside has its own ways, which read its tables without a guard on torch's
# functions; for one that is made here `nn.Module.__init__`, `__setattr__` and `__getattr__` are
# functions like others.  Mirrors torch/_dynamo/variables/user_defined.py and nn_module.py.
def traced(tx, name: str, *args: Variable, **kwargs: Variable) -> Variable:
    """torch.nn.Module's own method, as Python."""
    return tx.inline(tx.output.wrap_pinned(NN_MODULE[name]), list(args), kwargs)


def know_init() -> None:
    """torch.compile, once used, has put its own function in the place of Module.__init__, which
    calls that and counts modules."""
    init = torch.nn.Module.__init__
    if getattr(init, "__module__", "").startswith("torch._dynamo.") and init not in RULES:
        rule(init)(lambda tx, *args, **kwargs: traced(tx, "__init__", *args, **kwargs))


@rule(torch.nn.Module.__setattr__)
def _setattr(tx, self: Any, name: Variable, value: Variable, /) -> Variable:
    if not isinstance(self, ModuleVar):
        return traced(tx, "__setattr__", self, name, value)
    self.module_setattr(tx, name.as_constant(), value)
    return ConstantVar(None)


@rule(torch.nn.Module.__getattr__)
def _getattr(tx, self: Any, name: Variable, /) -> Variable:
    if not isinstance(self, ModuleVar):
        return traced(tx, "__getattr__", self, name)
    return self.module_getattr(tx, name.as_constant())


# ---- classes that are made in ways of their own
@class_with_base(tuple)
def _named_tuple(tx, cls, args, kwargs):
    if isinstance(cls.__new__, types.FunctionType) and is_plain_named_tuple(cls):
        return tx.output.wrap_pinned(cls.__new__).call(tx, [ClassVar(cls), *args], kwargs)
    if cls.__module__ == "torch.return_types":
        raise Break("class", f"making a {cls.__name__}")
    return None


@rule(collections.namedtuple)
def _new_named_tuple(tx, typename, names, /, **options):
    """A class that each call makes anew; this one stands for it while tracing."""
    options.setdefault("module", ConstantVar(tx.globals.values.get("__name__")))
    if isinstance(names, ListVar):
        names = TupleVar(names.items)
    make = on_host(collections.namedtuple, [typename, names], options, "as_constant")
    made = tx.run_now(make)
    tx.output.makers[id(made)] = make
    return tx.output.wrap_pinned(made)


@rule(types.SimpleNamespace)
def _namespace(tx, *args, **kwargs):
    """An object that has what it was given."""
    if args:  # a mapping: Python 3.13
        raise Break("arguments", "a SimpleNamespace of a mapping")
    return ObjectVar(types.SimpleNamespace, fields=DictVar(named(kwargs)))


@class_with_base(enum.Enum)
def _enum(tx, cls, args, kwargs):
    if type(cls) is not enum.EnumMeta:
        return None
    return tx.fold_pinned(on_host(cls, args, {}, "as_constant"))


@class_with_base(torch.nn.Module)
def _module(tx, cls, args, kwargs):
    """One of torch's that has neither parameters, nor buffers, nor submodules."""
    know_init()
    if not lookup(cls, "__init__")[0].__module__.startswith("torch.nn.modules."):
        return None
    if not all(value.is_constant() for value in (*args, *kwargs.values())):
        return None
    make = on_host(cls, args, kwargs, "as_constant")
    with torch.device("meta"):  # weights would be drawn: the program's random numbers
        first = make()
    tables = (first._parameters, first._buffers, first._modules)
    if any(value is not None for table in tables for value in table.values()):
        return None
    made = make()
    tx.output.makers[id(made)] = make
    return tx.output.wrap_pinned(made)


@class_with_base(torch.Tensor, torch.autograd.Function)
def _refuse(tx, cls, args, kwargs):
    raise Break("class", f"making a {cls.__name__}")

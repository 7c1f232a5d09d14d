"""Methods of C types, called by name or through their class: dict.get(d, k), object.__repr__(o).

In:   the descriptor, and the object it is called on as the first argument.   Out: a variable.

    >>> call_descriptor(tx, str.join, [separator, parts], {})

What is called so is mostly what `super()` finds: the methods of `object`, of BaseException, and of
a container that the program's class inherits from.  All others break the graph, unless the object
would find the very same method by itself.
Mirrors torch/_dynamo/variables/user_defined.py and builtin.py.
"""

import collections
import enum
import types
from typing import Any

import torch

from ..errors import Break
from ..evaluate.calls import callable_of_type, instance_of
from ..evaluate.operations import on_host
from ..evaluate.operators import contents
from ..variables.base import Args, Frame, Named, Variable, lookup
from ..variables.classes import ClassVar
from ..variables.constant import VALUES, ConstantVar
from ..variables.dicts import DictVar, TupleVar
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.objects import ObjectVar, initialise_exception, is_inherited
from ..variables.registry import NONE, ByClass, checked, refused, rule_of_each
from ..variables.tensor import TensorVar
from ..variables.containers import is_plain_named_tuple
from .builtins import name_of
from .instances import allocate, initialise_payload
from .strings import text

# class of the variable that is `self` -> handler(tx, descriptor, self, rest, kwargs)
method_of = ByClass()
IMMUTABLE = {object, bytes, slice, range, types.GenericAlias, types.UnionType, types.CodeType}
CONTAINERS = (dict, list, tuple, set)
ITEMS = ("__setitem__", "__getitem__", "__delitem__", "__contains__")


@callable_of_type(
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType
)
def call_descriptor(tx: Frame, descriptor: Any, args: Args, kwargs: Named) -> Variable:
    """A method of a C type, called with the object as its first argument."""
    owner, name = descriptor.__objclass__, descriptor.__name__
    if not args:
        raise Break("C function", f"the call of {owner.__name__}.{name}() on nothing")
    self, *rest = args
    check_dict(descriptor, self)
    result = method_of.ask(type(self), tx, descriptor, self, rest, kwargs)
    if result is not None:
        return result
    if owner is object and name in OBJECT_METHODS and not isinstance(self, ConstantVar):
        return OBJECT_METHODS[name](tx, [self, *rest], {})
    if is_its_own(self, descriptor) and not isinstance(self, ClassVar):
        return self.call_method(tx, name, rest, kwargs)
    raise unknown(descriptor, self)


def unknown(descriptor: Any, self: Variable) -> Break:
    owner, name = descriptor.__objclass__.__name__, descriptor.__name__
    return Break("C function", f"the call of {owner}.{name}() on {self}")


def check_dict(descriptor: Any, self: Any) -> None:
    """dict.pop() of an OrderedDict; OrderedDict.copy() of a subclass's object, or what asks its
    class for the items."""
    inside = contents(self)
    if not isinstance(inside, DictVar):
        return
    owner, name = descriptor.__objclass__, descriptor.__name__
    if owner is dict and lookup(inside.cls, name)[1] is not descriptor:
        raise unknown(descriptor, self)
    if owner is not collections.OrderedDict or inside is self:
        return
    asks = name in ("update", "setdefault", "pop", "__init__")
    if name == "copy" or asks and not all(is_inherited(self.cls, each) for each in ITEMS):
        raise unknown(descriptor, self)


def is_its_own(self: Variable, descriptor: Any) -> bool:
    """Would an attribute of the object find this method?  Else a base's method is called by
    name."""
    return lookup(self.python_type(), descriptor.__name__)[1] is descriptor


@method_of(ObjectVar)
def _of_object(tx: Frame, descriptor: Any, self: Any, rest: Args, kwargs: Named) -> Variable | None:
    owner, name = descriptor.__objclass__, descriptor.__name__
    if owner not in self.cls.__mro__:  # plain Python says what is wrong
        raise unknown(descriptor, self)
    if owner is object and name in OBJECT_METHODS:
        return None
    if issubclass(owner, BaseException) and name == "__init__":
        initialise_exception(self.cls, self, rest, kwargs)
        return NONE
    if issubclass(owner, BaseException) and name == "with_traceback" and len(rest) == 1:
        self.generic_setattr(tx, "__traceback__", rest[0])
        return self
    if self.payload is not None and issubclass(owner, CONTAINERS):
        return of_payload(tx, descriptor, self, rest, kwargs)
    if owner is str and name == "__iter__":  # of torch.__version__, too
        return tx.iter_of(ConstantVar(str.__str__(self.real())))
    if any(isinstance(value, (FunctionVar, BoundMethodVar)) for value in (*rest, *kwargs.values())):
        raise unknown(descriptor, self)  # it would call that now, and in no later call
    immutable = owner in IMMUTABLE or owner.__module__ in ("re", "inspect")
    if owner in VALUES or immutable and self.value is not None and self.fields is None:
        return tx.fold(on_host(descriptor, [self, *rest], kwargs))
    raise unknown(descriptor, self)


def of_payload(tx: Frame, descriptor: Any, self: Any, rest: Args, kwargs: Named) -> Variable:
    """A method of dict, list, tuple or set, on what a subclass's object holds."""
    name = descriptor.__name__
    if name == "__init__":
        initialise_payload(tx, self.payload, rest, kwargs)
        return NONE
    if name == "__getitem__" and isinstance(self.payload, DictVar):
        missing = self.special(tx, "__missing__")
        if missing is not None and not self.payload.contains(tx, rest[0]):
            return missing.call(tx, rest, {})
    if name in ("__repr__", "__ior__", "__or__"):
        raise unknown(descriptor, self)
    return self.payload.call_method(tx, name, rest, kwargs)


@method_of(TensorVar)
def _of_tensor(tx: Frame, descriptor: Any, self: Any, rest: Args, kwargs: Named) -> Variable | None:
    owner = descriptor.__objclass__
    if owner is object or not issubclass(torch.Tensor, owner):
        return None  # object.__eq__(x, y) is not what tensors do for ==
    return self.call_method(tx, descriptor.__name__, rest, kwargs)


@method_of(ClassVar)
def _of_class(tx: Frame, descriptor: Any, self: Any, rest: Args, kwargs: Named) -> Variable | None:
    if descriptor is not type.__call__:
        return None
    return instance_of(tx, self.value, rest, kwargs)


@method_of(ConstantVar)
def _of_constant(
    tx: Frame, descriptor: Any, self: Any, rest: Args, kwargs: Named
) -> Variable | None:
    if is_its_own(self, descriptor) and not isinstance(self.value, enum.Enum):
        return None  # (a member of an enumeration would look for it in its class again)
    return tx.computed(descriptor, [self, *rest], kwargs)


# ---- methods of `object`, on any object
METHODS_OF_OBJECT: dict[str, Any] = {
    "__getattribute__": lambda tx, self, name: self.generic_getattr(tx, name_of(name)),
    "__setattr__": lambda tx, self, name, value: self.generic_setattr(tx, name_of(name), value),
    "__delattr__": lambda tx, self, name: self.generic_delattr(tx, name_of(name)),
    "__init__": lambda tx, self, *rest: (
        refused("arguments", "arguments of object.__init__()")(tx) if rest else None
    ),
    "__init_subclass__": lambda tx, self, *rest: None,
    "__eq__": lambda tx, self, other: (
        True if self.identity() is other.identity() else NotImplemented
    ),
    "__ne__": refused("compare", "object.__ne__(), which asks the class's own __eq__"),
    "__repr__": lambda tx, self: text(tx, self, "repr"),
    "__str__": lambda tx, self: text(tx, self, "str"),
}
OBJECT_METHODS = {name: checked(name, handler) for name, handler in METHODS_OF_OBJECT.items()}


# ---- functions of C that are bound to a class or a text
@callable_of_type(types.BuiltinFunctionType, types.MethodWrapperType)
def _bound(tx: Frame, function: Any, args: Args, kwargs: Named) -> Variable | None:
    owner = function.__self__
    if isinstance(owner, type):
        return call_class_method(tx, owner, function, args, kwargs)
    if type(owner) is str or isinstance(owner, enum.Enum):
        return ConstantVar(owner).call_method(tx, function.__name__, args, kwargs)
    return None


def call_class_method(tx: Frame, owner: type, function: Any, args: Args, kwargs: Named) -> Variable:
    """dict.fromkeys, int.from_bytes..."""
    name = function.__name__
    if name == "fromkeys" and 1 <= len(args) <= 2 and not kwargs:
        made = tx.call_class(owner, [], {})
        for key in args[0].iterate(tx):
            made.setitem(tx, key, args[1] if len(args) > 1 else NONE)
        return made
    if issubclass(owner, (int, float, str, bytes)):
        return tx.computed(function, args, kwargs)
    raise Break("C function", f"the call of {owner.__name__}.{name}()")


# ---- allocators: object.__new__(cls), dict.__new__(cls), tuple.__new__(cls, items)
@rule_of_each(*(cls.__new__ for cls in (object, dict, tuple, list, set, BaseException)))
def _new_object(new: Any, tx: Frame, *args: Variable, **kwargs: Variable) -> Variable:
    cls = args[0].as_constant()
    if issubclass(cls, tuple):
        items = list(args[1].iterate(tx)) if len(args) > 1 else []
        if cls is tuple or is_plain_named_tuple(cls):
            return TupleVar(items, cls)
    return allocate(tx, cls, args[1:], new)

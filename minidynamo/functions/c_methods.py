"""Methods of C types, called by name or through their class: dict.get(d, k), object.__repr__(o).

In:   the descriptor, and the object it is called on as the first argument.   Out: a variable.

    >>> call_descriptor(tx, str.join, [separator, parts], {})

Mirrors torch/_dynamo/variables/user_defined.py and builtin.py.
"""

import collections
import enum
import functools
import inspect
import types

import torch
from torch.torch_version import TorchVersion

from miniinductor.errors import ours

from ..errors import Break
from ..evaluate.calls import callable_of_type, instance_of
from ..evaluate.operations import on_host
from ..variables.base import Variable, lookup
from ..variables.classes import ClassVar, SuperVar
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar, TupleVar
from ..variables.exceptions import initialise_exception
from ..variables.functions import BoundMethodVar, FunctionVar
from ..variables.iterators import IteratorVar
from ..variables.objects import ObjectVar, is_inherited
from ..variables.registry import NONE, ByClass, checked, refused, rule
from ..variables.tensor import TensorVar
from ..wrap.containers import is_plain_named_tuple
from .builtins import name_of
from .instances import allocate, initialise_payload
from .text import text

# class of the variable that is `self` -> handler(tx, descriptor, self, rest, kwargs)
method_of = ByClass()
IMMUTABLE = {object, bytes, slice, range, types.GenericAlias, types.UnionType, types.CodeType}
VALUES = {str, bytes, int, float, complex}  # also of subclasses, whose objects may have fields
CONTAINERS = (dict, list, tuple, set)
OF_CLASSES = {  # methods of `type` that look at a class, and at nothing else
    "__subclasscheck__",
    "__instancecheck__",
    "mro",
    "__init_subclass__",
    "__subclasshook__",
}


@callable_of_type(
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType
)
def call_descriptor(tx, descriptor, args, kwargs) -> Variable:
    """A method of a C type, called with the object as its first argument."""
    owner, name = descriptor.__objclass__, descriptor.__name__
    if not args:
        raise Break("C function", f"the call of {owner.__name__}.{name}() on nothing")
    if not takes(descriptor, args, kwargs):  # plain Python says what is wrong with them
        raise Break("arguments", f"the arguments of {owner.__name__}.{name}()")
    self, *rest = args
    check_dict(descriptor, self)
    result = method_of.ask(type(self), tx, descriptor, self, rest, kwargs)
    if result is not None:
        return result
    if owner is object and name in OBJECT_METHODS and not isinstance(self, ConstantVar):
        return OBJECT_METHODS[name](tx, [self, *rest], {})
    if is_its_own(self, descriptor) and not isinstance(self, ClassVar):
        return self.call_method(tx, name, rest, kwargs)
    raise Break("C function", f"the call of {owner.__name__}.{name}() on {self}")


@functools.cache
def signature_of(descriptor) -> inspect.Signature | None:
    """What its documentation tells of the arguments, if it does."""
    try:
        return inspect.signature(descriptor)
    except ours(TypeError, ValueError):
        return None


def takes(descriptor, args, kwargs) -> bool:
    """Could a method of a C type be called with so many arguments?"""
    signature = signature_of(descriptor)
    try:
        return signature is None or signature.bind(*args, **kwargs) is not None
    except ours(TypeError):
        return False


def check_dict(descriptor, self: Variable) -> None:
    """dict.pop() of an OrderedDict; OrderedDict.copy() of a subclass's object."""
    payload = getattr(self, "payload", None)
    inside = self if payload is None else payload
    if not isinstance(inside, DictVar):
        return
    owner, name = descriptor.__objclass__, descriptor.__name__
    overridden = owner is dict and lookup(inside.cls, name)[1] is not descriptor
    asks = owner is collections.OrderedDict and inside is not self
    if asks and name in ("update", "setdefault", "pop", "__init__"):  # which ask these of the class
        items = ("__setitem__", "__getitem__", "__delitem__", "__contains__")
        asks = not all(is_inherited(self.cls, each) for each in items)
    else:
        asks = asks and name == "copy"
    if overridden or asks:
        raise Break("C function", f"{owner.__name__}.{name}() of {self}")


def is_its_own(self: Variable, descriptor) -> bool:
    """Is it the method that the object itself would find?  Else it is a base's, called by name."""
    return lookup(self.python_type(), descriptor.__name__)[1] is descriptor


@method_of(ObjectVar)
def _of_object(tx, descriptor, self, rest, kwargs):
    owner, name = descriptor.__objclass__, descriptor.__name__
    if owner not in self.cls.__mro__:  # plain Python says what is wrong
        raise Break("C function", f"the call of {owner.__name__}.{name}() on {self}")
    if owner is object and name in OBJECT_METHODS:
        return OBJECT_METHODS[name](tx, [self, *rest], {})
    if issubclass(owner, BaseException):
        result = of_exception(tx, name, self, rest, kwargs)
        if result is not None:
            return result
    if self.payload is not None and issubclass(owner, CONTAINERS):
        return of_payload(tx, descriptor, self, rest, kwargs)
    if owner is str and type(self.value) is TorchVersion:
        return of_version(tx, name, self.value, rest, kwargs)
    immutable = owner in IMMUTABLE or owner.__module__ in ("re", "inspect")
    if owner in VALUES or immutable and self.value is not None and self.fields is None:
        return tx.fold(on_host(descriptor, [self, *rest], kwargs))
    raise Break("C function", f"the call of {owner.__name__}.{name}() on {self}")


def of_version(tx, name: str, version: TorchVersion, rest: list, kwargs: dict) -> Variable:
    """A method of `str` that torch.__version__ does not override: it gives what text gives."""
    plain = ConstantVar(str.__str__(version))
    if name == "__iter__":
        return tx.iter_of(plain)
    return plain.call_method(tx, name, rest, kwargs)


def of_exception(tx, name: str, self: ObjectVar, rest: list, kwargs: dict) -> Variable | None:
    """The methods of BaseException."""
    if name == "__init__":
        initialise_exception(self.cls, self, rest, kwargs)
        return NONE
    if name == "with_traceback" and len(rest) == 1:
        self.generic_setattr(tx, "__traceback__", rest[0])
        return self
    if name in ("__str__", "__repr__"):
        return ConstantVar(text(tx, self, "str" if name == "__str__" else "repr"))
    return None


def of_payload(tx, descriptor, self: ObjectVar, rest: list, kwargs: dict) -> Variable:
    """A method of dict, list, tuple or set, on what a subclass's object holds."""
    name = descriptor.__name__
    if name == "__init__":
        initialise_payload(tx, self.payload, rest, kwargs)
        return NONE
    if name == "__repr__":
        raise Break("string", f"the text of {self}")
    if name == "__getitem__" and isinstance(self.payload, DictVar):
        missing = self.special(tx, "__missing__")
        if missing is not None and not self.payload.contains(tx, rest[0]):
            return missing.call(tx, rest, {})
    if name in ("__ior__", "__or__"):
        raise Break("C function", f"{descriptor.__objclass__.__name__}.{name}")
    return self.payload.call_method(tx, name, rest, kwargs)


@method_of(TensorVar)
def _of_tensor(tx, descriptor, self, rest, kwargs):
    owner = descriptor.__objclass__
    if owner is object or not issubclass(torch.Tensor, owner):
        return None  # object.__eq__(x, y) is not what tensors do for ==
    return self.call_method(tx, descriptor.__name__, rest, kwargs)


@method_of(IteratorVar)
def _of_iterator(tx, descriptor, self, rest, kwargs):
    return self.method___next__(tx) if descriptor.__name__ == "__next__" else None


@method_of(SuperVar)
def _of_super(tx, descriptor, self, rest, kwargs):
    return self.getattr(tx, descriptor.__name__).call(tx, rest, kwargs)


@method_of(ClassVar)
def _of_class(tx, descriptor, self, rest, kwargs):
    name = descriptor.__name__
    if descriptor.__objclass__ is not type:
        return None
    if name == "__call__":
        return instance_of(tx, self.value, rest, kwargs)
    if name in ("__setattr__", "__delattr__", "__init__"):
        return None
    return tx.fold_pinned(on_host(descriptor, [self, *rest], {}))


@method_of(FunctionVar, BoundMethodVar)
def _of_function(tx, descriptor, self, rest, kwargs):
    return BoundMethodVar(self, rest[0]) if descriptor.__name__ == "__get__" else None


@method_of(ConstantVar)
def _of_constant(tx, descriptor, self, rest, kwargs):
    if is_its_own(self, descriptor) and not isinstance(self.value, enum.Enum):
        return None  # (a member of an enumeration would look for it in its class again)
    call = on_host(descriptor, [self, *rest], kwargs, "as_constant")
    return tx.fold(call)


# ---- methods of `object`, on any object
def _not_equal(tx, self, other):
    if lookup(self.python_type(), "__eq__")[1] is not object.__eq__:
        raise Break("compare", "object.__ne__(), which asks the class's own __eq__")
    return False if self.identity() is other.identity() else NotImplemented


METHODS_OF_OBJECT = {
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
    "__ne__": _not_equal,
    "__repr__": lambda tx, self: text(tx, self, "repr"),
    "__str__": lambda tx, self: text(tx, self, "str"),
}
OBJECT_METHODS = {name: checked(name, handler) for name, handler in METHODS_OF_OBJECT.items()}


# ---- functions of C that are bound to a class or a text
@callable_of_type(types.BuiltinFunctionType, types.MethodWrapperType)
def _bound(tx, function, args, kwargs):
    owner = function.__self__
    if isinstance(owner, type):
        return call_class_method(tx, owner, function, args, kwargs)
    if type(owner) is str or isinstance(owner, enum.Enum):
        return ConstantVar(owner).call_method(tx, function.__name__, args, kwargs)
    return None


def call_class_method(tx, owner: type, function, args: list, kwargs: dict) -> Variable:
    """dict.fromkeys, int.from_bytes, torch.Size methods..."""
    name = function.__name__
    if name == "fromkeys" and 1 <= len(args) <= 2 and not kwargs:
        made = tx.call_class(owner, [], {})
        for key in args[0].iterate(tx):
            made.setitem(tx, key, args[1] if len(args) > 1 else NONE)
        return made
    if name == "__subclasses__" and not args:
        found = function()
        source = tx.output.tree.pinned(owner)
        tx.output.guard(source, ("SUBCLASS", None), "type.__subclasses__({0}) == {pin}", found)
        return tx.output.wrap_result(found)
    if issubclass(owner, (int, float, str, bytes)):
        return tx.fold(on_host(function, args, {}, "as_constant"))
    if name in OF_CLASSES:
        return tx.fold_pinned(on_host(function, args, {}))
    raise Break("C function", f"the call of {owner.__name__}.{name}()")


# ---- allocators: object.__new__(cls), dict.__new__(cls), tuple.__new__(cls, items)
def _new_object(new, tx, *args, **kwargs):
    """object.__new__(cls), dict.__new__(cls), tuple.__new__(cls, items)."""
    cls = args[0].as_constant()
    if issubclass(cls, tuple):
        items = list(args[1].iterate(tx)) if len(args) > 1 else []
        if cls is tuple or is_plain_named_tuple(cls):
            return TupleVar(items, cls)
    return allocate(tx, cls, args[1:], new)


for _class in (object, dict, tuple, list, set, BaseException):
    rule(_class.__new__)(functools.partial(_new_object, _class.__new__))

"""What calling a builtin means: one rule per function or class, tables for the rest.

In:   `call_c(tx, function, args, kwargs)`, `call_class(tx, cls, args, kwargs)`.   Out: a variable,
      or `Break`.

    >>> RULES[len](tx, [list_variable], {})         # the table begins in torch_rules.py

Pure functions on constants are folded by calling them; functions that take callbacks are traced as
`polyfills`. Mirrors torch/_dynamo/variables/builtin.py.
"""

import builtins
import collections
import functools
import inspect
import logging
import operator
import sys
import types

import torch

from .. import polyfills, runtime
from ..exceptions import Break, ObservedException
from ..foreign import ours
from ..guards import constant_check
from ..variables.constant import NUMPY, ConstantVar, is_constant_value
from ..variables.containers import (
    DictVar,
    DictViewVar,
    ListVar,
    ProxyVar,
    SequenceVar,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, CallableVar, FunctionVar, PartialVar
from ..variables.iterators import (
    CallIterator,
    EnumerateVar,
    FilterVar,
    HostIterator,
    IteratorVar,
    MapVar,
    SequenceIterator,
    ZipVar,
)
from ..variables.modules import PyModuleVar
from ..variables.classes import ClassVar, allocate, initialise_payload, instantiate
from ..variables.exceptions import initialise_exception
from ..variables.lookup import MISSING, lookup, trusted, type_text
from ..variables.objects import ObjectVar
from ..variables.super import SuperVar
from ..variables.symbolic import CALLS, SymVar, apply, is_number
from ..variables.tensor import TensorVar
from . import class_checks  # noqa: F401  (its rules join the table)
from .opcodes import slice_of
from .operations import BINARY, COMPARE, UNARY
from .torch_rules import NONE, RULES, _plainly, call_leaf, is_leaf, refused, rule, rules

PURE_MODULES = {
    "math",
    "operator",
    "_operator",
    "builtins",
    "_functools",
    "inspect",
    "re",
    "string",
    "posixpath",
    "keyword",
    "numbers",
    "typing",
    "types",
    "cmath",
    "unicodedata",
    "textwrap",
    "os.path",
    "genericpath",
    "_sre",
}
IMPURE = {
    print,
    input,
    open,
    exec,
    eval,
    compile,
    globals,
    locals,
    vars,
    dir,
    id,
    __import__,
    breakpoint,
    help,
    builtins.__build_class__,
}
C_FUNCTIONS = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)
IMMUTABLE = {object, bytes, slice, range, types.GenericAlias, types.UnionType, types.CodeType}
CONSTANT_CLASSES = {
    int,
    float,
    str,
    bytes,
    bool,
    complex,
    range,
    torch.device,
    torch.dtype,
    torch.finfo,
    torch.iinfo,
    *NUMPY,
}
EMPTY, POLYFILLS, OD_COPY = TupleVar([]), polyfills.POLYFILLS, collections.OrderedDict.copy
UFUNCS = tuple({type(sys.modules["numpy"].add)} if NUMPY else ())  # NumPy on numbers


# ---- the two entries
def call_c(tx, value, args, kwargs):
    try:
        found, polyfill = RULES.get(value), POLYFILLS.get(value)
    except ours(TypeError):  # not hashable
        raise Break("C function", f"the call of a {type(value).__name__}") from None
    if found is not None:
        return found(tx, args, kwargs)
    if is_leaf(value):
        return call_leaf(tx, value, args, kwargs)
    if polyfill is not None:
        return tx.output.wrap_pinned(polyfill).call(tx, args, kwargs)
    if isinstance(
        value,
        (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    ):
        return call_descriptor(tx, value, args, kwargs)
    if isinstance(value, functools._lru_cache_wrapper):
        plain = [
            a.is_constant() or isinstance(a, ObjectVar) and isinstance(a.value, logging.Logger)
            for a in (*args, *kwargs.values())
        ]
        if all(plain):
            # its results are cached by its own contract, until it is cleared;
            # logger.warning_once(text) prints once
            call = functools.partial(
                value, *[a.real() for a in args], **{k: v.real() for k, v in kwargs.items()}
            )
            result = tx.fold_pinned(call)
            if not trusted(value.__module__):
                check, pin = (
                    constant_check(call())
                    if is_constant_value(call())
                    else ("{0} is {pin}", call())
                )
                tx.output.guard(
                    tx.output.tree.pinned(call, value.__name__),
                    "CACHED",
                    check.replace("{0}", "{0}()"),
                    pin,
                )
            return result
        return tx.output.wrap_pinned(value.__wrapped__).call(tx, args, kwargs)
    if isinstance(value, (operator.itemgetter, operator.attrgetter)) and len(args) == 1:
        found = [
            args[0].getitem(tx, tx.output.wrap_result(key))
            if isinstance(value, operator.itemgetter)
            else functools.reduce(
                lambda part, name: part.getattr(tx, name), key.split("."), args[0]
            )
            for key in value.__reduce__()[1]
        ]
        return TupleVar(found) if len(found) > 1 else found[0]
    if isinstance(value, operator.methodcaller) and type(value.__reduce__()[0]) is type:
        name, *values = value.__reduce__()[1]
        return args[0].call_method(tx, name, [tx.output.wrap_result(item) for item in values], {})
    owner = getattr(value, "__self__", None)
    if isinstance(owner, type):
        return call_class_method(tx, owner, value, args, kwargs)
    if (
        value in CALLS
        and len(args) == 1
        and type(args[0]) is SymVar
        and (result := apply(tx, CALLS[value], *args)) is not None
    ):
        return result
    if isinstance(value, UFUNCS) and all(type(a) is ConstantVar for a in (*args, *kwargs.values())):
        result = tx.fold(value, *[a.value for a in args], **{k: v.value for k, v in kwargs.items()})
        if type(result) is ConstantVar:
            return result
        raise Break("C function", f"numpy.{value.__name__}() made an array")
    if type(owner) is str:
        return ConstantVar(owner).call_method(tx, value.__name__, args, kwargs)
    if is_pure(value):
        for a in (*args, *kwargs.values()):
            if isinstance(a, ObjectVar) and not a.immutable():
                raise Break("C function", f"the call of {value.__name__}() on {a}")
        values, named = [a.real() for a in args], {k: v.real() for k, v in kwargs.items()}
        return tx.fold(value, *values, **named)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", str(value))
    module = getattr(value, "__module__", None)
    raise Break(
        "C function",
        f"the call of {module + '.' if module and module != 'builtins' else ''}{name}()",
        "move it out of the compiled function"
        if value is not print
        else "print after the compiled function",
    )


def is_pure(value):
    if value in IMPURE or not isinstance(value, C_FUNCTIONS):
        return False
    module = getattr(value, "__module__", None)
    if module is None:
        owner = getattr(value, "__self__", None)
        module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    return module in PURE_MODULES


def call_class_method(tx, owner, value, args, kwargs):
    """dict.fromkeys, int.from_bytes, torch.Size methods..."""
    if value.__name__ == "fromkeys" and 1 <= len(args) <= 2 and not kwargs:
        made = call_class(tx, owner, [], {})
        for key in args[0].iterate(tx):
            made.setitem(tx, key, args[1] if len(args) > 1 else NONE)
        return made
    if issubclass(owner, (int, float, str, bytes)):
        return tx.fold(value, *[a.as_constant() for a in args])
    if value.__name__ in (
        "__subclasscheck__",
        "__instancecheck__",
        "mro",
        "__init_subclass__",
        "__subclasshook__",
    ):
        return tx.fold_pinned(value, *[a.real() for a in args])
    raise Break("C function", f"the call of {owner.__name__}.{value.__name__}()")


def _new_object(new, tx, args, kwargs):
    """object.__new__(cls), dict.__new__(cls), tuple.__new__(cls, items)."""
    cls = args[0].as_constant()
    if issubclass(cls, tuple):
        items = list(args[1].iterate(tx)) if len(args) > 1 else []
        return (
            TupleVar(items, cls)
            if hasattr(cls, "_fields") or cls is tuple
            else call_class(tx, cls, args[1:], kwargs)
        )
    return allocate(tx, cls, args[1:], new)


for _class in (object, dict, tuple, list, set, collections.OrderedDict, BaseException):
    RULES[_class.__new__] = functools.partial(_new_object, _class.__new__)


@functools.cache
def signature_of(descriptor):
    """What its documentation tells of the arguments, if it does."""
    try:
        return inspect.signature(descriptor)
    except ours(TypeError, ValueError):
        return None


def takes(descriptor, args, kwargs):
    """Could a method of a C type be called with so many arguments?"""
    signature = signature_of(descriptor)
    try:
        return signature is None or signature.bind(*args, **kwargs) is not None
    except ours(TypeError):
        return False


def call_descriptor(tx, value, args, kwargs):
    """dict.get(d, k), object.__setattr__(o, n, v), str.join(s, parts): the method of args[0] by
    that C class."""
    owner, name = value.__objclass__, value.__name__
    if not args:
        raise Break("C function", f"the call of {owner.__name__}.{name}() on nothing")
    if not takes(value, args, kwargs):  # plain Python says what is wrong with them
        raise Break("arguments", f"the arguments of {owner.__name__}.{name}()")
    self, *rest = args
    inside = (
        getattr(self, "payload", None) or self
    )  # dict.pop() of an OrderedDict; OrderedDict.copy() of a subclass's object
    if isinstance(inside, DictVar) and (
        owner is dict
        and lookup(inside.cls, name)[1] is not value
        or value is OD_COPY
        and inside is not self
    ):
        raise Break("C function", f"{owner.__name__}.{name}() of {self}")
    if isinstance(self, ObjectVar):
        if owner is object and name in OBJECT_METHODS:
            return _plainly(value, OBJECT_METHODS[name], tx, [self, *rest], {})
        if issubclass(owner, BaseException) and name == "__init__":
            initialise_exception(self.cls, self, rest, kwargs)
            return NONE
        if self.payload is not None and issubclass(owner, (dict, list, tuple, set)):
            if name == "__init__":
                initialise_payload(tx, self.payload, rest, kwargs)
                return NONE
            if name == "__repr__":
                raise Break("string", f"the text of {self}")
            missing = (
                self.special(tx, "__missing__")
                if name == "__getitem__" and isinstance(self.payload, DictVar)
                else None
            )
            if missing is not None and not self.payload.contains(tx, rest[0]):
                return missing.call(tx, rest, {})
            if name == "__ior__" or name == "__or__":
                raise Break("C function", f"{owner.__name__}.{name}")
            return self.payload.call_method(tx, name, rest, kwargs)
        if issubclass(owner, BaseException) and name == "with_traceback" and len(rest) == 1:
            self.generic_setattr(tx, "__traceback__", rest[0])
            return self
        if issubclass(owner, BaseException) and name in ("__str__", "__repr__"):
            return ConstantVar(text(tx, self, "str" if name == "__str__" else "repr"))
        if (
            (owner in IMMUTABLE or owner.__module__ in ("re", "inspect"))
            and self.value is not None
            and self.fields is None
        ):
            return tx.fold(
                value, *[a.real() for a in args], **{k: v.real() for k, v in kwargs.items()}
            )
        raise Break("C function", f"the call of {owner.__name__}.{name}() on {self}")
    if isinstance(self, TensorVar) and issubclass(torch.Tensor, owner):
        return self.call_method(tx, name, rest, kwargs)
    if isinstance(self, IteratorVar) and name == "__next__":
        return self.method___next__(tx)
    if isinstance(self, SuperVar):
        return self.getattr(tx, name).call(tx, rest, kwargs)
    if owner is object and name in OBJECT_METHODS and not isinstance(self, ConstantVar):
        return _plainly(value, OBJECT_METHODS[name], tx, [self, *rest], {})
    if owner is type and name == "__call__" and isinstance(self, ClassVar):
        return instantiate(tx, self.value, rest, kwargs)
    if (
        isinstance(self, ClassVar)
        and owner is type
        and name not in ("__setattr__", "__delattr__", "__init__")
    ):
        return tx.fold_pinned(value, *[a.real() for a in args])
    if isinstance(self, (FunctionVar, BoundMethodVar)) and name == "__get__":
        return BoundMethodVar(self, rest[0])
    is_its_own = lookup(self.python_type(), name)[1] is value  # else a base's, called by name
    if isinstance(self, ConstantVar) and not is_its_own:
        values = [a.as_constant() for a in args]
        tx.check_size(name, *values)
        return tx.fold(value, *values, **{k: v.as_constant() for k, v in kwargs.items()})
    if is_its_own and not isinstance(self, ClassVar):
        return self.call_method(tx, name, rest, kwargs)
    raise Break("C function", f"the call of {owner.__name__}.{name}() on {self}")


OBJECT_METHODS = {
    "__getattribute__": lambda tx, self, name: self.generic_getattr(tx, _name(name)),
    "__setattr__": lambda tx, self, name, value: self.generic_setattr(tx, _name(name), value),
    "__delattr__": lambda tx, self, name: self.generic_delattr(tx, _name(name)),
    "__init__": lambda tx, self, *rest: (
        refused("arguments", "arguments of object.__init__()")(tx) if rest else None
    ),
    "__init_subclass__": lambda tx, self, *rest: None,
    "__eq__": lambda tx, self, other: ConstantVar(
        True if self.identity() is other.identity() else NotImplemented
    ),
    "__ne__": lambda tx, self, other: (
        refused("compare", "object.__ne__(), which asks the class's own __eq__")(tx)
        if lookup(self.python_type(), "__eq__")[1] is not object.__eq__
        else ConstantVar(False if self.identity() is other.identity() else NotImplemented)
    ),
    "__repr__": lambda tx, self: ConstantVar(text(tx, self, "repr")),
    "__str__": lambda tx, self: ConstantVar(text(tx, self, "str")),
}


def call_class(tx, cls, args, kwargs):
    found = RULES.get(cls)
    if found is not None:
        return found(tx, args, kwargs)
    if cls in POLYFILLS:
        return tx.output.wrap_pinned(POLYFILLS[cls]).call(tx, args, kwargs)
    if cls in CONSTANT_CLASSES:
        return constant_class(tx, cls, args, kwargs)
    if (
        issubclass(cls, tuple)
        and hasattr(cls, "_fields")
        and isinstance(cls.__new__, types.FunctionType)
    ):
        return tx.output.wrap_pinned(cls.__new__).call(tx, [ClassVar(cls), *args], kwargs)
    if issubclass(cls, tuple) and cls.__module__ == "torch.return_types":
        raise Break("class", f"making a {cls.__name__}")
    if type(cls).__name__ in ("EnumType", "EnumMeta"):
        return tx.fold_pinned(cls, *[a.as_constant() for a in args])
    if cls in FOLDED_CLASSES:
        return tx.output.wrap_pinned(
            cls(*[a.real() for a in args], **{k: v.real() for k, v in kwargs.items()})
        )
    if (
        issubclass(cls, torch.nn.Module)
        and lookup(cls, "__init__")[0].__module__.startswith("torch.nn.modules.")
        and all(a.is_constant() for a in (*args, *kwargs.values()))
    ):
        make = functools.partial(
            cls, *[a.as_constant() for a in args], **{k: v.as_constant() for k, v in kwargs.items()}
        )
        made = make()
        if not any(
            v is not None
            for t in (made._parameters, made._buffers, made._modules)
            for v in t.values()
        ):  # stateless
            tx.output.makers[id(made)] = make
            return tx.output.wrap_pinned(made)
    if issubclass(cls, (torch.Tensor, torch.autograd.Function)):
        raise Break("class", f"making a {cls.__name__}")
    return instantiate(tx, cls, args, kwargs)


FOLDED_CLASSES = {
    operator.itemgetter,
    operator.attrgetter,
    operator.methodcaller,
    inspect.Parameter,
    object,
}


SPECIAL = {int: "__int__", float: "__float__", complex: "__complex__", bool: "__bool__"}


def constant_class(tx, cls, args, kwargs):
    value = args[0] if args else None
    if cls in SPECIAL and isinstance(value, TensorVar):
        return value.call_method(tx, SPECIAL[cls], [], {})
    if (
        type(value) is SymVar
        and cls in (int, float)
        and len(args) == 1
        and value.python_type() is not bool
    ):
        return apply(tx, CALLS[cls], value) or tx.fold(cls, value.as_constant())
    if cls is bool and value is not None:
        return ConstantVar(value.truth(tx))
    if cls is str and len(args) == 1:
        return ConstantVar(text(tx, value, "str"))
    method = (
        value.special(tx, SPECIAL[cls]) if cls in SPECIAL and isinstance(value, ObjectVar) else None
    )
    if method is not None:
        return method.call(tx, [], {})
    return tx.fold(
        cls, *[a.as_constant() for a in args], **{k: v.as_constant() for k, v in kwargs.items()}
    )


# ---- text
def text(tx, value, how):
    """str(), repr(), ascii() or format() on the host."""
    convert = {"str": str, "repr": repr, "ascii": ascii, "format": format}[how]
    if isinstance(value, ObjectVar):
        written = lookup(value.cls, "__str__")[1]
        if (
            how != "repr"
            and isinstance(written, types.WrapperDescriptorType)
            and issubclass(value.cls, BaseException)
            and (value.value is None or written in (BaseException.__str__, KeyError.__str__))
        ):  # these look at the arguments alone
            args = [a.realize(tx).as_constant() for a in value.getattr(tx, "args").iterate(tx)]
            return str(runtime.new_exception(value.cls, args, {}, None, None, False))
        if (
            issubclass(value.cls, BaseException)
            and how == "repr"
            and isinstance(lookup(value.cls, "__repr__")[1], types.WrapperDescriptorType)
        ):
            parts = ", ".join(
                [text(tx, a.realize(tx), "repr") for a in value.getattr(tx, "args").iterate(tx)]
            )
            return f"{value.cls.__name__}({parts})"
        for name in (
            ("__repr__",)
            if how == "repr"
            else ("__format__", "__str__", "__repr__")
            if how == "format"
            else ("__str__", "__repr__")
        ):
            method = lookup(value.cls, name)[1]
            if isinstance(method, types.FunctionType):
                args = [ConstantVar("")] if name == "__format__" else []
                return tx.output.wrap_pinned(method).call(tx, [value, *args], {}).as_constant()
        if value.pinned or value.source is not None and value.source.kind == "pinned":
            return convert(value.real())
        raise Break("string", f"the text of {value}")
    if isinstance(value, (ClassVar, CallableVar, PyModuleVar)):
        return convert(value.identity())
    if isinstance(value, FunctionVar):
        raise Break("string", "the text of a function")
    if isinstance(value, SetVar) and value.cls in (set, frozenset) and value.length(tx):
        # item by item: a set that is made again may have another order
        inside = ", ".join(
            [text(tx, item, "ascii" if how == "ascii" else "repr") for item in value.iterate(tx)]
        )
        return f"{{{inside}}}" if value.cls is set else f"frozenset({{{inside}}})"
    if isinstance(value, TensorVar):
        raise Break(
            "string",
            "the text of a tensor",
            "print or format tensors outside the compiled function",
        )
    return tx.fold(convert, value.as_constant()).value


# ---- what takes some lines: the arguments are those of the builtin
def _name(variable):
    if not isinstance(variable.as_constant(), str):
        raise Break("arguments", f"{variable} as the name of an attribute")
    return variable.as_constant()


def _getattr(tx, owner, name, default=None, /):
    try:
        return owner.getattr(tx, _name(name))
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
def _super(tx, args, kwargs):
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


def _partial(tx, function, /, *args, **kwargs):
    if isinstance(function, PartialVar):
        args, kwargs = [*function.args, *args], {**function.kwargs, **kwargs}
        function = function.function
    return PartialVar(function, list(args), kwargs, None)


def _method(tx, function, instance, /):
    if instance.identity() is None or not hasattr(function.python_type(), "__call__"):
        raise Break("arguments", f"a method of {function} and {instance}")
    return BoundMethodVar(function, instance)


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
        tx.raise_(TypeError, f"'{value.python_type().__name__}' object is not reversible")
    if isinstance(value, (DictVar, DictViewVar, ProxyVar)):
        like = getattr(value, "dict", value).cls()
        kind = getattr(value, "kind", None)  # of a dict's view
        return HostIterator(
            iter(list(value.iterate(tx))[::-1]),
            type(reversed(getattr(like, kind)() if kind else like)),
        )
    tx.raise_(TypeError, f"'{value.python_type().__name__}' object is not reversible")


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
        functools.partial: _partial,
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
        **_each({**BINARY, "+=": operator.iconcat}, "binary"),
        **_each(BINARY, "binary"),
        **_each(COMPARE, "compare"),
        **_each(UNARY, "unary"),
        sum: _sum,
        repr: lambda tx, value, /: ConstantVar(text(tx, value, "repr")),
        format: lambda tx, *args: tx.fold(format, *[a.as_constant() for a in args]),
        vars: lambda tx, owner=None, /: (
            refused("C function", "the call of vars()")(tx) if owner is None else _vars(tx, owner)
        ),
        hasattr: lambda tx, owner, name, /: ConstantVar(tx.has_attr(owner, _name(name))),
        setattr: lambda tx, owner, name, value, /: owner.setattr(tx, _name(name), value),
        delattr: lambda tx, owner, name, /: owner.delattr(tx, _name(name)),
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
        types.MethodType: _method,
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

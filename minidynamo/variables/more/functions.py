"""Functions and methods as values: their attributes, and code that makes them again.

In:   a function, method or closure cell, and a name.
Out:  the attribute, guarded if the function is from outside; the function, after a graph break.

    >>> function.getattr(tx, "__name__")
"""

import functools
import types
import typing
import weakref
from typing import Any

from ...extras.extending import extends
from ...bytecode import emit
from ...exceptions import Break
from ...foreign import ours
from ..base import Codegen, Frame, Lazy, OutputGraph, RealVar, Source, Variable
from ..builder import Builder
from ..constant import ConstantVar
from ..containers import DictVar, TupleVar, named
from ..functions import (
    C_CALLABLES,
    BoundMethodVar,
    CallableVar,
    CellVar,
    FunctionVar,
    MethodVar,
    pinned_callable,
)
from ..lookup import MISSING, lookup, trusted
from ..tensor import TensorVar
from ..registry import BY_VALUE, PINNED, SHARED, by_identity
from .asked_identity import note_key
from .dictionaries import mapping

BOUND = {  # descriptors of C types -> what binding them makes
    types.MethodDescriptorType: types.BuiltinMethodType,
    types.WrapperDescriptorType: types.MethodWrapperType,
}


def bound_descriptor(found: Any, instance: Variable) -> BoundMethodVar:
    """A method of a C type: what its descriptor's `__get__` makes is no `types.MethodType`."""
    made = BOUND.get(type(found), types.MethodType)
    return BoundMethodVar(CallableVar(found), instance, cls=made)


def new_function(
    template: Any, defaults: Any, kwdefaults: Any, name: str, attributes: Any, annotations: Any
) -> Any:
    template.__defaults__ = defaults
    template.__kwdefaults__ = kwdefaults or None
    template.__qualname__ = name
    template.__name__ = name.rpartition(".")[2]
    if annotations is not None:
        template.__annotations__ = annotations
    for attribute, value in (attributes or {}).items():
        setattr(template, attribute, value)
    return template


def written(name: str) -> bool:
    """Is this a field of every function that a program may replace?"""
    try:
        setattr(written, name, getattr(written, name))
    except ours(AttributeError, TypeError):
        return False
    return True


WRITABLE = frozenset(filter(written, dir(written)))


NAMES_OF_METHODS = {*dir(types.MethodType)} - {"__doc__"}  # what is not asked of the function


@extends(FunctionVar)
class FunctionAttributes(FunctionVar):
    attrs: Any = None  # its __dict__, once somebody asks
    annotations: Any = None

    def real(self) -> Any:
        if self.fn is None or self.attrs is not None and self.attrs.mutated:
            raise Break("constant", f"{self} was made or changed in this frame")
        return self.fn

    def getattr(self, tx: Frame, name: str) -> Variable:
        if isinstance(self.attrs, DictVar) and name in self.attrs.items:
            return self.attrs.get(tx, ConstantVar(name))
        if name == "__dict__":
            return dict_of(self, tx)
        if self.fn is not None:
            return real_attribute(self, tx, name)
        if name in MADE_HERE:
            return MADE_HERE[name](self)
        return Variable.getattr(self, tx, name)

    def setattr(self, tx: Frame, name: str, value: Variable) -> None:
        if self.fn is not None:
            raise Break("attribute", f"setting .{name} of the function {self.name}")
        if name in ("__name__", "__qualname__"):
            self.name = value.as_constant()
        elif name == "__annotations__":
            self.annotations = value
        dict_of(self, tx).store(tx, ConstantVar(name), value)

    def hash_key(self, tx: Frame) -> Any:
        note_key(tx, self)
        return self.identity()

    def argument(self, part: Any) -> Any:
        return Variable.argument(self, part) if self.fn is None else self.fn

    def reconstruct(self, cg: Codegen) -> None:
        if self.fn is not None:
            cg.load_const(self.fn)
            return
        added = self.defaults or self.kwdefaults or self.attrs or self.annotations
        if not added and self.name == self.code.co_qualname:
            self._made(cg)
        else:
            attributes = {} if self.attrs is None else self.attrs.items
            cg.call_object(
                new_function,
                functools.partial(self._made, cg),
                TupleVar(list(self.defaults)) if self.defaults else ConstantVar(None),
                functools.partial(mapping, cg, named(self.kwdefaults)),
                ConstantVar(self.name),
                functools.partial(mapping, cg, attributes),
                self.annotations or ConstantVar(None),
            )
        cg.remember(self)

    def _made(self, cg: Codegen) -> None:
        """The function, without what can be set later."""
        parts = (self.code, self.globals, self.name.rpartition(".")[2], None)
        closure: Any = ConstantVar(None)
        if self.closure:
            closure = functools.partial(cg.build, "BUILD_TUPLE", self.closure)
        cg.call_object(types.FunctionType, *map(RealVar, parts), closure)


def real_attribute(self: FunctionAttributes, tx: Frame, name: str) -> Variable:
    if lookup(types.FunctionType, name)[1] is MISSING:
        found = dict_of(self, tx).get(tx, ConstantVar(name))
        if found is None:
            tx.raise_(AttributeError, f"'function' object has no attribute '{name}'")
        return found
    value = getattr(self.fn, name)
    if name in ("__globals__", "__closure__"):
        raise Break("attribute", f"function.{name} is not traced")
    source = self.source or tx.output.tree.pinned(self.fn)
    if name not in WRITABLE:
        return tx.output.wrap_pinned(value)
    return tx.output.wrap(value, source.attr(name))


def annotations_of(self: FunctionAttributes) -> Variable:
    self.annotations = self.annotations or DictVar({})
    return self.annotations


def dict_of(self: FunctionAttributes, tx: Frame) -> DictVar:
    if self.attrs is None and self.fn is None:
        self.attrs = DictVar({})
    elif self.attrs is None:
        source = self.source or tx.output.tree.pinned(self.fn)
        self.attrs = tx.output.wrap(vars(self.fn), source.attr("__dict__"))
    return self.attrs


MADE_HERE = {  # attributes of a function that was made in this frame
    "__name__": lambda f: ConstantVar(f.name.rpartition(".")[2]),
    "__qualname__": lambda f: ConstantVar(f.name),
    "__code__": lambda f: ConstantVar(f.code),
    "__doc__": lambda f: ConstantVar(
        next((doc for doc in f.code.co_consts[:1] if isinstance(doc, str)), None)
    ),
    "__module__": lambda f: ConstantVar(f.globals.get("__name__")),
    "__annotations__": annotations_of,
    "__closure__": lambda f: TupleVar(list(f.closure)) if f.closure else ConstantVar(None),
    "__defaults__": lambda f: TupleVar(list(f.defaults)) if f.defaults else ConstantVar(None),
}
if hasattr(types.FunctionType, "__type_params__"):  # 3.12; `def f[T]()` breaks the graph
    MADE_HERE["__type_params__"] = lambda f: TupleVar([])


@extends(CellVar)
class CellMethods(CellVar):
    def reconstruct(self, cg: Codegen) -> None:
        if isinstance(self.cell, str):  # the root's own cell, or one of its free variables
            cg.add(emit.load_cell(self.cell))
        elif self.source is not None:
            cg.load_source(self.source)
        else:
            cg.call_object(types.CellType)
            cg.remember(self)
            if self.content is not None:  # after `remember`: a closure may refer to itself
                cg.value(self.content)
                cg.emit("COPY", 2)
                cg.emit("STORE_ATTR", "cell_contents")

    def replay(self, cg: Codegen) -> None:
        if self.content is None:
            raise Break("reconstruct", "a variable of a closure that is deleted")
        if isinstance(self.cell, str):
            cg.value(self.content)
            cg.commit("STORE_DEREF", self.cell)
        else:
            cg.value(self.content)
            cg.value(self)
            cg.commit("STORE_ATTR", "cell_contents")


@extends(BoundMethodVar)
class MethodAttributes(BoundMethodVar):
    def real(self) -> Any:
        return getattr(self.instance.real(), self.function.real().__name__)

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__self__":
            return self.instance
        if self.cls is not types.MethodType:
            raise Break("attribute", f".{name} of a method of C")
        if name == "__func__":
            return self.function
        if name in NAMES_OF_METHODS:
            return tx.method_of(self, name)
        return self.function.getattr(tx, name)

    def hash_key(self, tx: Frame) -> Any:
        note_key(tx, self.instance)
        return ("bound method", self.function.identity(), self.instance.identity())

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is not types.MethodType:
            raise Break("reconstruct", "a method of C as a value")
        cg.call_object(types.MethodType, self.function, self.instance)


@extends(MethodVar)
class NativeMethods(MethodVar):
    given = None  # the object itself, where it came from outside

    def identity(self) -> Any:
        return self if self.given is None else self.given

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.instance)
        cg.emit("LOAD_ATTR", self.name)

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Is it one object wherever it lies?  (What would keep a tensor's method would keep the
        tensor alive.)"""
        return not isinstance(self.instance, TensorVar)

    def python_type(self) -> type:
        for owner in self.instance.python_type().__mro__:
            if self.name in owner.__dict__:
                return BOUND.get(type(owner.__dict__[self.name]), types.BuiltinMethodType)
        return types.BuiltinMethodType

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__name__":
            return ConstantVar(self.name)
        if name == "__self__":
            return self.instance
        return Variable.getattr(self, tx, name)


@extends(CallableVar)
class CallableMethods(CallableVar):
    def getattr(self, tx: Frame, name: str) -> Variable:
        if type(self.value) is functools._lru_cache_wrapper:
            raise Break("attribute", f".{name} of a cached function")
        return tx.fold_pinned(getattr, self.value, name)

    def getitem(self, tx: Frame, key: Variable) -> Variable:  # Optional[int], dict[str, int]
        return tx.fold_pinned(lambda: self.value[key.real()])


def cell_of(builder: OutputGraph, cell: Any, source: Source) -> Variable:
    """The variable of a closure cell, one however many functions share it."""
    known = builder.memo.get(id(cell))
    if known is None:
        try:
            content = Lazy(cell.cell_contents, source.child("cell"))
        except ours(ValueError):
            builder.guard(source, "EMPTY", "{0} == {pin}", types.CellType())
            content = None
        known = builder.memo[id(cell)] = (CellVar(content, cell, source=source), cell)
    return known[0]


@extends(Builder)
class Cells(Builder):
    wrap_cell = cell_of


@SHARED.rule(types.CellType)
def wrap_cell(builder: OutputGraph, cell: Any, source: Source) -> Variable:
    return cell_of(builder, cell, source)


@BY_VALUE.rule(*C_CALLABLES)
def wrap_c_callable(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """What C code gives is held by reference; a method of an object is its name on that object."""
    kind = type(value)
    if kind is types.BuiltinMethodType and not isinstance(
        value.__self__, (types.ModuleType, type, type(None))
    ):
        check = f"type({{0}}) is {{pin}} and {{0}}.__name__ == {value.__name__!r}"
        builder.guard(source, "METHOD", check, kind)
        instance = builder.wrap(value.__self__, source.attr("__self__"))
        method: Any = MethodVar(instance, value.__name__, source=source)
        method.given = value
        return method
    if kind is types.BuiltinFunctionType:
        builder.guard(source, "EQ", "{0} == {pin}", value)
    else:
        same = "{0} == {pin}" if kind is types.MethodWrapperType else "{0} is {pin}"
        builder.guard(source, "ID", same, value)
    return builder.wrap_pinned(value)


@SHARED.rule(types.MethodType)
def wrap_method(builder: OutputGraph, value: Any, source: Source) -> Variable:
    function = builder.wrap(value.__func__, source.attr("__func__"))
    instance = builder.wrap(value.__self__, source.attr("__self__"))
    return BoundMethodVar(function, instance, source=source)


def is_typing(value: Any) -> bool:
    """list[int], typing.List, a TypeVar: C code and typing's classes know what to do with them."""
    aliases = (types.GenericAlias, typing._Final)
    return isinstance(value, aliases) or getattr(type(value), "__module__", "") == "typing"


def is_of_typing(value: Any) -> bool:
    """typing.List and the like."""
    return issubclass(type(value), typing._Final)


BY_VALUE.rule(test=is_of_typing, order=20)(by_identity)


def is_fixed_callable(value: Any) -> bool:
    """A callable of C without attributes of its own: operator.itemgetter(0)."""
    kind = type(value)
    plain = trusted(kind.__module__) and not hasattr(kind, "__dict__")
    return callable(value) and plain and not isinstance(value, weakref.ref)


class TypingVar(CallableVar):
    """It is an index of others: Callable[[T], int]."""

    as_constant = CallableVar.real


@PINNED.rule(test=is_typing, order=40)
def pinned_typing(builder: OutputGraph, value: Any) -> Variable:
    return TypingVar(value)


PINNED.rule(test=is_fixed_callable, order=60)(pinned_callable)

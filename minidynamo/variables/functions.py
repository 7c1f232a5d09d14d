"""Callables: Python functions (inlined), closures and their cells, bound methods, C callables.

In:   arguments as variables.   Out: whatever inlining (`tx.inline`) or the rules for C callables
      give.

    >>> FunctionVar.real(fn).call(tx, [x], {})      # traces fn's bytecode in place
Mirrors torch/_dynamo/variables/functions.py (paper section 3.4, inlining).
"""

from __future__ import annotations

import functools
import types
import typing
import weakref
from dataclasses import field
from typing import TYPE_CHECKING, Any

import torch

from .. import runtime
from ..bytecode import emit
from ..exceptions import Break
from ..foreign import ours
from .base import Lazy, RealVar, Variable
from .constant import ConstantVar, is_constant_value
from .containers import TupleVar, named
from .lookup import trusted
from .registry import BY_VALUE, PINNED, SHARED

if TYPE_CHECKING:
    from ..graph_capture import OutputGraph
    from ..reconstruct import Codegen
    from ..sources import Source
    from ..symbolic_eval.evaluator import Frame


class CellVar(Variable):
    """A closure cell: `content` is None while unbound."""

    cls = types.CellType
    content: Any = None
    cell: Any = None  # the real one; of the frame that is compiled: its name

    def load(self, tx: Frame) -> Any:
        if type(self.content) is Lazy:
            self.content = self.content.realize(tx)
        return self.content

    def store(self, value: Variable) -> None:
        self.content, self.mutated = value, True

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "cell_contents":
            if self.content is None:
                tx.raise_(ValueError, "Cell is empty")
            return self.load(tx)
        return super().getattr(tx, name)

    def reconstruct(self, cg: Codegen) -> None:
        if isinstance(self.cell, str):  # the root's own cell, or one of its free variables
            cg.emit(emit.load_cell()[0].op, self.cell, 1)
        elif self.source is not None:
            cg.load_source(self.source)
        else:
            cg.call_object(types.CellType)
            cg.remember(self)
            if self.content is not None:  # after `remember`: a closure may refer to itself
                cg.value(self.content)
                cg.emit("COPY", 2, 1)
                cg.emit("STORE_ATTR", "cell_contents", -2)

    def replay(self, cg: Codegen) -> None:
        if self.content is None:
            cg.commit_call(runtime.empty, self)
        elif isinstance(self.cell, str):
            cg.value(self.content)
            cg.commit("STORE_DEREF", self.cell)
        else:
            cg.value(self.content)
            cg.value(self)
            cg.commit("STORE_ATTR", "cell_contents")


class FunctionVar(Variable):
    """A Python function: a real one (`fn`) or one made in this frame (`fn` None)."""

    cls = types.FunctionType
    fn: Any
    code: types.CodeType
    globals: dict
    name: str
    defaults: tuple = ()
    kwdefaults: dict = field(default_factory=dict)
    closure: tuple = ()
    attrs: Any = field(default=None, init=False)  # its __dict__, once somebody asks
    annotations: Any = field(default=None, init=False)

    def real(self) -> Any:
        if self.fn is None or self.attrs is not None and self.attrs.mutated:
            raise Break(
                "constant", f"the function {self.name} was made in this frame; a real one is needed"
            )
        return self.fn

    def identity(self) -> Any:
        return self if self.fn is None else self.fn

    def hash_key(self, tx: Frame) -> Any:
        return self.identity()

    def call(self, tx: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        return tx.call_function(self, args, kwargs)

    def method___get__(self, tx: Frame, instance: Variable, owner: Variable | None = None) -> Any:
        return self if instance.identity() is None else BoundMethodVar(self, instance)

    def argument(self, part: Any) -> Any:
        return super().argument(part) if self.fn is None else self.fn

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
                runtime.new_function,
                cg.emitter(self._made),
                TupleVar(list(self.defaults)) if self.defaults else ConstantVar(None),
                functools.partial(cg.mapping, named(self.kwdefaults)),
                ConstantVar(self.name),
                functools.partial(cg.mapping, attributes),
                self.annotations or ConstantVar(None),
            )
        cg.remember(self)

    def _made(self, cg: Codegen) -> None:
        """The function, without what can be set later."""
        parts = (self.code, self.globals, self.name.rpartition(".")[2], None)
        closure = functools.partial(cg.build, "BUILD_TUPLE", self.closure)
        cg.call_object(types.FunctionType, *map(cg.constant, parts), closure)

    def __repr__(self) -> str:
        return f"the function {self.name}"


class BoundMethodVar(Variable):
    """function.__get__(instance)."""

    function: Any
    instance: Variable
    cls: type = types.MethodType

    @classmethod
    def of_descriptor(cls, found: Any, instance: Variable) -> BoundMethodVar:
        """A method of a C type: what its descriptor's `__get__` makes is no `types.MethodType`."""
        return cls(CallableVar(found), instance, cls=BOUND.get(type(found), types.MethodType))

    def real(self) -> Any:
        return getattr(self.instance.real(), self.function.real().__name__)

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__self__":
            return self.instance
        if self.cls is not types.MethodType:
            return self.attribute_of_c(tx, name)
        if name == "__func__":
            return self.function
        if name in NAMES_OF_METHODS:
            return tx.method_of(self, name)
        return self.function.getattr(tx, name)

    def method_name(self) -> str:
        """Of a method of a C type."""
        return self.function.value.__name__

    def attribute_of_c(self, tx: Frame, name: str) -> Variable:
        """Its name and text are the descriptor's; the rest is what the type of the method has."""
        if name in ("__name__", "__doc__", "__text_signature__") or (
            name == "__objclass__" and self.cls is types.MethodWrapperType
        ):
            return self.function.getattr(tx, name)
        return tx.method_of(self, name)

    def call(self, tx: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        return self.function.call(tx, [self.instance, *args], kwargs)

    def hash_key(self, tx: Frame) -> Any:
        return ("bound method", self.function.identity(), self.instance.identity())

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is types.MethodType:
            cg.call_object(types.MethodType, self.function, self.instance)
        else:
            # With the type: descriptors of METH_METHOD functions read it without asking if it is
            # there.
            kind = self.instance.python_type()
            get = type(self.function.value).__get__
            cg.call_object(get, self.function, self.instance, lambda: cg.load_const(kind))

    def __repr__(self) -> str:
        return f"the method {getattr(self.function, 'name', self.function)}"


NAMES_OF_METHODS = {*dir(types.MethodType)} - {"__doc__"}  # what is not asked of the function
BOUND = {  # descriptors of C types -> what binding them makes
    types.MethodDescriptorType: types.BuiltinMethodType,
    types.WrapperDescriptorType: types.MethodWrapperType,
}


class MethodVar(Variable):
    """A method found by name on a variable that implements it natively (list.append, tensor.view,
    str.join...)."""

    instance: Variable
    name: str
    native = True

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
        return super().getattr(tx, name)

    def method_name(self) -> str:
        return self.name

    def call(self, tx: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        return self.instance.call_method(tx, self.name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.instance)
        cg.load_attr(self.name)

    def __repr__(self) -> str:
        return f"the method .{self.name} of {self.instance}"


class DeferredVar(Variable):
    """An attribute that tracing could not read: reading is put off to the call, where the graph can
    break."""

    instance: Variable
    name: str
    broken: Break

    def call(self, tx: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        raise self.broken

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.instance)
        cg.load_attr(self.name)


class CallableVar(RealVar):
    """A C callable or torch function: builtins, method descriptors, slot wrappers, `torch.*`; the
    rules decide."""

    def getattr(self, tx: Frame, name: str) -> Variable:
        return tx.fold_pinned(getattr, self.value, name)

    def getitem(self, tx: Frame, key: Variable) -> Variable:  # Optional[int], dict[str, int]
        return tx.fold_pinned(lambda: self.value[key.real()])

    def call(self, tx: Frame, args: list[Variable], kwargs: dict[str, Variable]) -> Variable:
        return tx.call_c(self.value, args, kwargs)

    def method___get__(self, tx: Frame, instance: Variable, owner: Variable | None = None) -> Any:
        return BoundMethodVar(self, instance)

    def __repr__(self) -> str:
        name = (
            getattr(self.value, "__qualname__", None) or f"a {type(self.value).__qualname__}"
        )  # no repr(): that may be Python, and the object half made
        return (
            name
            if name.startswith("a ")
            else f"{getattr(self.value, '__module__', None) or ''}.{name}".lstrip(".")
        )


# ---- functions, methods and callables from outside
C_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    functools._lru_cache_wrapper,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    type(torch.ops.aten),
)


@BY_VALUE.rule(types.FunctionType)
def wrap_function(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """A Python function: by its code, its defaults are read where they are used."""
    if source.root().kind == "pinned" or source.kind == "pinned":
        if source.kind != "pinned":
            builder.guard(source, "ID", "{0} is {pin}", value)
        return builder.wrap_pinned(value)
    known = builder.memo.get(id(value))
    if known is None:
        builder.guard(source, "TYPE", "type({0}) is {pin}", types.FunctionType)
        builder.guard(source, "CODE", "{0}.__code__ is {pin}", value.__code__)
        guard_defaults(builder, value, source)
        known = builder.memo[id(value)] = (function_of(builder, value, source), value)
    elif known[0].source is not source:
        builder.guard_pair("{0} is {1}", source, known[0].source)
    return known[0]


def guard_defaults(builder: OutputGraph, function: Any, source: Source) -> None:
    """As many defaults, for the same names: their values are guarded where they are used."""
    names = list(function.__kwdefaults__ or ())
    check = f"len({{0}}.__defaults__ or ()) == {len(function.__defaults__ or ())}"
    builder.guard(source, "DEFAULTS", f"{check} and [*({{0}}.__kwdefaults__ or ())] == {names!r}")


def function_of(builder: OutputGraph, fn: Any, source: Source) -> FunctionVar:
    """FunctionVar of a real function; defaults and cells are read through `source`."""
    defaults = [
        Lazy(default, source.attr("__defaults__").item(n))
        for n, default in enumerate(fn.__defaults__ or ())
    ]
    kwdefaults = {
        name: Lazy(default, source.attr("__kwdefaults__").item(name))
        for name, default in (fn.__kwdefaults__ or {}).items()
    }
    closure = [
        cell_of(builder, cell, source.child("closure", n))
        for n, cell in enumerate(fn.__closure__ or ())
    ]
    return FunctionVar(
        fn,
        fn.__code__,
        fn.__globals__,
        fn.__qualname__,
        tuple(defaults),
        kwdefaults,
        tuple(closure),
        source=source,
    )


@SHARED.rule(types.CellType)
def wrap_cell(builder: OutputGraph, cell: Any, source: Source) -> Variable:
    return cell_of(builder, cell, source)


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


@BY_VALUE.rule(*C_CALLABLES)
def wrap_c_callable(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """What C code gives is held by reference; a method of an object is its name on that object."""
    kind = type(value)
    if kind is types.BuiltinMethodType and not isinstance(
        value.__self__, (types.ModuleType, type, type(None))
    ):
        check = f"type({{0}}) is {{pin}} and {{0}}.__name__ == {value.__name__!r}"
        builder.guard(source, "METHOD", check, kind)
        return MethodVar(builder.wrap(value.__self__, source.attr("__self__")), value.__name__)
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


@PINNED.rule(types.FunctionType)
def pinned_function(builder: OutputGraph, value: Any) -> Variable:
    builder.guard_function(value)
    if not (value.__closure__ or value.__defaults__ or value.__kwdefaults__):
        return FunctionVar(value, value.__code__, value.__globals__, value.__qualname__)
    variable = function_of(builder, value, builder.tree.pinned(value))
    variable.defaults = tuple(map(constant_at_once, variable.defaults))
    variable.source = None
    return variable


def constant_at_once(default: Lazy) -> Variable:
    """`guard_function` holds the tuple of the defaults fast: its constants need no guard."""
    return ConstantVar(default.value) if is_constant_value(default.value) else default


def is_typing(value: Any) -> bool:
    """list[int], typing.List, a TypeVar: C code and typing's classes know what to do with them."""
    aliases = (types.GenericAlias, typing._Final)
    return isinstance(value, aliases) or getattr(type(value), "__module__", "") == "typing"


def is_fixed_callable(value: Any) -> bool:
    """A callable of C without attributes of its own: operator.itemgetter(0)."""
    kind = type(value)
    plain = trusted(kind.__module__) and not hasattr(kind, "__dict__")
    return callable(value) and plain and not isinstance(value, weakref.ref)


@PINNED.rule(*C_CALLABLES, test=lambda value: isinstance(value, C_CALLABLES), order=30)
@PINNED.rule(test=is_typing, order=40)
@PINNED.rule(test=is_fixed_callable, order=60)
def pinned_callable(builder: OutputGraph, value: Any) -> Variable:
    return CallableVar(value)


def is_class_method(value: Any) -> bool:
    return type(value) is types.MethodType and isinstance(value.__self__, type)


@PINNED.rule(test=is_class_method, order=70)
def pinned_class_method(builder: OutputGraph, value: Any) -> Variable:
    function = builder.wrap_pinned(value.__func__)
    return BoundMethodVar(function, builder.wrap_pinned(value.__self__))

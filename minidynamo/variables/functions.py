"""Callables: Python functions (inlined), closures and their cells, bound methods, C callables.

In:   arguments as variables.
Out:  what inlining (`tx.inline`) or the rules for C callables give; parameters that are bound to
      arguments as CPython binds them.

    >>> builder.wrap_pinned(fn).call(tx, [x], {})      # traces fn's bytecode in place
    >>> bind(tx, function, [a], {"scale": b})       # {"x": a, "scale": b}

Mirrors torch/_dynamo/variables/functions.py (paper section 3.4, inlining).
"""

from __future__ import annotations

import functools
import inspect
import types
from dataclasses import field
from typing import Any

import torch

from ..bytecode import assembler
from ..errors import Break
from .base import MISSING, Args, Codegen, Frame, Lazy, Named, RealVar, Variable, lookup
from .constant import ConstantVar
from .dicts import DictVar, TupleVar, named


def bind(tx: Frame, function: FunctionVar, args: Args, kwargs: Named) -> dict[str, Any]:
    """Parameters of a call: name -> variable, or a default that nobody looked at."""
    code = function.code
    count = code.co_argcount
    parameters = code.co_varnames[: count + code.co_kwonlyargcount]
    stars = iter(code.co_varnames[len(parameters) :])
    by_position, extra = parameters[:count], args[count:]
    given: dict[str, Any] = dict(zip(by_position, args))
    rest = {}
    for name, value in kwargs.items():
        if name not in parameters[code.co_posonlyargcount :]:
            rest[name] = value
        elif name in given:
            tx.wrong_arguments(function, args, kwargs)
        else:
            given[name] = value
    if code.co_flags & inspect.CO_VARARGS:
        given[next(stars)] = TupleVar(list(extra))
        extra = []
    if code.co_flags & inspect.CO_VARKEYWORDS:
        given[next(stars)] = DictVar(named(rest))
        rest = {}
    with_default = by_position[count - len(function.defaults) :]
    bound = dict(zip(with_default, function.defaults)) | function.kwdefaults | given
    if extra or rest or not bound.keys() >= {*parameters}:
        tx.wrong_arguments(function, args, kwargs)
    return bound


BOUND = {  # descriptors of C types -> what binding them makes
    types.MethodDescriptorType: types.BuiltinMethodType,
    types.WrapperDescriptorType: types.MethodWrapperType,
}


# fields of every function that a program may replace
WRITABLE = """
    __name__ __qualname__ __doc__ __module__ __defaults__ __kwdefaults__ __annotations__ __code__
    __type_params__
    """.split()
NAMES_OF_METHODS = {*dir(types.MethodType)} - {"__doc__"}  # what is not asked of the function


class CellVar(Variable):
    """A closure cell: `content` is None while unbound."""

    cls = types.CellType
    content: Any = None
    cell: Any = None  # the real cell, or the name of a cell variable of the compiled frame

    def load(self, tx: Frame) -> Any:
        if type(self.content) is Lazy:
            self.content = self.content.realize(tx)
        return self.content

    def store(self, value: Variable) -> None:
        self.content, self.mutated = value, True

    def reconstruct(self, cg: Codegen) -> None:
        if isinstance(self.cell, str):  # the root's own cell, or one of its free variables
            cg.add(assembler.load_cell(self.cell))
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
        cg.value(self.content)
        if isinstance(self.cell, str):
            cg.commit("STORE_DEREF", self.cell)
        else:
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
    attrs: Any = None  # its __dict__, once somebody asks
    annotations: Any = field(default_factory=lambda: DictVar({}))  # of one made here

    def identity(self) -> Any:
        return self if self.fn is None else self.fn

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_function(self, args, kwargs)

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
        dict_of(self, tx).store(tx, ConstantVar(name), value)

    def hash_key(self, tx: Frame) -> Any:
        tx.output.note_key(self)
        return self.identity()

    def argument(self, part: Any) -> Any:
        return Variable.argument(self, part) if self.fn is None else self.fn

    def reconstruct(self, cg: Codegen) -> None:
        if self.fn is not None:
            cg.load_const(self.fn)
            return
        if self.attrs is not None:
            raise Break("reconstruct", f"attributes of {self}, which this frame made")
        cg.call_object(
            new_function,
            *map(RealVar, (self.code, self.globals, self.name)),
            TupleVar(list(self.defaults)),
            DictVar(named(self.kwdefaults)).contents,
            TupleVar(list(self.closure)).contents,
            self.annotations,
        )
        cg.remember(self)

    def __repr__(self) -> str:
        return f"the function {self.name}"


class BoundMethodVar(Variable):
    """function.__get__(instance): a method that is written in Python, and traced."""

    function: Any
    instance: Variable
    cls: type = types.MethodType

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

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.function.call(tx, [self.instance, *args], kwargs)

    def real(self) -> Any:
        return getattr(self.instance.real(), self.function.real().__name__)

    def hash_key(self, tx: Frame) -> Any:
        tx.output.note_key(self.instance)
        return ("bound method", self.function.identity(), self.instance.identity())

    def reconstruct(self, cg: Codegen) -> None:
        if self.cls is not types.MethodType:
            raise Break("reconstruct", "a method of C as a value")
        cg.call_object(types.MethodType, self.function, self.instance)

    def __repr__(self) -> str:
        return f"the method {getattr(self.function, 'name', self.function)}"


class MethodVar(Variable):
    """A method found by name on a variable that implements it natively (list.append, tensor.view,
    str.join...)."""

    instance: Variable
    name: str
    native = True
    given = None  # the object itself, where it came from outside

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.instance.call_method(tx, self.name, args, kwargs)

    def truth(self, tx: Frame) -> bool:
        return True

    def identity(self) -> Any:
        return self if self.given is None else self.given

    def reconstruct(self, cg: Codegen) -> None:
        cg.value(self.instance)
        cg.emit("LOAD_ATTR", self.name)

    @property
    def shared(self) -> bool:  # type: ignore[override]
        """Is the bound method rebuilt once?  Not a tensor's: the local that held it would keep the
        tensor alive."""
        return not issubclass(self.instance.cls or object, torch.Tensor)

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

    def __repr__(self) -> str:
        return f"the method .{self.name} of {self.instance}"


class CallableVar(RealVar):
    """A C callable or torch function: builtins, method descriptors, slot wrappers, `torch.*`; the
    rules decide."""

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return tx.call_c(self.value, args, kwargs)

    def getattr(self, tx: Frame, name: str) -> Variable:
        if type(self.value) is functools._lru_cache_wrapper:
            raise Break("attribute", f".{name} of a cached function")
        return tx.fold(getattr, self.value, name)

    def getitem(self, tx: Frame, key: Variable) -> Variable:  # Optional[int], dict[str, int]
        return tx.fold(lambda: self.value[key.real()])

    def __repr__(self) -> str:
        name = getattr(self.value, "__qualname__", None)
        if name is None:  # no repr(): that may be Python, and the object half made
            return f"a {type(self.value).__qualname__}"
        return f"{getattr(self.value, '__module__', None) or ''}.{name}".lstrip(".")


def bound_descriptor(found: Any, instance: Variable) -> BoundMethodVar:
    """A method of a C type: what its descriptor's `__get__` makes is no `types.MethodType`."""
    made = BOUND.get(type(found), types.MethodType)
    return BoundMethodVar(CallableVar(found), instance, cls=made)


def new_function(
    code: Any, scope: Any, name: str, defaults: Any, kwdefaults: Any, closure: Any, annotations: Any
) -> Any:
    made = types.FunctionType(code, scope, None, defaults or None, closure or None)
    made.__qualname__, made.__name__ = name, name.rpartition(".")[2]
    made.__kwdefaults__, made.__annotations__ = kwdefaults or None, annotations
    return made


def real_attribute(self: FunctionVar, tx: Frame, name: str) -> Variable:
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


def dict_of(self: FunctionVar, tx: Frame) -> DictVar:
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
    "__annotations__": lambda f: f.annotations,
}


class PartialVar(Variable):
    """functools.partial."""

    function: Variable
    args: list[Variable]
    kwargs: dict[str, Variable]
    cls = functools.partial
    shared = True

    getattr = Variable.generic_getattr  # which refuses

    def call(self, tx: Frame, args: Args, kwargs: Named) -> Variable:
        return self.function.call(tx, [*self.args, *args], {**self.kwargs, **kwargs})

    def reconstruct(self, cg: Codegen) -> None:
        kwargs = DictVar(named(self.kwargs)).contents
        cg.call_object(new_partial, TupleVar([self.function, *self.args]), kwargs)


def new_partial(args: Any, kwargs: dict[str, Any]) -> functools.partial:
    return functools.partial(*args, **kwargs)

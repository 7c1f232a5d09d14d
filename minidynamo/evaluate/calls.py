"""Calls of functions and classes that are written in C or have a rule of their own.

In:   the function or class, and its arguments as variables.   Out: a variable; a break.

    >>> call_c(tx, math.sqrt, [ConstantVar(4)], {})         # constant 2.0

`call_known` has two answers for any function: its own rule (`rule`); torch's become nodes of the
graph.  Where no rule is for this very function or class, registries by type are asked; then a pure
function of known arguments is called now (`call_unknown`), and an instance of a class is refused
(`make_instance`).  A handler returns None for "I do not know how": those of the next bases are
asked.

    @callable_of_type(operator.itemgetter)
    def call_getter(tx, getter, args, kwargs): ...

Torch's operations go into the graph whole (`is_leaf`).  Its Python code that is no leaf (modules,
distributions) is inlined like the user's, but for torch's compilers, autograd, and what talks to
devices (`check_traced`).

    >>> is_leaf(torch.nn.functional.softmax), is_leaf(torch.nn.Linear.forward)
    (True, False)

Mirrors torch/_dynamo/variables/builtin.py, variables/torch.py and trace_rules.py.
"""

import enum
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from miniinductor.errors import ours

from ..errors import Break
from ..guards.originals import LEAF_MODULES, made_by_torch
from ..variables.base import Args, Named, Variable, lookup
from ..variables.constant import NUMPY
from ..variables.objects import ObjectVar, is_inherited
from ..variables.registry import RULES, ByClass

if TYPE_CHECKING:
    from .evaluator import Frame

PURE_MODULES = frozenset(
    """
    math operator _operator builtins _functools inspect re string posixpath keyword numbers typing
    types cmath unicodedata textwrap os.path genericpath _sre _struct
    """.split()
)
IMPURE = """
    print input open exec eval compile globals locals vars dir id __import__ breakpoint
    __build_class__
    """.split()
callable_of_type = ByClass()  # type of what is called -> handler(tx, function, args, kwargs)
class_with_base = ByClass()  # base of the class that is called -> handler(tx, cls, args, kwargs)
CONSTANT_CLASSES = {int, float, str, bytes, bool, complex}
CONSTANT_CLASSES |= {torch.device, torch.dtype, torch.finfo, torch.iinfo} | NUMPY


def call_known(tx: "Frame", function: Any, args: Args, kwargs: Named) -> Variable | None:
    """The call by the function's own rule, or as one node of the graph; None if neither applies."""
    found = RULES.get(function)
    if found is not None:
        return found(tx, args, kwargs)
    return tx.call_leaf(function, args, kwargs) if is_leaf(function) else None


def call_c(tx: "Frame", function: Any, args: Args, kwargs: Named) -> Variable:
    """A function, or another callable object of C."""
    try:
        hash(function)
    except ours(TypeError):
        raise Break("C function", f"the call of a {type(function).__name__}") from None
    result = call_known(tx, function, args, kwargs)
    return tx.call_unknown(function, args, kwargs) if result is None else result


def call_unknown(tx: "Frame", function: Callable, args: Args, kwargs: Named) -> Variable:
    """The call of a function without a rule of its own: a pure one of constants is computed now."""
    result = callable_of_type.ask(type(function), tx, function, args, kwargs)
    if result is not None:
        return result
    if not is_pure(function):
        raise unknown(function)
    for value in (*args, *kwargs.values()):
        # the real object is not what the traced program has made of it
        if isinstance(value, ObjectVar) and not value.immutable():
            raise Break("C function", f"the call of {function.__name__}() on {value}")
    return tx.computed(function, args, kwargs, "real")


def unknown(function: Any) -> Break:
    """The break at a call that nobody knows."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", str(function))
    module = getattr(function, "__module__", None)
    if module and module != "builtins":
        name = f"{module}.{name}"
    doing = "print after" if function is print else "move it out of"
    return Break("C function", f"the call of {name}()", f"{doing} the compiled function")


def is_pure(function: Any) -> bool:
    """Does a call with equal arguments always give the same, and write nothing?"""
    if not isinstance(function, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return False
    module = getattr(function, "__module__", None)
    if module == "builtins" and function.__name__ in IMPURE:
        return False
    if module is None:  # a method of an object of C, or of a module
        owner = getattr(function, "__self__", None)
        module = owner.__name__ if isinstance(owner, types.ModuleType) else type(owner).__module__
    return module in PURE_MODULES


def call_class(tx: "Frame", cls: type, args: Args, kwargs: Named) -> Variable:
    """cls(*args, **kwargs)."""
    found = RULES.get(cls)
    if found is not None:
        return found(tx, args, kwargs)
    if cls in CONSTANT_CLASSES:
        return tx.computed(cls, args, kwargs)
    return tx.make_instance(cls, args, kwargs)


def make_instance(tx: "Frame", cls: type, args: Args, kwargs: Named) -> Variable:
    """What the metaclass says of a call of its class: type.__call__, or a `__call__` of its own."""
    owner, called = lookup(type(cls), "__call__")
    if is_inherited(type(cls), "__call__") or issubclass(type(cls), enum.EnumMeta):
        return instance_of(tx, cls, args, kwargs)
    found = tx.output.wrap_class_attribute(owner, called, "__call__")
    if isinstance(called, types.FunctionType):
        return found.call(tx, [tx.output.wrap_pinned(cls), *args], kwargs)
    if hasattr(type(called), "__get__"):
        raise Break("class", f"__call__ of the metaclass {type(cls).__name__}")
    return found.call(tx, args, kwargs)  # `__call__ = dict` of TypedDict's


def instance_of(tx: "Frame", cls: type, args: Args, kwargs: Named) -> Variable:
    """type.__call__(cls)."""
    result = class_with_base.ask(cls, tx, cls, args, kwargs)
    if result is None:
        raise Break("class", f"making a {cls.__name__}")
    return result


def is_leaf(fn: Any) -> bool:
    """Does `fn` become one node?"""
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    module = getattr(fn, "__module__", None) or ""
    if isinstance(fn, types.FunctionType):
        if not made_by_torch(fn):
            return False  # the program's, which `functools.wraps` has given a name of torch's
        if module in LEAF_MODULES:
            return True
        owner = {"torch": torch, "torch._tensor": torch.Tensor}.get(module)
        if fn.__name__.startswith("set_"):  # it sets the process's state: a node would set it twice
            return False
        return owner is not None and getattr(owner, fn.__name__, None) is fn
    if not isinstance(fn, types.BuiltinFunctionType):
        return False
    if module in LEAF_MODULES:
        return True
    return getattr(torch._C._VariableFunctions, fn.__name__, None) == fn


REFUSED = tuple(
    """
    torch._dynamo torch._inductor torch.jit torch.autograd torch.distributed torch.utils.checkpoint
    torch.fx torch._functorch torch.func torch.optim.lr_scheduler torch.serialization torch.export
    torch.utils.data torch._subclasses torch.cuda torch.profiler torch.library torch._tensor_str
    torch.random
    """.split()
)
TRACED = (
    "torch.autograd.grad_mode",
    "torch.autograd.function.FunctionCtx",
    "torch.autograd.variable",
    "torch.utils.checkpoint.checkpoint_sequential",
)


def check_traced(fn: Any) -> None:
    """Raises Break at the call of a Python function of torch's that must not be traced, and of the
    program's with the mark that `torch.compiler.disable` leaves.  (torch.compile, once used, wraps
    methods of torch's optimizers in it.)"""
    module = fn.__module__ or ""
    name = f"{module}.{fn.__qualname__}"
    if getattr(fn, "_torchdynamo_disable", False) and not module.startswith("torch."):
        raise Break("disabled", f"{fn.__qualname__} is disabled by torch.compiler.disable")
    if name.startswith(REFUSED) and not name.startswith(TRACED):
        raise Break("torch", f"the call of {name}()")

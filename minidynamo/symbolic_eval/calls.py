"""What a call of a function or class means that is not written in Python, or has a rule of its own.

In:   the function or class, and its arguments as variables.   Out: a variable; a break.

    >>> call_c(tx, math.sqrt, [ConstantVar(4)], {})         # constant 2.0

`call_known` has two answers for any function: its own rule (`rule`); torch's become nodes of the
graph.  Without either a pure function of known arguments is called now (`call_unknown`), and an
instance of a class is refused (`make_instance`); rules/by_type.py has answers by the type of what
is called.
Mirrors torch/_dynamo/variables/builtin.py.
"""

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from ..exceptions import Break
from ..foreign import ours
from ..variables.base import Args, Named, Variable
from ..variables.containers import ListVar, TupleVar
from .registry import RULES, rules
from .torch_rules import is_leaf

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
CONSTANT_CLASSES = {int, float, str, bytes, bool, complex, range}
CONSTANT_CLASSES |= {torch.device, torch.dtype, torch.finfo, torch.iinfo}


def call_known(tx: "Frame", function: Any, args: Args, kwargs: Named) -> Variable | None:
    """What its own rule makes of the call, or the graph whole; None: neither knows it."""
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
    """One without a rule: a pure function of constants is computed."""
    if not is_pure(function):
        raise tx.unknown(function)
    return tx.computed(function, args, kwargs, "real")


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
        return tx.computed(cls, args, kwargs, "as_constant")
    return tx.make_instance(cls, args, kwargs)


# Those of most programs; more are in minidynamo/rules/builtins.py.
rules(
    {
        len: lambda tx, value, /: tx.output.wrap_result(value.length(tx)),
        iter: lambda tx, values: tx.iter_of(values),
        tuple: lambda tx, values=TupleVar([]), /: TupleVar(tx.listed(values)),
        list: lambda tx, values=TupleVar([]), /: ListVar(tx.listed(values)),
    }
)

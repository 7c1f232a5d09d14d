"""What a call means where no rule is for this very function or class: registries by type.

`callable_of_type`: by the type of what is called, handler(tx, function, args, kwargs).
`class_with_base`: by the base of the class, handler(tx, cls, args, kwargs); that of `object` traces
`__new__` and `__init__`.

    @callable_of_type(operator.itemgetter)
    def call_getter(tx, getter, args, kwargs): ...

A handler returns None for "I do not know how": then those of the next bases are asked.
"""

import enum
import types
from collections.abc import Callable
from typing import Any

from ..exceptions import Break
from ..extras.extending import extends
from ..symbolic_eval.calls import is_pure
from ..symbolic_eval.evaluator import Frame
from ..variables.base import Args, Named, Variable
from ..variables.lookup import lookup
from ..variables.objects import ObjectVar, is_inherited
from ..variables.registry import ByClass

callable_of_type, class_with_base = ByClass(), ByClass()
plain_call, plain_making = Frame.call_unknown, Frame.make_instance


@extends(Frame)
def call_unknown(tx: Frame, function: Callable, args: Args, kwargs: Named) -> Variable:
    result = callable_of_type.ask(type(function), tx, function, args, kwargs)
    if result is not None:
        return result
    for value in (*args, *kwargs.values()):
        # the real object is not what the traced program has made of it
        if is_pure(function) and isinstance(value, ObjectVar) and not may_be_read(value):
            raise Break("C function", f"the call of {function.__name__}() on {value}")
    return plain_call(tx, function, args, kwargs)


def may_be_read(value: Any) -> bool:
    """May C code be called on the real object while tracing?  (more/object_operations.py.)"""
    return hasattr(value, "immutable") and value.immutable()


@extends(Frame)
def make_instance(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable:
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


def instance_of(tx: Frame, cls: type, args: Args, kwargs: Named) -> Variable:
    """type.__call__(cls)."""
    result = class_with_base.ask(cls, tx, cls, args, kwargs)
    return plain_making(tx, cls, args, kwargs) if result is None else result

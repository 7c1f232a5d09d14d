"""str(), repr(), format() and f-strings: the text of constants, objects, classes, functions, sets.

In:   a variable and "str", "repr", "ascii" or "format".   Out: the text, on the host; a break.

    >>> text(tx, ConstantVar(1.5), "repr")          # "1.5"
"""

import types
from collections.abc import Callable
from typing import Any

from ..errors import Break
from ..evaluate.opcodes import pushes
from ..evaluate.operations import on_host
from ..variables.base import Variable, lookup
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.dicts import SetVar
from ..variables.exceptions import new_exception
from ..variables.functions import CallableVar, FunctionVar
from ..variables.modules import PyModuleVar
from ..variables.objects import ObjectVar
from ..variables.registry import ByClass, rule, rules
from ..variables.tensor import TensorVar

CONVERT: dict[str, Callable] = {"str": str, "repr": repr, "ascii": ascii, "format": format}
text_of_class = ByClass()  # class of a variable -> handler(tx, value, how)
ASKED = {  # what is asked, in order
    "repr": ("__repr__",),
    "str": ("__str__", "__repr__"),
    "ascii": ("__str__", "__repr__"),
    "format": ("__format__", "__str__", "__repr__"),
}


def text(tx: Any, value: Variable, how: str) -> str:
    """The text of a value."""
    found = text_of_class.ask(type(value), tx, value, how)
    if found is None:
        return tx.fold(CONVERT[how], value.as_constant()).value
    return found


@rule(str)
def _str(tx, *args, **kwargs):
    if len(args) == 1 and not kwargs:
        return text(tx, args[0], "str")
    return tx.fold(on_host(str, args, kwargs, "as_constant"))


@text_of_class(ObjectVar)
def _object(tx, value, how):
    if issubclass(value.cls, BaseException):
        written = of_exception(tx, value, how)
        if written is not None:
            return written
    for name in ASKED[how]:
        method = lookup(value.cls, name)[1]
        if isinstance(method, types.FunctionType):
            args = [ConstantVar("")] if name == "__format__" else []
            written = tx.output.wrap_pinned(method).call(tx, [value, *args], {}).as_constant()
            if type(written) is not str:
                raise Break("string", f"a method {name} that gives no str")
            return written
        if name != "__format__" and getattr(method, "__objclass__", None) is not object:
            break
    if value.pinned or value.source is not None and value.source.kind == "pinned":
        return CONVERT[how](value.real())
    raise Break("string", f"the text of {value}")


def of_exception(tx, value: ObjectVar, how: str) -> str | None:
    """The text that C code writes: it looks at the arguments alone."""
    method = lookup(value.cls, "__repr__" if how == "repr" else "__str__")[1]
    if not isinstance(method, types.WrapperDescriptorType):
        return None
    if how != "repr" and value.value is not None:
        if method not in (BaseException.__str__, KeyError.__str__):
            return None
    args = [item.realize(tx) for item in value.getattr(tx, "args").iterate(tx)]
    if how == "repr":
        parts = ", ".join([text(tx, item, "repr") for item in args])
        return f"{value.cls.__name__}({parts})"
    constants = [item.as_constant() for item in args]
    return str(new_exception(value.cls, constants, {}))


@text_of_class(ClassVar, CallableVar, PyModuleVar)
def _fixed(tx, value, how):
    return CONVERT[how](value.identity())


@text_of_class(FunctionVar)
def _function(tx, value, how):
    raise Break("string", "the text of a function")


@text_of_class(SetVar)
def _set(tx, value, how):
    """Item by item: a set that is made again may have another order."""
    if value.cls not in (set, frozenset) or not value.length(tx):
        return None
    how = "ascii" if how == "ascii" else "repr"
    inside = ", ".join([text(tx, item, how) for item in value.iterate(tx)])
    return f"{{{inside}}}" if value.cls is set else f"frozenset({{{inside}}})"


@text_of_class(TensorVar)
def _tensor(tx, value, how):
    hint = "print or format tensors outside the compiled function"
    raise Break("string", "the text of a tensor", hint)


# ---- f-strings
def joined(parts: list[Any]) -> Any:
    return ConstantVar("".join([part.as_constant() for part in parts]))


def formatted(frame: Any, value: Any, *specification: Any) -> Any:
    if specification:
        return frame.fold(format, value.as_constant(), specification[0].as_constant())
    if type(value) is ConstantVar and type(value.value) is str:
        return value
    return ConstantVar(text(frame, value, "format"))


pushes(
    {
        "BUILD_STRING": lambda frame, n: joined(frame.popn(n)),
        "CONVERT_VALUE": lambda frame, kind: ConstantVar(
            text(frame, frame.stack.pop(), {1: "str", 2: "repr", 3: "ascii"}[kind])
        ),
        "FORMAT_WITH_SPEC": lambda frame, _: formatted(frame, *frame.popn(2)),
        "FORMAT_SIMPLE": lambda frame, _: formatted(frame, frame.stack.pop()),
    }
)
rules(
    {
        repr: lambda tx, value, /: text(tx, value, "repr"),
        format: lambda tx, *args: tx.fold(on_host(format, args, {}, "as_constant")),
    }
)

"""str(), repr(), format() and f-strings: the text of constants, classes and objects.

In:   a variable and "str", "repr" or "format".   Out: the text, on the host; a break.

    >>> text(tx, ConstantVar(1.5), "repr")          # "1.5"

A `__str__`, `__repr__` or `__format__` that is written in Python is traced; an exception that the
frame has made has the text of its argument.  Tensors, functions, sets (whose order may be another
one each time) and objects whose text C code writes break the graph.
Mirrors torch/_dynamo/variables/builtin.py (`call_str`, `call_repr`, `call_format`).
"""

import types
from typing import Any

from ..errors import Break
from ..evaluate.opcodes import pushes
from ..variables.base import Frame, Variable, lookup
from ..variables.classes import ClassVar, PyModuleVar
from ..variables.constant import ConstantVar
from ..variables.dicts import SetVar
from ..variables.functions import CallableVar, FunctionVar
from ..variables.objects import ObjectVar
from ..variables.registry import rule
from ..variables.tensor import TensorVar

CONVERT: dict[str, Any] = {"str": str, "repr": repr, "format": format}
ASKED = {  # what is asked, in order
    "repr": ("__repr__",),
    "str": ("__str__", "__repr__"),
    "format": ("__format__", "__str__", "__repr__"),
}

OF_EXCEPTIONS = (BaseException.__str__, AttributeError.__str__)  # the text of the only argument


def text(tx: Frame, value: Any, how: str) -> str:
    """The text of a value."""
    if isinstance(value, ObjectVar):
        return of_object(tx, value, how)
    if isinstance(value, (ClassVar, CallableVar, PyModuleVar)):
        return CONVERT[how](value.identity())
    if isinstance(value, (TensorVar, FunctionVar, SetVar)):
        hint = "print or format it outside the compiled function"
        raise Break("string", f"the text of {value}", hint)
    return tx.fold(CONVERT[how], value.as_constant()).value


def of_object(tx: Frame, value: Any, how: str) -> str:
    for name in ASKED[how]:
        method = lookup(value.cls, name)[1]
        if isinstance(method, types.FunctionType):
            args = [ConstantVar("")] if name == "__format__" else []
            written = tx.call_fixed(method, value, *args).as_constant()
            if type(written) is not str:
                raise Break("string", f"a method {name} that gives no str")
            return written
        if method in OF_EXCEPTIONS and len(value.init_args or ()) == 1:
            return text(tx, value.init_args[0].realize(tx), "str")
        if name != "__format__" and getattr(method, "__objclass__", None) is not object:
            break
    if value.source is not None and value.source.kind == "pinned":
        return CONVERT[how](value.real())
    raise Break("string", f"the text of {value}")


@rule(str)
def _str(tx: Frame, *args: Variable, **kwargs: Variable) -> Any:
    if len(args) == 1 and not kwargs:
        return text(tx, args[0], "str")
    return tx.computed(str, args, kwargs)


# ---- f-strings
def converted(frame: Frame, kind: int) -> Variable:
    """`{value!s}`, `{value!r}`"""
    if kind == 3:
        raise Break("string", "ascii() of a value")
    return ConstantVar(text(frame, frame.stack.pop(), "str" if kind == 1 else "repr"))


def formatted(frame: Frame, value: Any, *specification: Any) -> Variable:
    if specification:
        return frame.fold(format, value.as_constant(), specification[0].as_constant())
    if type(value) is ConstantVar and type(value.value) is str:
        return value
    return ConstantVar(text(frame, value, "format"))


pushes(
    {
        "BUILD_STRING": lambda frame, n: ConstantVar(
            "".join([part.as_constant() for part in frame.popn(n)])
        ),
        "CONVERT_VALUE": converted,
        "FORMAT_WITH_SPEC": lambda frame, _: formatted(frame, *frame.popn(2)),
        "FORMAT_SIMPLE": lambda frame, _: formatted(frame, frame.stack.pop()),
    }
)
rule(repr)(lambda tx, value, /: text(tx, value, "repr"))

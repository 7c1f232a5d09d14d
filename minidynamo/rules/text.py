"""The text of objects, exceptions, classes, functions and sets.

In, out: as in `symbolic_eval.text`, whose registry these handlers join.
"""

import types

from ..exceptions import Break
from ..symbolic_eval.text import CONVERT, text, text_of_class
from ..variables.constant import ConstantVar
from ..variables.functions import CallableVar, FunctionVar
from ..variables.modules import PyModuleVar
from ..variables.classes import ClassVar
from ..variables.lookup import lookup
from ..variables.more.exceptions import new_exception
from ..variables.more.sets import SetVar
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar

ASKED = {  # what is asked, in order
    "repr": ("__repr__",),
    "str": ("__str__", "__repr__"),
    "ascii": ("__str__", "__repr__"),
    "format": ("__format__", "__str__", "__repr__"),
}


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
            return tx.output.wrap_pinned(method).call(tx, [value, *args], {}).as_constant()
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
    return str(new_exception(value.cls, constants, {}, None, None, False))


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

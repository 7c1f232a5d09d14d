"""What messages call a value: `the function step`, `Config object self.config`, `constant 3`.

In:   a variable.   Out: its `repr`, which stands in the reasons of graph breaks; the break at a
      call of a C function that no rule knows.

    >>> str(CallableVar(math.sqrt))
    'math.sqrt'

Without this file a message names the kind of value, and where it comes from.
"""

from typing import Any

from ...extras.extending import extends
from ...exceptions import Break
from ...symbolic_eval.operations import Operations
from ..base import Null
from ..classes import ClassVar
from ..constant import ConstantVar
from ..functions import BoundMethodVar, CallableVar, FunctionVar, MethodVar
from ..modules import PyModuleVar
from ..objects import ObjectVar
from ..symbolic import SymVar


def unknown(function: Any) -> Break:
    """The break at a call that nobody knows."""
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", str(function))
    module = getattr(function, "__module__", None)
    if module and module != "builtins":
        name = f"{module}.{name}"
    doing = "print after" if function is print else "move it out of"
    return Break("C function", f"the call of {name}()", f"{doing} the compiled function")


extends(Operations, "unknown")(lambda tx, function: unknown(function))


@extends(Null, "__repr__")
def name_of_null(variable: Null) -> str:
    return "NULL"


@extends(ConstantVar, "__repr__")
def name_of_constant(variable: ConstantVar) -> str:
    value = variable.value
    if type(value) is int and value.bit_length() > 10_000:  # which has no text
        return f"constant int of {value.bit_length()} bits"
    return f"constant {value!r:.200}"


@extends(SymVar, "__repr__")
def name_of_symbol(variable: SymVar) -> str:
    return f"symbolic {variable.value}"


@extends(ClassVar, "__repr__")
def name_of_class(variable: ClassVar) -> str:
    return f"the class {variable.value.__qualname__}"


@extends(FunctionVar, "__repr__")
def name_of_function(variable: FunctionVar) -> str:
    return f"the function {variable.name}"


@extends(BoundMethodVar, "__repr__")
def name_of_bound_method(variable: BoundMethodVar) -> str:
    return f"the method {getattr(variable.function, 'name', variable.function)}"


@extends(MethodVar, "__repr__")
def name_of_method(variable: MethodVar) -> str:
    return f"the method .{variable.name} of {variable.instance}"


@extends(CallableVar, "__repr__")
def name_of_callable(variable: CallableVar) -> str:
    name = getattr(variable.value, "__qualname__", None)
    if name is None:  # no repr(): that may be Python, and the object half made
        return f"a {type(variable.value).__qualname__}"
    return f"{getattr(variable.value, '__module__', None) or ''}.{name}".lstrip(".")


@extends(ObjectVar, "__repr__")
def name_of_object(variable: ObjectVar) -> str:
    is_found = variable.source is not None and not variable.pinned
    where = f" {variable.source.name()}" if is_found else ""
    return f"{variable.cls.__name__} object{where}"


@extends(PyModuleVar, "__repr__")
def name_of_module(variable: PyModuleVar) -> str:
    return f"module {variable.value.__dict__.get('__name__')}"

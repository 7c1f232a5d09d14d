"""What messages call a value: `the function step`, `Config object self.config`, `constant 3`.

In:   a variable.   Out: its `repr`, which stands in the reasons of graph breaks.

    >>> str(CallableVar(math.sqrt))
    'math.sqrt'

Without this file a message names the kind of value, and where it comes from.
"""

from collections.abc import Callable
from typing import Any

from ...extras.extending import extends
from ..base import Null
from ..classes import ClassVar
from ..constant import ConstantVar
from ..functions import BoundMethodVar, CallableVar, FunctionVar, MethodVar
from ..modules import PyModuleVar
from ..objects import ObjectVar
from ..symbolic import SymVar


def name_of_constant(variable: ConstantVar) -> str:
    value = variable.value
    if type(value) is int and value.bit_length() > 10_000:  # which has no text
        return f"constant int of {value.bit_length()} bits"
    return f"constant {value!r:.200}"


def name_of_callable(variable: CallableVar) -> str:
    name = getattr(variable.value, "__qualname__", None)
    if name is None:  # no repr(): that may be Python, and the object half made
        return f"a {type(variable.value).__qualname__}"
    return f"{getattr(variable.value, '__module__', None) or ''}.{name}".lstrip(".")


NAMES: dict[type, Callable[[Any], str]] = {
    Null: lambda variable: "NULL",
    ConstantVar: name_of_constant,
    SymVar: lambda variable: f"symbolic {variable.value}",
    ClassVar: lambda variable: f"the class {variable.value.__qualname__}",
    FunctionVar: lambda variable: f"the function {variable.name}",
    BoundMethodVar: lambda v: f"the method {getattr(v.function, 'name', v.function)}",
    MethodVar: lambda variable: f"the method .{variable.name} of {variable.instance}",
    CallableVar: name_of_callable,
    ObjectVar: lambda v: f"{v.cls.__name__} object {v.source.name() if v.source else ''}".rstrip(),
    PyModuleVar: lambda variable: f"module {variable.value.__dict__.get('__name__')}",
}
for _class, _name in NAMES.items():
    extends(_class, "__repr__")(_name)

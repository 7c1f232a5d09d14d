"""Attributes that a value has by its class, where its variable does not implement them.

    point.x         # a named tuple's field
    n.real          rows.append         Pair._make

In, out: as `Operations.method_of`, of which this is the end.
"""

from collections.abc import Callable
from typing import Any

from ..extras.extending import extends
from ..exceptions import Break
from ..symbolic_eval.operations import Operations
from ..variables.base import Args, Frame, Named, Variable
from ..variables.containers import TupleVar
from ..variables.functions import MethodVar
from ..variables.lookup import METHODS, MISSING
from ..variables.more.descriptors import FIELD
from ..variables.objects import method_of_class

plain_method = Variable.call_method


@extends(Variable)
def call_method(variable: Variable, tx: Frame, name: str, args: Args, kwargs: Named) -> Variable:
    if not hasattr(variable, "method_" + name):
        found: Any = variable.getattr(tx, name)
        if not found.native or found.instance is not variable:  # (that one would come back here)
            return found.call(tx, args, kwargs)
    return plain_method(variable, tx, name, args, kwargs)


@extends(Operations)
class ClassAttributes(Operations):
    def fold_pinned(self: Any, function: Callable, *args: Any) -> Variable:
        """Like `fold`, for results that are fixed objects (classes, functions)."""
        value = self.run_now(function, *args)
        if isinstance(value, (tuple, list, dict, str, int)):
            return self.output.wrap_result(value)
        return self.output.wrap_pinned(value)

    def class_attribute(self: Any, variable: Any, owner: Any, found: Any, name: str) -> Variable:
        if found is MISSING:
            text = f"'{variable.python_type().__name__}' object has no attribute '{name}'"
            self.raise_(AttributeError, text)
        if type(found) is FIELD and isinstance(variable, TupleVar):
            _, (index, _) = found.__reduce__()
            return variable.item(self, index)
        if isinstance(found, METHODS):  # of a named tuple's class
            cls = self.output.wrap_pinned(variable.python_type())
            return method_of_class(self, owner, found, name, variable, cls)
        if isinstance(found, property) and found.fget is not None:
            return self.output.wrap_pinned(found.fget).call(self, [variable], {})
        if hasattr(type(found), "__set__"):
            raise Break("attribute", f"{owner.__name__}.{name} is kept by C code")
        if hasattr(type(found), "__get__"):
            return MethodVar(variable, name)
        return self.output.wrap_class_attribute(owner, found, name)

"""What every rule and opcode asks of the frame: raising, folding, identity, iteration, attributes.

In:   variables.   Out: variables, or host booleans where control flow needs them.

    >>> tx.binary("+", x, ConstantVar(1))
    >>> tx.fold(len, "abc")        # run a pure call now; its exception becomes the traced program's

Mirrors parts of torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .. import config
from ..exceptions import Break
from ..foreign import ours
from ..originals import calls_replaced
from ..variables.base import Args, Named, Variable, refusal
from ..variables.constant import ConstantVar
from ..variables.functions import MethodVar
from ..variables.iterators import IteratorVar, iterator_of
from ..variables.lookup import in_c_or_library, lookup
from ..variables.objects import ObjectVar
from ..variables.tensor import TensorVar
from . import operators
from .torch_rules import is_leaf


# "Host" is the Python in which the compiler runs, as against the program that is traced.
def on_host(function: Callable, args: Args, kwargs: Named, read: str = "real") -> functools.partial:
    """The call of a function on real arguments: those that the variables' method `read` gives.

    "as_constant": values, equal in every call.  "real": objects, too (a class, a module), of which
    the call only reads what is guarded."""
    named = {name: getattr(value, read)() for name, value in kwargs.items()}
    return functools.partial(function, *[getattr(value, read)() for value in args], **named)


BYTES_PER_STEP = 8  # a constant that is larger than a frame's steps allow is left to plain Python


class Operations:
    """Mixed into `Frame`; `self` is the `tx` of every variable method."""

    NONE = ConstantVar(None)
    if TYPE_CHECKING:  # what minidynamo/rules/ adds

        def __getattr__(self, name: str) -> Any: ...

    # ---- raising and folding
    def raise_(self, kind: type, *args: Any) -> NoReturn:
        """The program's exception: the graph breaks (minidynamo/rules/exceptions.py raises it in
        the traced program)."""
        raise Break("exception", f"a {kind.__name__} is raised")

    # (name): a variable that is read before it is written
    unbound = refusal("exception", "{0}, which is unbound")
    # (expected, found): `a, b = values` of another number of values
    wrong_number = refusal("exception", "{1} values for {0} variables")
    # (function, args, kwargs): they do not fit its parameters.
    wrong_arguments = refusal("arguments", "the arguments of {0.name}()")

    def run_now(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call now.  The program's exception if it raises."""
        try:
            return function(*args, **kwargs)
        except Break:
            raise
        except ours(Exception) as error:
            # what it says becomes constants of the traced program
            if not all(isinstance(a, (str, bytes, int, float, type(None))) for a in error.args):
                raise Break("raised", f"{type(error).__name__} about an object") from None
            self.raise_(type(error), *error.args)

    def fold(self: Any, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """The constant, or container of constants, that a call gives when it is run now."""
        result = self.run_now(function, *args, **kwargs)
        is_plain = isinstance(result, (str, bytes, int))
        if is_plain and sys.getsizeof(result) > BYTES_PER_STEP * config.step_limit:
            text = f"a constant of more than {BYTES_PER_STEP} * config.step_limit bytes"
            raise Break("limit", text)
        return self.output.wrap_result(result)

    def computed(self, function: Callable, args: Args, kwargs: Named, read: str) -> Any:
        """The result of a pure call.  `read`: how the arguments become real, see `on_host`."""
        return self.fold(on_host(function, args, kwargs, read))

    def node(self: Any, function: Callable, args: Any, kwargs: Any = None) -> Variable:
        """A call that becomes a node of the graph."""
        return self.output.call_graph(self, "call_function", function, args, kwargs or {})

    def unknown(self, function: Callable) -> Break:
        """The break at a call that nobody knows."""
        return Break("C function", f"the call of {getattr(function, '__name__', function)}()")

    def call_leaf(self: Any, function: Callable, args: Args, kwargs: Named) -> Variable:
        """The call of a function that goes into the graph whole.  A Python function is traced
        where the program has put one of its own in torch's place, or gives it an object (a module,
        a class of options)."""
        if isinstance(function, types.FunctionType):
            objects = any(isinstance(value, ObjectVar) for value in (*args, *kwargs.values()))
            if objects or calls_replaced(self.output, function, is_leaf):
                return self.inline(self.output.wrap_pinned(function), args, kwargs)
        return self.node(function, args, kwargs)

    # ---- operators
    binary, compare = operators.binary, operators.compare

    # ---- iteration
    def iter_of(self: Any, variable: Any) -> Any:
        """iter(variable)."""
        made = iterator_of.ask(type(variable), self, variable)
        if made is None:
            raise Break("iteration", f"iterating over {variable}")
        return made

    def iter_of_object(self: Any, variable: Any) -> Any:
        """iter() of an object whose Python method `__iter__` gives an iterator that we know."""
        method = variable.special(self, "__iter__")
        made = None if method is None else method.call(self, [], {})
        if not isinstance(made, IteratorVar):
            raise Break("iteration", f"iterating over {variable}")
        return made

    def listed(self: Any, values: Any) -> list[Variable]:
        """[*values].  (CPython asks for a length to expect, too: minidynamo/rules/iteration.py.)"""
        return list(values.iterate(self))

    # ---- attributes
    def method_of(self: Any, variable: Any, name: str) -> Variable:
        """The attribute that a variable has by its type: a method that the variable implements
        itself (`method_append`), or what its class and their bases define."""
        if name == "__class__":
            return self.output.wrap_pinned(variable.python_type())
        owner, found = lookup(variable.python_type(), name)
        native = in_c_or_library(found) and hasattr(variable, "method_" + name)
        if native or isinstance(variable, TensorVar):
            return MethodVar(variable, name)
        return self.class_attribute(variable, owner, found, name)

    # (variable, owner, found, name): an attribute that the variable does not implement, or that
    # there is not (minidynamo/rules/class_attributes.py knows them)
    class_attribute = refusal("attribute", ".{3} of {0}")

"""What every rule and opcode asks of the frame: raising, folding, identity, iteration, attributes.

In:   variables.   Out: variables, or host booleans where control flow needs them.

    >>> tx.binary("+", x, ConstantVar(1))
    >>> tx.fold(len, "abc")        # run a pure call now; its exception becomes the traced program's

Mirrors parts of torch/_dynamo/variables/builtin.py.
"""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any, NoReturn

from ..exceptions import Break, ObservedException
from ..foreign import ours
from ..symbolic_shapes import DataDependentDecision
from ..variables.base import Variable
from ..variables.constant import ConstantVar
from ..variables.containers import (
    Container,
    DictVar,
    SequenceVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, CallableVar, FunctionVar, MethodVar
from ..variables.iterators import (
    ItemIterator,
    IteratorVar,
    SentinelVar,
    iterator_of,
)
from ..variables.exceptions import ExceptionVar, TracebackVar
from ..variables.lookup import METHODS, MISSING, in_c_or_library, lookup, type_text
from ..variables.objects import ObjectVar, method_of_class
from ..variables.registry import BEFORE_FOLDING
from ..variables.symbolic import SymVar, data_dependent
from ..variables.tensor import TensorVar
from . import operators

FIELD = type(vars(collections.namedtuple("Pair", "first second"))["first"])


class Operations:
    """Mixed into `Frame`; `self` is the `tx` of every variable method."""

    NONE = ConstantVar(None)

    # ---- raising and folding
    def raise_(self, kind: type, *args: Any) -> NoReturn:
        self.raise_var(kind, [ConstantVar(arg) for arg in args])

    def raise_var(self, kind: type, args: Any) -> NoReturn:
        made = ExceptionVar(kind, fields=DictVar({}))
        made.init_args = args
        raise self.raised(made)

    def raised(self: Any, var: Any) -> ObservedException:
        """The signal that `var` is raised here: its traceback begins, and what is being handled is
        its context (CPython's _PyErr_SetObject)."""
        if not isinstance(var, ObjectVar) or var.value is not None:
            raise Break("exception", "raising an exception that was made before this frame")
        var.slots["__traceback__"] = TracebackVar(
            var.cls, (self.user_stack(), self.output.root.group_step)
        )
        context = link = self.handling()
        if context is not None and context is not var:
            seen = []
            while isinstance(link, ObjectVar) and link not in seen:  # no new circle
                seen.append(link)
                after = link.slots.get("__context__")
                if after is var:
                    link.slots["__context__"] = ConstantVar(None)
                link = after
            var.slots["__context__"] = context
        return ObservedException(var)

    def handling(self: Any) -> Any:
        """The exception that is being handled here, or None: this frame's or a caller's, as far as
        they are traced."""
        frame = self
        while frame is not None and not frame.handled:
            frame = frame.parent
        return frame and frame.handled[-1]

    def run_now(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call now.  The program's exception if it raises."""
        try:
            return function(*args, **kwargs)
        except Break:
            raise
        except DataDependentDecision as error:
            raise data_dependent(error) from None
        except ours(Exception) as error:
            self.raise_(type(error), *error.args) if all(
                isinstance(a, (str, int, float, type(None))) for a in error.args
            ) else self.raise_(type(error), str(error))

    def run_c(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call C code now that may call the tracer back: the program's exception only if the C code
        itself raises."""
        try:
            return function(*args, **kwargs)
        except ours(TypeError, ValueError, OverflowError, RuntimeError) as error:
            if error.__traceback__.tb_next is not None:
                raise
            self.raise_(type(error), *error.args)

    def fold(self: Any, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """The constant (or container of constants) that a call gives."""
        return self.output.wrap_result(self.run_now(function, *args, **kwargs))

    def check_size(self, name: str, *values: Any) -> None:
        """Refuse a call whose result would be a huge constant: plain Python makes it."""
        for check in BEFORE_FOLDING:
            check(name, values)

    def fold_pinned(self: Any, function: Callable, *args: Any) -> Variable:
        """Like `fold`, for results that are fixed objects (classes, functions)."""
        value = self.run_now(function, *args)
        return (
            self.output.wrap_result(value)
            if isinstance(value, (tuple, list, dict, str, int))
            else self.output.wrap_pinned(value)
        )

    # ---- identity
    def same(self, a: Variable, b: Variable) -> bool:
        """a is b."""
        first, second = a.identity(), b.identity()
        self.guard_same(a, b, first, second)
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            if first is not second and type(first) is type(second) and first == second:
                raise Break(
                    "identity",
                    f"are two equal constants ({first!r:.50}) one object?",
                    "compare with ==",
                )
        return first is second

    def guard_same(self: Any, a: Variable, b: Variable, first: Any, second: Any) -> None:
        """Guard whether the two are one object: the guards of two of the same type would let
        another answer through."""
        sources = [v.source for v in (a, b) if v.source is not None and v.source.kind != "pinned"]
        if (
            a is b
            or not sources
            or isinstance(a, (TensorVar, ConstantVar))
            or a.python_type() is not b.python_type()
        ):
            return
        word = "is" if first is second else "is not"
        if len(sources) == 2:
            self.output.guard_pair(f"{{0}} {word} {{1}}", *sources)
        elif not isinstance(
            found := second if a.source is sources[0] else first, Variable
        ):  # one that was made here is another one
            self.output.guard(sources[0], ("SAME", id(found)), f"{{0}} {word} {{pin}}", found)

    def equal(self: Any, a: Variable, b: Variable) -> bool:
        """bool(a == b) on the host."""
        return self.compare("==", a, b).truth(self)

    def same_or_equal(self, a: Variable, b: Variable) -> bool:
        """As containers compare: `a is b or a == b`."""
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            return a.value is b.value or self.equal(a, b)
        return self.same(a, b) or self.equal(a, b)

    # ---- operators
    binary, compare, unary = operators.binary, operators.compare, operators.unary

    # ---- iteration
    def iter_of(self: Any, variable: Any) -> Any:
        """iter(variable)."""
        return iterator_of(self, variable)

    def iter_of_object(self: Any, variable: Any) -> Any:
        method = variable.special(self, "__iter__")
        if method is not None:
            if (
                isinstance(method, BoundMethodVar)
                and not isinstance(method.function, FunctionVar)
                and variable.payload is not None
            ):
                return self.iter_of(variable.payload)
            made = method.call(self, [], {})
            return made if isinstance(made, IteratorVar) else SentinelVar(made)
        method = variable.special(self, "__getitem__")
        if isinstance(method, BoundMethodVar) and isinstance(method.function, CallableVar):
            raise Break("iteration", f"iterating over {variable}, which C code indexes")
        if method is not None:
            return ItemIterator(variable, 0)
        self.raise_(TypeError, f"'{type_text(variable.cls)}' object is not iterable")

    def listed(self: Any, values: Any) -> list[Variable]:
        """[*values]: CPython asks for an iterator, then for a length to expect, then for the
        items."""
        items = values.iterate(self)
        self.length_hint(values)
        return list(items)

    def listed_fast(self, values: Variable) -> list[Variable]:
        """PySequence_Fast: what is no list or tuple is asked for an iterator, and that is
        listed."""
        return self.listed(values if isinstance(values, SequenceVar) else self.iter_of(values))

    def length_hint(self: Any, values: Any) -> None:
        """What operator.length_hint() calls; the answer only saves CPython allocations."""
        names: tuple[str, ...] = ("__len__", "__length_hint__")
        if isinstance(values, ItemIterator):  # its hint is the length of what it walks
            values, names = values.object, ("__len__",)
        if isinstance(values, SentinelVar):
            values = values.object
        if not isinstance(values, ObjectVar):
            return
        for name in names:
            method = values.special(self, name)
            if not isinstance(method, BoundMethodVar) or method.cls is not types.MethodType:
                continue
            try:
                found = method.call(self, [], {})
            except ObservedException as raised:
                if not issubclass(raised.var.python_type(), TypeError):
                    raise
                continue
            if found.identity() is NotImplemented:
                continue
            if found.python_type() is not int or found.as_constant() < 0:
                raise Break("length", f"{name} of {values} gives no length")
            return

    def sorted(
        self: Any, values: list[Variable], key: Variable | None, reverse: Variable
    ) -> list[Variable]:
        """The values in order.  The list that is given is left as list.sort() leaves its own, also
        when a comparison raises."""
        keys = (
            values
            if key is None or key.identity() is None
            else [key.call(self, [value], {}) for value in values]
        )
        if not issubclass(reverse.python_type(), int):
            self.raise_(
                TypeError,
                f"'{type_text(reverse.python_type())}' object cannot be interpreted as an integer",
            )
        order = list(range(len(values)))
        before = list(values)

        def compare(i: int, j: int) -> int:  # list.sort() asks only for <
            return -1 if self.compare("<", keys[i], keys[j]).truth(self) else 0

        try:
            order.sort(reverse=reverse.truth(self), key=functools.cmp_to_key(compare))
        finally:
            values[:] = [before[i] for i in order]
        return values

    # ---- attributes
    def has_attr(self: Any, variable: Variable, name: str) -> bool:
        try:
            variable.getattr(self, name)
            return True
        except ObservedException as raised:
            if issubclass(raised.var.python_type(), AttributeError):
                return False
            raise

    def method_of(self: Any, variable: Any, name: str) -> Variable:
        """What a variable has by its type, as a value: methods that are natively implemented, and
        all that a C type inherits."""
        if name == "__class__":
            return self.output.wrap_pinned(variable.python_type())
        owner, found = lookup(variable.python_type(), name)
        if found is MISSING:
            self.raise_(
                AttributeError,
                f"'{type_text(variable.python_type())}' object has no attribute '{name}'",
            )
        if type(found) is FIELD and isinstance(variable, TupleVar):
            (place, _) = found.__reduce__()[1]
            return variable.item(self, place)
        native = in_c_or_library(found)
        if isinstance(variable, TensorVar) or native and hasattr(variable, "method_" + name):
            return MethodVar(variable, name)
        if isinstance(found, METHODS):  # of a named tuple's class
            return method_of_class(
                self, owner, found, name, variable, self.output.wrap_pinned(variable.python_type())
            )
        if isinstance(found, property) and found.fget is not None:
            return self.output.wrap_pinned(found.fget).call(self, [variable], {})
        if hasattr(type(found), "__set__"):
            raise Break("attribute", f"{owner.__name__}.{name} is kept by C code")
        return (
            MethodVar(variable, name)
            if hasattr(type(found), "__get__")
            else self.output.wrap_class_attribute(owner, found, name)
        )

    def text_of(self, variable: Variable) -> Any:
        """str(variable) on the host."""
        if variable.is_constant() or isinstance(variable, (SymVar, Container)):
            return variable.as_constant()
        raise Break("string", f"the text of {variable}")

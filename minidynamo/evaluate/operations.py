"""What every rule and opcode asks of the frame: calls, raising, folding, identity, iteration,
attributes.

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
from typing import Any, NoReturn

from miniinductor.errors import ours

from .. import config
from ..errors import Break, ObservedException
from ..guards.originals import guard_calls
from ..variables.base import (
    METHODS,
    MISSING,
    Args,
    Named,
    Variable,
    in_c_or_library,
    lookup,
    refusal,
)
from ..variables.constant import ConstantVar
from ..variables.dicts import DictVar
from ..variables.functions import BoundMethodVar, FunctionVar, MethodVar
from ..variables.iterators import IteratorVar, iterator_of
from ..variables.objects import ExceptionVar, ObjectVar, TracebackVar, is_inherited, method_of_class
from ..variables.symbolic import CALLS, SymVar, apply, pinned
from ..variables.tensor import TensorVar
from . import calls, operators
from .calls import check_traced, is_leaf


# "Host" is the Python in which the compiler runs, as against the program that is traced.
def on_host(function: Callable, args: Any, kwargs: Named, read: str = "real") -> functools.partial:
    """The call of a function on real arguments: those that the variables' method `read` gives.

    "as_constant": values, equal in every call.  "real": objects, too (a class, a module), of which
    the call only reads what is guarded."""
    named = {name: getattr(value, read)() for name, value in kwargs.items()}
    return functools.partial(function, *[getattr(value, read)() for value in args], **named)


BYTES_PER_STEP = 8  # a constant that is larger than a frame's steps allow is left to plain Python


class Operations:
    """Mixed into `Frame`; `self` is the `tx` of every variable method."""

    NONE = ConstantVar(None)

    # ---- calls
    def call_function(self: Any, function: FunctionVar, args: Args, kwargs: Named) -> Variable:
        """The call of a Python function: by its rule, as a node of the graph, or inlined."""
        fn = function.fn
        if fn is not None:
            result = calls.call_known(self, fn, args, kwargs)
            if result is not None:
                return result
            check_traced(fn)
            if getattr(fn, "_torchdynamo_disable", False):  # torch.compile has wrapped it
                return self.call_fixed(fn.__wrapped__, *args, **kwargs)
        return self.inline(function, args, kwargs)

    def call_fixed(self: Any, function: Any, /, *args: Variable, **kwargs: Variable) -> Variable:
        """The call of a real function that the entry holds."""
        return self.output.wrap_pinned(function).call(self, list(args), kwargs)

    # functions of calls.py: `tx` there is `self` here
    call_c, call_unknown = calls.call_c, calls.call_unknown
    call_class, make_instance = calls.call_class, calls.make_instance

    # ---- raising
    def raise_(self, kind: type, *args: Any) -> NoReturn:
        """An exception of the traced program."""
        self.raise_var(kind, [ConstantVar(arg) for arg in args])

    def raise_var(self, kind: type, args: Any) -> NoReturn:
        made = ExceptionVar(kind, fields=DictVar({}))
        made.init_args = args
        raise self.raised(made)

    def unbound(self: Any, name: str) -> None:
        """A variable is read before it is written."""
        nothing = "where it is not associated with a value"
        if name in self.code.co_freevars:
            text = f"cannot access free variable '{name}' {nothing} in enclosing scope"
            self.raise_(NameError, text)
        self.raise_(UnboundLocalError, f"cannot access local variable '{name}' {nothing}")

    # (function, args, kwargs): they do not fit its parameters.
    wrong_arguments = refusal("arguments", "the arguments of {0.name}()")

    def raised(self: Any, var: Any) -> ObservedException:
        """The signal that `var` is raised here: its traceback begins, and what is being handled is
        its context (CPython's _PyErr_SetObject)."""
        if not isinstance(var, ObjectVar) or var.value is not None:
            raise Break("exception", "raising an exception that was made before this frame")
        var.slots["__traceback__"] = TracebackVar((self.user_stack(), self.output.root.group_step))
        context = self.handling()
        if context is not None and context is not var:
            if "__context__" in var.slots:  # the links might become a circle
                raise Break("exception", "raising an exception again while another is handled")
            var.slots["__context__"] = context
        return ObservedException(var)

    def handling(self: Any) -> Any:
        """The exception that is being handled here, or None: this frame's or a caller's, as far as
        they are traced."""
        frame = self
        while frame is not None and not frame.handled:
            frame = frame.parent
        return frame and frame.handled[-1]

    # ---- folding
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
        """What a call gives when it is run now: a constant, a container of such, or an object that
        the entry holds (a class, a function)."""
        result = self.run_now(function, *args, **kwargs)
        is_plain = isinstance(result, (str, bytes, int))
        if is_plain and sys.getsizeof(result) > BYTES_PER_STEP * config.step_limit:
            text = f"a constant of more than {BYTES_PER_STEP} * config.step_limit bytes"
            raise Break("limit", text)
        return self.output.wrap_result(result)

    def computed(
        self: Any, function: Any, args: Any, kwargs: Named, read: str = "as_constant"
    ) -> Any:
        """The result of a pure call; an expression, where it is of symbols.  `read`: how the
        arguments become real, see `on_host`."""
        value = args[0] if args and not kwargs else None
        if function in CALLS and type(value) is SymVar and value.python_type() is not bool:
            result = apply(self, function, *args)
            if result is not None:
                return result
        return self.fold(on_host(function, args, kwargs, read))

    def node(self: Any, function: Callable, args: Any, kwargs: Any = None) -> Variable:
        """A call that becomes a node of the graph."""
        return self.output.call_graph(self, "call_function", function, args, kwargs or {})

    def call_leaf(self: Any, function: Callable, args: Any, kwargs: Named) -> Variable:
        """The call of a function that goes into the graph whole.  A Python function is traced
        where the program gives it an object (a module, a class of options)."""
        if isinstance(function, types.FunctionType):
            objects = any(isinstance(value, ObjectVar) for value in (*args, *kwargs.values()))
            if objects:
                return self.inline(self.output.wrap_pinned(function), args, kwargs)
            guard_calls(self.output, function, is_leaf)
        return self.node(function, args, kwargs)

    # ---- operators
    binary, compare, unary = operators.binary, operators.compare, operators.unary

    def equal(self: Any, a: Variable, b: Variable) -> bool:
        """bool(a == b) on the host."""
        return self.compare("==", a, b).truth(self)

    # ---- are they one object?
    def same(self, a: Variable, b: Variable) -> bool:
        """a is b."""
        symbols = SymVar in (type(a), type(b)) and a is not b
        if symbols and a.python_type() is b.python_type():  # are both one object in this run?
            a, b = pinned(a), pinned(b)
        first, second = a.identity(), b.identity()
        self.guard_same(a, b, first, second)
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            if a is not b and first != first and second != second:
                raise Break("identity", "are two NaNs one object?")
            if first is not second and type(first) is type(second) and first == second:
                asked = f"are two equal constants ({first!r:.50}) one object?"
                raise Break("identity", asked, "compare with ==")
        return first is second

    def guard_same(self: Any, a: Variable, b: Variable, first: Any, second: Any) -> None:
        """Guard the answer of `a is b`, unless other guards imply it already: those on the types of
        `a` and `b` do where they differ."""
        sources = [v.source for v in (a, b) if v.source is not None and v.source.kind != "pinned"]
        if a is b or not sources or isinstance(a, ConstantVar):
            return
        if a.python_type() is not b.python_type():
            return
        if len(sources) == 2 and all("ID" in source.guards for source in sources):
            return
        word = "is" if first is second else "is not"
        if len(sources) == 2:
            self.output.guard_pair(f"{{0}} {word} {{1}}", *sources)
            return
        other = second if a.source is sources[0] else first
        if isinstance(other, TensorVar):
            other = other.value
        # an object made in this frame is never the one outside
        if other is not None and not isinstance(other, Variable):
            self.output.guard(sources[0], ("SAME", id(other)), f"{{0}} {word} {{pin}}", other)

    def same_or_equal(self, a: Variable, b: Variable) -> bool:
        """As containers compare: `a is b or a == b`."""
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            if a.value != a.value and b.value != b.value:
                return self.same(a, b)
            return a.value is b.value or self.equal(a, b)
        if type(a) is SymVar or type(b) is SymVar:  # numbers: one object is equal to itself
            return a is b or self.equal(a, b)
        return self.same(a, b) or self.equal(a, b)

    # ---- iteration
    def iter_of(self: Any, variable: Any) -> Any:
        """iter(variable)."""
        made = iterator_of.ask(type(variable), self, variable)
        if made is None:
            raise Break("iteration", f"iterating over {variable}")
        return made

    def iter_of_object(self: Any, variable: Any) -> Any:
        """iter() of an object, as its `__iter__` says."""
        method = variable.special(self, "__iter__")
        if method is None:
            raise Break("iteration", f"iterating over {variable}, which has no __iter__")
        if variable.payload is not None and is_inherited(variable.cls, "__iter__"):
            return self.iter_of(variable.payload)
        made = method.call(self, [], {})
        if not isinstance(made, IteratorVar):
            raise Break("iteration", f"{made}, whose __next__ is the program's")
        return made

    def listed_fast(self: Any, values: Variable) -> list[Variable]:
        """PySequence_Fast: what is no list or tuple is asked for an iterator, and that is
        listed."""
        return list(self.iter_of(values).rest(self))

    def listed(self: Any, values: Any) -> list[Variable]:
        """[*values]: CPython asks for an iterator, then for a length to expect, then for the
        items."""
        items = values.iterate(self)
        self.length_hint(values)
        return list(items)

    def length_hint(self: Any, values: Any) -> None:
        """What operator.length_hint() calls; the answer only saves CPython allocations."""
        if not isinstance(values, ObjectVar):
            return
        for name in ("__len__", "__length_hint__"):
            method = values.special(self, name)
            if isinstance(method, BoundMethodVar) and method.cls is types.MethodType:
                try:
                    found = method.call(self, [], {})
                except ObservedException:  # C code passes some of them over
                    raise Break("length", f"{name} of {values} raises") from None
                if found.python_type() is not int:
                    raise Break("length", f"{name} of {values} gives no length")
                return

    def sorted(
        self: Any, values: list[Variable], key: Variable | None, reverse: Variable
    ) -> list[Variable]:
        """The values in order.  The list that is given is left as list.sort() leaves its own, also
        when a comparison raises."""
        keys = values
        if key is not None and key.identity() is not None:
            keys = [key.call(self, [value], {}) for value in values]
        if not issubclass(reverse.python_type(), int):
            raise Break("arguments", f"sorting with reverse={reverse}")
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

    def has_attr(self: Any, variable: Variable, name: str) -> bool:
        try:
            variable.getattr(self, name)
            return True
        except ObservedException as raised:
            if issubclass(raised.var.python_type(), AttributeError):
                return False
            raise

    def class_attribute(self: Any, variable: Any, owner: Any, found: Any, name: str) -> Variable:
        """An attribute that the value has by its class, where its variable does not implement it: a
        named tuple's field, `n.real`, `rows.append`, `Pair._make`."""
        if found is MISSING:
            text = f"'{variable.python_type().__name__}' object has no attribute '{name}'"
            self.raise_(AttributeError, text)
        if isinstance(found, METHODS):  # of a named tuple's class
            cls = self.output.wrap_pinned(variable.python_type())
            return method_of_class(self, owner, found, name, variable, cls)
        if isinstance(found, property) and found.fget is not None:
            return self.call_fixed(found.fget, variable)
        if hasattr(type(found), "__set__"):
            raise Break("attribute", f"{owner.__name__}.{name} is kept by C code")
        if hasattr(type(found), "__get__"):
            return MethodVar(variable, name)
        return self.output.wrap_class_attribute(owner, found, name)

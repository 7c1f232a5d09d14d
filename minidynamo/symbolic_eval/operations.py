"""Python's operators on variables: arithmetic, comparison, truth, iteration, folding, raising.

In:   variables.   Out: variables, or host booleans where control flow needs them.

    >>> tx.binary("+", x, ConstantVar(1))
    >>> tx.fold(len, "abc")             # run a pure call now; its exception becomes the traced program's

Mirrors parts of torch/_dynamo/variables/builtin.py.
"""

import collections
import functools
import operator
import types

from .. import config
from ..exceptions import Break, ObservedException
from ..foreign import ours
from ..symbolic_shapes import DataDependentDecision
from ..variables.base import OpaqueVar, Variable
from ..variables.bounds import BYTES_PER_STEP, too_large
from ..variables.constant import ConstantVar
from ..variables.containers import (
    Container,
    DictVar,
    DictViewVar,
    ListVar,
    ProxyVar,
    SequenceVar,
    SequenceVar_of,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, FunctionVar, MethodVar
from ..variables.iterators import (
    HostIterator,
    ItemIterator,
    IteratorVar,
    KeysIterator,
    RangeIterator,
    SentinelVar,
    SequenceIterator,
)
from ..variables.classes import ClassVar
from ..variables.exceptions import TracebackVar
from ..variables.lookup import METHODS, MISSING, in_c_or_library, lookup, type_text
from ..variables.objects import ObjectVar, method_of_class
from ..variables.symbolic import SymVar, apply, data_dependent
from ..variables.tensor import FloatVar, TensorVar

FIELD = type(vars(collections.namedtuple("Pair", "first second"))["first"])
METHOD_VARIABLES = (BoundMethodVar, MethodVar)
BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "//=": operator.ifloordiv,
    "%=": operator.imod,
    "**=": operator.ipow,
    "@=": operator.imatmul,
    "&=": operator.iand,
    "|=": operator.ior,
    "^=": operator.ixor,
    "<<=": operator.ilshift,
    ">>=": operator.irshift,
}
SPECIAL = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "lshift",
    ">>": "rshift",
}
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
COMPARE_SPECIAL = {
    "<": ("__lt__", "__gt__"),
    "<=": ("__le__", "__ge__"),
    "==": ("__eq__", "__eq__"),
    "!=": ("__ne__", "__ne__"),
    ">": ("__gt__", "__lt__"),
    ">=": ("__ge__", "__le__"),
}
UNARY = {"-": operator.neg, "+": operator.pos, "~": operator.invert, "not": operator.not_}
UNARY_SPECIAL = {"-": "__neg__", "+": "__pos__", "~": "__invert__"}
SET_METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
UPDATING = {symbol: f"{name}_update" for symbol, name in SET_METHODS.items()} | {"|": "update"}


class Operations:
    """Mixed into `Frame`; `self` is the `tx` of every variable method."""

    NONE = ConstantVar(None)

    # ---- raising and folding
    def raise_(self, kind, *args):
        self.raise_var(kind, [ConstantVar(arg) for arg in args])

    def raise_var(self, kind, args):
        made = ObjectVar(kind, fields=DictVar({}))
        made.init_args = args
        raise self.raised(made)

    def raised(self, var):
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

    def handling(self):
        """The exception that is being handled here, or None: this frame's or a caller's, as far as
        they are traced."""
        frame = self
        while frame is not None and not frame.handled:
            frame = frame.parent
        return frame and frame.handled[-1]

    def run_now(self, function, /, *args, **kwargs):
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

    def run_c(self, function, /, *args, **kwargs):
        """Call C code now that may call the tracer back: the program's exception only if the C code
        itself raises."""
        try:
            return function(*args, **kwargs)
        except ours(TypeError, ValueError, OverflowError, RuntimeError) as error:
            if error.__traceback__.tb_next is not None:
                raise
            self.raise_(type(error), *error.args)

    def fold(self, function, /, *args, **kwargs):
        """The constant (or container of constants) that a call gives."""
        return self.output.wrap_result(self.run_now(function, *args, **kwargs))

    def check_size(self, name, *values):
        """Refuse a call whose result would be a huge constant: plain Python makes it."""
        if too_large(name, values):
            raise Break(
                "limit", f"a constant of more than {BYTES_PER_STEP} * config.step_limit bytes"
            )

    def fold_pinned(self, function, *args):
        """Like `fold`, for results that are fixed objects (classes, functions)."""
        value = self.run_now(function, *args)
        return (
            self.output.wrap_result(value)
            if isinstance(value, (tuple, list, dict, str, int))
            else self.output.wrap_pinned(value)
        )

    # ---- identity
    def same(self, a, b):
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

    def guard_same(self, a, b, first, second):
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

    def equal(self, a, b):
        """bool(a == b) on the host."""
        return self.compare("==", a, b).truth(self)

    def same_or_equal(self, a, b):
        """As containers compare: `a is b or a == b`."""
        if isinstance(a, ConstantVar) and isinstance(b, ConstantVar):
            return a.value is b.value or self.equal(a, b)
        return self.same(a, b) or self.equal(a, b)

    # ---- operators
    def binary(self, symbol, a, b):
        if type(a) is ConstantVar and type(b) is ConstantVar:
            self.check_size(symbol, a.value, b.value)
            return self.fold(BINARY[symbol], a.value, b.value)
        if type(a) is SymVar or type(b) is SymVar:
            result = apply(self, BINARY[symbol], a, b)
            if result is not None:
                return result
            if not isinstance(a, (TensorVar, ObjectVar)) and not isinstance(
                b, (TensorVar, ObjectVar)
            ):
                return self.binary(
                    symbol, *[v.constant() if type(v) is SymVar else v for v in (a, b)]
                )
        if isinstance(a, TensorVar) or isinstance(b, TensorVar) and not isinstance(a, ObjectVar):
            return self.output.call_graph(self, "call_function", BINARY[symbol], [a, b], {})
        if isinstance(a, FloatVar) or isinstance(b, FloatVar):
            return self._binary_float(symbol, a, b)
        inplace = len(symbol) > 1 and symbol[-1] == "="
        plain = symbol[:-1] if inplace else symbol
        if inplace and isinstance(b, ObjectVar) and self._takes_anything(plain, a, b):
            return self._update_in_place(a, b)
        if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
            return self._binary_special(plain, inplace, a, b)
        if isinstance(a, SequenceVar):
            result = self._sequence_binary(plain, inplace, a, b)
            if result is not None:
                return result
        if plain == "*" and isinstance(b, SequenceVar) and isinstance(a, ConstantVar):
            return self._sequence_binary("*", False, b, a)
        if plain == "|" and not inplace and ProxyVar in (type(a), type(b)):
            a, b = [v.dict if type(v) is ProxyVar else v for v in (a, b)]
        if isinstance(a, DictVar) and plain == "|" and (inplace or isinstance(b, DictVar)):
            result = a if inplace else a.method_copy(self)
            if not inplace and a.cls is dict:  # a subclass's __ror__ comes first
                result.cls, result.factory = b.cls, b.factory
            result.method_update(self, b)
            return result
        if (
            isinstance(a, (SetVar, DictViewVar))
            and plain in SET_METHODS
            and isinstance(b, (SetVar, DictViewVar))
        ):
            return self._binary_sets(plain, inplace, a, b)
        if (
            isinstance(a, ClassVar)
            or isinstance(b, ClassVar)
            or callable(a.identity())
            and callable(b.identity())
        ):
            return self.fold_pinned(BINARY[symbol], a.identity(), b.identity())
        return self.fold(BINARY[symbol], a.as_constant(), b.as_constant())

    def _binary_sets(self, plain, inplace, a, b):
        if isinstance(a, SetVar) and isinstance(b, SetVar):
            if inplace and a.cls is set:
                a.call_method(self, UPDATING[plain], [b], {})
                return a
            return a.call_method(self, SET_METHODS[plain], [b], {})
        if plain == "&":
            return self._common_of_views(a, b)
        if plain == "^" and any(getattr(v, "kind", "") == "items" for v in (a, b)):
            raise Break("C function", "^ of the items of a dictionary")
        whole = a.dict if isinstance(a, DictViewVar) and a.kind == "keys" else a
        made = SetVar.made(self, whole)
        made.call_method(self, UPDATING[plain], [b], {})
        return made

    def _common_of_views(self, a, b):
        """`&` where one is a view of a dictionary: what is in both, in the order of the smaller,
        or of the one that is no view."""
        view, other = (a, b) if isinstance(a, DictViewVar) else (b, a)
        smaller = view.length(self) < other.length(self)
        if isinstance(other, SetVar) and other.cls is set:
            if view.length(self) <= other.length(self):
                return other.method_intersection(self, view)
        elif isinstance(other, DictViewVar) and smaller:
            view, other = other, view
        return SetVar.of(self, (v for v in other.iterate(self) if view.contains(self, v)))

    def _takes_anything(self, plain, a, b):
        """`list += b` takes any iterable, if `b` does not know how to be added; `dict |= b` asks
        first."""
        if plain == "+" and isinstance(a, ListVar):
            return b.special(self, "__radd__") is None
        return plain == "|" and isinstance(a, DictVar)

    def _update_in_place(self, a, b):
        a.method_extend(self, b) if isinstance(a, ListVar) else a.method_update(self, b)
        return a

    def _binary_float(self, symbol, a, b):
        """Exact in float64, as Python's; a division by a number that may become 0 raises there, and
        is left to Python."""
        numbers = all(
            isinstance(v, FloatVar)
            or isinstance(v, ConstantVar)
            and type(v.value) in (int, float)
            and abs(v.value) < 2**53
            for v in (a, b)
        )
        if numbers and (
            symbol.rstrip("=") in ("+", "-", "*")
            or symbol in ("/", "/=")
            and isinstance(b, ConstantVar)
            and b.value
        ):
            return (a if isinstance(a, FloatVar) else b).combine(
                self, BINARY[symbol.rstrip("=")], a, b
            )
        return self.binary(
            symbol,
            *[ConstantVar(v.as_constant()) if isinstance(v, FloatVar) else v for v in (a, b)],
        )

    def _sequence_binary(self, plain, inplace, a, b):
        if a.cls is tuple and (
            plain == "*"
            and type(b) is ConstantVar
            and b.value in (1, True)
            or plain == "+"
            and type(b) is TupleVar
            and not b.items
        ):
            return a  # CPython makes no copy
        if plain == "+" and inplace and isinstance(a, ListVar):
            a.method_extend(self, b)
            return a
        if not inplace and collections.deque in (a.cls, b.cls):
            raise Break("C function", f"the operator {plain} of a deque")
        if plain == "+" and isinstance(b, SequenceVar):
            if isinstance(a, ListVar) == isinstance(b, ListVar):
                return SequenceVar_of(a.cls, [*a.iterate(self), *b.iterate(self)])
            self.raise_(
                TypeError,
                f'can only concatenate {a.cls.__name__} (not "{b.cls.__name__}") to {a.cls.__name__}',
            )
        if plain == "*" and isinstance(b, ConstantVar) and isinstance(b.value, int):
            if len(a.items) * b.value > config.step_limit:
                raise Break("limit", f"{len(a.items) * b.value} items in one {a.cls.__name__}")
            if inplace and isinstance(a, ListVar):
                a.items[:] = list(a.iterate(self)) * b.value
                a._changed()
                return a
            return SequenceVar_of(a.cls, list(a.iterate(self)) * b.value)
        return None

    def _binary_special(self, plain, inplace, a, b):
        name = SPECIAL[plain]
        attempts = [(a, f"__i{name}__", b)] if inplace else []
        attempts += [(a, f"__{name}__", b), (b, f"__r{name}__", a)]
        if (
            isinstance(a, ObjectVar)
            and isinstance(b, ObjectVar)
            and b.cls is not a.cls
            and issubclass(b.cls, a.cls)
            and lookup(b.cls, f"__r{name}__")[1] is not lookup(a.cls, f"__r{name}__")[1]
        ):
            attempts.insert(len(attempts) - 2, attempts.pop())
        for left, method, right in attempts:
            bound = left.special(self, method) if isinstance(left, ObjectVar) else None
            if (
                bound is not None
                and (result := bound.call(self, [right], {})).identity() is not NotImplemented
            ):
                return result
        kinds = a.python_type(), b.python_type()
        if any(hasattr(kind, "__getitem__") for kind in kinds):
            raise Break("operator", f"{plain} of {a} and {b}")  # sequences have words of their own
        first, second = map(type_text, kinds)
        written = f"{plain}=" if inplace else plain
        if written == "**":
            written = "** or pow()"
        self.raise_(
            TypeError, f"unsupported operand type(s) for {written}: '{first}' and '{second}'"
        )

    def unary(self, symbol, a):
        if symbol == "not":
            return ConstantVar(not a.truth(self))
        if isinstance(a, TensorVar):
            return self.output.call_graph(self, "call_function", UNARY[symbol], [a], {})
        if isinstance(a, FloatVar) and symbol == "-":
            return a.combine(self, operator.neg, a)
        if type(a) is SymVar:
            return apply(self, UNARY[symbol], a) or self.unary(symbol, a.constant())
        if isinstance(a, ObjectVar):
            method = a.special(self, UNARY_SPECIAL[symbol])
            if method is None:
                self.raise_(TypeError, f"bad operand type for unary {symbol}: '{type_text(a.cls)}'")
            return method.call(self, [], {})
        return self.fold(UNARY[symbol], a.as_constant())

    def compare(self, symbol, a, b):
        for v in (a, b):
            if isinstance(v, OpaqueVar) and (
                symbol not in ("==", "!=")
                or lookup(v.python_type(), "__eq__")[1] is not object.__eq__
            ):
                raise v.broken
        a, b = [v.dict if type(v) is ProxyVar else v for v in (a, b)]
        a, b = [
            ConstantVar(v.as_constant())
            if isinstance(v, FloatVar) and not isinstance(w, ObjectVar)
            else v
            for v, w in ((a, b), (b, a))
        ]
        if type(a) is ConstantVar and type(b) is ConstantVar:
            return self.fold(COMPARE[symbol], a.value, b.value)
        if (type(a) is SymVar or type(b) is SymVar) and (
            result := apply(self, COMPARE[symbol], a, b)
        ) is not None:
            return result
        if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
            return self._compare_special(symbol, a, b)
        if isinstance(a, TensorVar) or isinstance(b, TensorVar):
            other = b if isinstance(a, TensorVar) else a
            if not isinstance(other, (TensorVar, ConstantVar, SymVar)) or other.identity() is None:
                if symbol in ("==", "!="):
                    return ConstantVar(symbol == "!=")
            return self.output.call_graph(self, "call_function", COMPARE[symbol], [a, b], {})
        if isinstance(a, SequenceVar) and isinstance(b, SequenceVar):
            return self._compare_sequences(symbol, a, b)
        if isinstance(a, DictVar) and isinstance(b, DictVar) and symbol in ("==", "!="):
            left, right = a.pairs(self), b.pairs(self)
            same = len(left) == len(right) and all(
                b.get(self, k) is not None
                and (b.get(self, k) is v or self.equal(v, b.get(self, k)))
                for k, v in left
            )
            if a.cls is b.cls is collections.OrderedDict:
                same = same and [k.hash_key(self) for k, _ in left] == [
                    k.hash_key(self) for k, _ in right
                ]
            return ConstantVar(same == (symbol == "=="))
        if isinstance(a, (SetVar, DictViewVar)) and isinstance(b, (SetVar, DictViewVar)):
            return self.fold(
                COMPARE[symbol],
                *[
                    set(v.items if isinstance(v, SetVar) else map(self.key_of, v.iterate(self)))
                    for v in (a, b)
                ],
            )
        if symbol in ("==", "!="):
            return ConstantVar(self._same_value(a, b) == (symbol == "=="))
        return self.fold(COMPARE[symbol], a.as_constant(), b.as_constant())

    def key_of(self, variable):
        return variable.hash_key(self)

    def _same_value(self, a, b):
        """a == b, where no container, tensor or object of a Python class is among the two."""
        if isinstance(a, METHOD_VARIABLES) and isinstance(b, METHOD_VARIABLES):
            return self._same_method(a, b)
        equality = [lookup(v.python_type(), "__eq__")[1] for v in (a, b)]
        if equality == [object.__eq__, object.__eq__]:
            return self.same(a, b)
        if type(a) is not type(b) and not (a.is_constant() and b.is_constant()):
            return self.same(a, b)
        return self.fold(operator.eq, a.real(), b.real()).value

    def _same_method(self, a, b):
        """Two bound methods are equal if their functions are, bound to the same object."""
        if a.python_type() is not b.python_type() or not self.same(a.instance, b.instance):
            return False
        if isinstance(a, MethodVar) or isinstance(b, MethodVar):
            return a.method_name() == b.method_name()
        return self.equal(a.function, b.function)

    def _compare_special(self, symbol, a, b):
        forward, backward = COMPARE_SPECIAL[symbol]
        for left, method, right in ((a, forward, b), (b, backward, a)):
            if isinstance(left, ObjectVar):
                bound = left.special(self, method)
                if isinstance(bound, BoundMethodVar) and not isinstance(
                    bound.function, FunctionVar
                ):
                    if left.payload is not None:
                        other = getattr(right, "payload", None) or right
                        return self.compare(symbol, left.payload, other)
                    if not left.immutable():
                        raise Break("compare", f"{left} is compared by C code")
                    return self.fold(COMPARE[symbol], a.real(), b.real())
                if (
                    bound is not None
                    and (result := bound.call(self, [right], {})).identity() is not NotImplemented
                ):
                    return result
        if symbol == "!=" and (lookup(a.python_type(), "__eq__")[1] is not object.__eq__):
            return ConstantVar(not self.compare("==", a, b).truth(self))
        if symbol in ("==", "!="):
            if isinstance(a, Container) or isinstance(
                b, Container
            ):  # whose own method looks at the contents
                a, b = [getattr(v, "payload", None) or v for v in (a, b)]
                if isinstance(a, Container) and isinstance(b, Container):
                    return self.compare(symbol, a, b)
            return ConstantVar(self.same(a, b) == (symbol == "=="))
        first, second = type_text(a.python_type()), type_text(b.python_type())
        self.raise_(
            TypeError, f"'{symbol}' not supported between instances of '{first}' and '{second}'"
        )

    def _compare_sequences(self, symbol, a, b):
        first, second = [v.cls if isinstance(v, ListVar) else tuple for v in (a, b)]
        if first is not second:
            if symbol in ("==", "!="):
                return ConstantVar(symbol == "!=")
            self.raise_(
                TypeError,
                f"'{symbol}' not supported between instances of '{a.cls.__name__}' and '{b.cls.__name__}'",
            )
        if a.cls is list and symbol in ("==", "!=") and len(a.items) != len(b.items):
            return ConstantVar(symbol == "!=")
        n = -1
        while (n := n + 1) < min(
            len(a.items), len(b.items)
        ):  # comparing items may change the lists
            left, right = a.item(self, n), b.item(self, n)
            if not self.same_or_equal(left, right):
                if n >= min(len(a.items), len(b.items)):
                    break
                return (
                    ConstantVar(symbol == "!=")
                    if symbol in ("==", "!=")
                    else self.compare(symbol, left, right)
                )
        return self.fold(COMPARE[symbol], len(a.items), len(b.items))

    # ---- iteration
    def iter_of(self, variable):
        """iter(variable)."""
        if isinstance(variable, SentinelVar):  # its own __iter__ is asked, as often as Python asks
            return self._iter_of_object(variable.object)
        if isinstance(variable, IteratorVar):
            return variable
        if isinstance(variable, SequenceVar):
            return SequenceIterator(variable)
        if isinstance(variable, ConstantVar) and type(variable.value) is range:
            return RangeIterator(variable.value)
        if isinstance(variable, ObjectVar):
            return self._iter_of_object(variable)
        if isinstance(variable, (DictVar, DictViewVar, ProxyVar, SetVar)):
            return KeysIterator(self, variable)
        return HostIterator(
            iter(variable.iterate(self)),
            type(iter(variable.value)) if isinstance(variable, ConstantVar) else IteratorVar.cls,
        )

    def _iter_of_object(self, variable):
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
        if variable.special(self, "__getitem__") is not None:
            return ItemIterator(variable, 0)
        self.raise_(TypeError, f"'{type_text(variable.cls)}' object is not iterable")

    def listed(self, values):
        """[*values]: CPython asks for an iterator, then for a length to expect, then for the
        items."""
        items = values.iterate(self)
        self.length_hint(values)
        return list(items)

    def listed_fast(self, values):
        """PySequence_Fast: what is no list or tuple is asked for an iterator, and that is
        listed."""
        return self.listed(values if isinstance(values, SequenceVar) else self.iter_of(values))

    def length_hint(self, values):
        """What operator.length_hint() calls; the answer only saves CPython allocations."""
        names = ("__len__", "__length_hint__")
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

    def sorted(self, values, key, reverse):
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
                f"'{reverse.python_type().__name__}' object cannot be interpreted as an integer",
            )
        order = list(range(len(values)))
        before = list(values)

        def compare(i, j):  # list.sort() asks only for <
            return -1 if self.compare("<", keys[i], keys[j]).truth(self) else 0

        try:
            order.sort(reverse=reverse.truth(self), key=functools.cmp_to_key(compare))
        finally:
            values[:] = [before[i] for i in order]
        return values

    # ---- attributes
    def has_attr(self, variable, name):
        try:
            variable.getattr(self, name)
            return True
        except ObservedException as raised:
            if issubclass(raised.var.python_type(), AttributeError):
                return False
            raise

    def method_of(self, variable, name):
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

    def text_of(self, variable):
        """str(variable) on the host."""
        if variable.is_constant() or isinstance(
            variable, (SymVar, ListVar, TupleVar, DictVar, SetVar)
        ):
            return variable.as_constant()
        raise Break("string", f"the text of {variable}")

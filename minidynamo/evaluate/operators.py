"""Python's operators: which operand is asked, in which order, and what each kind of value answers.

In:   the symbol and the operands, as variables.  Out: a variable; a break.

    >>> binary(tx, "+", tensor, ConstantVar(1))      # a node of the graph

It goes as in CPython's abstract.c.  `a + b` asks `a` (`left_operand`), then `b` (`right_operand`);
`a += b` asks `a` first whether it can be changed (`in_place`).  A comparison asks `a`, then `b`
(`comparison`); `-a` asks `a` (`unary_operand`).  A rule returns None where it does not apply.  If
no rule applies, lists and tuples are added or repeated, and constants are computed; of objects the
graph breaks, and plain Python raises its TypeError.
Mirrors torch/_dynamo/variables/builtin.py.
"""

import collections
import operator as host
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .. import config
from ..errors import Break
from ..variables.base import BINARY, Frame, OpaqueVar, Variable, compared_by_identity, lookup
from ..variables.classes import ClassVar
from ..variables.constant import NUMPY, VALUES, ConstantVar
from ..variables.dicts import (
    Container,
    DictVar,
    DictViewVar,
    ListVar,
    SequenceVar,
    SetVar,
    TupleVar,
)
from ..variables.functions import BoundMethodVar, MethodVar
from ..variables.objects import ObjectVar, is_inherited, through
from ..variables.registry import ByClass
from ..variables.sequences import sequence_of
from ..variables.symbolic import SymVar, apply, pinned
from ..variables.tensor import TensorVar


class Operator(NamedTuple):
    """One of Python's binary operators."""

    symbol: str  # as the program writes it: "+="
    plain: str  # "+"
    name: str  # of its methods: "add" of __add__, __radd__, __iadd__
    function: Callable  # that computes it: operator.iadd
    in_place: bool


SYMBOLS = "+ - * / // % ** @ & | ^ << >>".split()
OPERATORS: dict[str, Operator] = {}
for _plain, _name in zip(SYMBOLS, BINARY):
    _function, _updating = getattr(host, f"__{_name}__"), getattr(host, f"__i{_name}__")
    OPERATORS[_plain] = Operator(_plain, _plain, _name, _function, False)
    OPERATORS[_plain + "="] = Operator(_plain + "=", _plain, _name, _updating, True)
COMPARISONS: dict[str, Callable] = {"<": host.lt, "<=": host.le, "==": host.eq}
COMPARISONS |= {"!=": host.ne, ">": host.gt, ">=": host.ge}
SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
UNARY: dict[str, Callable] = {"-": host.neg, "+": host.pos, "~": host.invert, "not": host.not_}
# By the class of the variable that is asked:
left_operand, right_operand, in_place = ByClass(), ByClass(), ByClass()  # (tx, operator, a, b)
comparison = ByClass()  # (tx, symbol, a, b): `a` or `b` is of the class
unary_operand = ByClass()  # (tx, symbol, a)
SET_METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
UPDATING = {symbol: f"{name}_update" for symbol, name in SET_METHODS.items()} | {"|": "update"}


# ---- who is asked
def binary(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable:
    """`a + b`, `a += b`..."""
    operator = OPERATORS[symbol]
    questions = [(left_operand, a), (right_operand, b)]
    if operator.in_place:
        questions.insert(0, (in_place, a))
    for registry, asked in questions:
        result = registry.ask(type(asked), tx, operator, a, b)
        if result is not None:
            return result
    result = of_sequences(tx, operator, a, b)
    if result is not None:
        return result
    if any(isinstance(operand, (ObjectVar, ClassVar)) for operand in (a, b)):
        raise Break("operator", f"{operator.plain} of {a} and {b}")
    return tx.fold(operator.function, a.as_constant(), b.as_constant())


def compare(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable:
    """`a < b`, `a == b`...  (A value that is not traced can be compared where its class leaves that
    to its identity.)"""
    for operand in (a, b):
        if isinstance(operand, OpaqueVar) and not (
            symbol in ("==", "!=") and compared_by_identity(operand)
        ):
            raise operand.broken
    for asked in (a, b):
        result = comparison.ask(type(asked), tx, symbol, a, b)
        if result is not None:
            return result
    if is_symbol_and_number(a, b) or is_symbol_and_number(b, a):
        return tx.compare(symbol, pinned(a), pinned(b))
    if symbol in ("==", "!="):
        return ConstantVar(same_value(tx, a, b) == (symbol == "=="))
    return tx.fold(COMPARISONS[symbol], a.as_constant(), b.as_constant())


def unary(tx: Frame, symbol: str, a: Variable) -> Variable:
    """`-a`, `not a`..."""
    if symbol == "not":
        return ConstantVar(not a.truth(tx))
    result = unary_operand.ask(type(a), tx, symbol, a)
    if result is not None:
        return result
    if isinstance(a, ClassVar):
        raise Break("operator", f"{symbol} of {a}")
    return tx.fold(UNARY[symbol], a.as_constant())


def is_symbol_and_number(a: Variable, b: Variable) -> bool:
    """Are they a symbol and a number that symbols do not compute with: NumPy's, or complex?"""
    return type(a) is SymVar and type(b) is ConstantVar and type(b.value) in (*NUMPY, complex)


def same_value(tx: Frame, a: Variable, b: Variable) -> bool:
    """a == b, where no container, tensor or object of a Python class is among the two."""
    methods = (BoundMethodVar, MethodVar)
    if isinstance(a, methods) and isinstance(b, methods):
        if not isinstance(a, BoundMethodVar) or not isinstance(b, BoundMethodVar):
            raise Break("compare", "methods of C")
        alike = a.python_type() is b.python_type() and tx.same(a.instance, b.instance)
        return alike and tx.equal(a.function, b.function)
    if compared_by_identity(a) and compared_by_identity(b):
        return tx.same(a, b)
    if type(a) is not type(b) and not (a.is_constant() and b.is_constant()):
        return tx.same(a, b)
    return tx.fold(host.eq, a.real(), b.real()).value


# ---- constants: computed now
@left_operand(ConstantVar)
def _constants(tx: Frame, operator: Operator, a: ConstantVar, b: Variable) -> Variable | None:
    if type(b) is not ConstantVar:
        return None
    return tx.fold(operator.function, a.value, b.value)


@comparison(ConstantVar)
def _compare_constants(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    if type(a) is not ConstantVar or type(b) is not ConstantVar:
        return None
    return tx.fold(COMPARISONS[symbol], a.value, b.value)


# ---- symbols (sizes and numbers that differ from call to call), and tensors: nodes of the graph
@left_operand(SymVar)
@right_operand(SymVar)
def _symbols(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """Symbolic where torch can compute so.  Beside another operand that is neither tensor nor
    object, the symbol becomes the number of this run."""
    is_rounded = operator.plain == "//" and float in (a.python_type(), b.python_type())
    # (of floats torch computes math.floor(a / b), which rounds twice)
    result = None if is_rounded else apply(tx, operator.function, a, b)
    if result is not None or isinstance(a, (TensorVar, ObjectVar)):
        return result
    if isinstance(b, (TensorVar, ObjectVar)):
        return None
    return binary(tx, operator.symbol, pinned(a), pinned(b))


@left_operand(TensorVar)
def _tensor_left(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable:
    return tx.node(operator.function, [a, b])


@right_operand(TensorVar)
def _tensor_right(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    return None if isinstance(a, ObjectVar) else tx.node(operator.function, [a, b])


@comparison(TensorVar)
def _compare_tensors(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    other = b if isinstance(a, TensorVar) else a
    if not isinstance(other, (TensorVar, ConstantVar)) and type(other) is not SymVar:
        return None  # its own handler knows better
    if symbol in ("==", "!=") and other.identity() is None:
        return ConstantVar(symbol == "!=")  # `tensor == None` is False
    return tx.node(COMPARISONS[symbol], [a, b])


@comparison(SymVar)
def _compare_symbols(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    return apply(tx, COMPARISONS[symbol], a, b)


@unary_operand(SymVar)
def _unary_symbol(tx: Frame, symbol: str, a: SymVar) -> Variable:
    result = apply(tx, UNARY[symbol], a)
    return unary(tx, symbol, a.constant()) if result is None else result


@unary_operand(TensorVar)
def _unary_tensor(tx: Frame, symbol: str, a: Variable) -> Variable:
    return tx.node(UNARY[symbol], [a])


# ---- lists and tuples
def of_sequences(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """`+` and `*` of lists and tuples."""
    if isinstance(a, SequenceVar) and operator.plain == "+":
        return concatenated(tx, operator, a, b)
    if isinstance(a, SequenceVar) and operator.plain == "*":
        return repeated(tx, operator, a, b)
    if isinstance(b, SequenceVar) and operator.plain == "*":
        return repeated(tx, OPERATORS["*"], b, a)
    return None


def concatenated(tx: Frame, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a + b`, `a += b`."""
    if operator.in_place and isinstance(a, ListVar):
        a.method_extend(tx, b)
        return a
    if a.cls is tuple and type(b) is TupleVar and b.cls is tuple and not b.items:
        return a  # CPython makes no copy
    if not isinstance(b, SequenceVar):
        return None
    if isinstance(a, ListVar) != isinstance(b, ListVar):
        raise Break("operator", f"{operator.plain} of a list and a tuple")
    items = [*a.iterate(tx), *b.iterate(tx)]
    is_shape = torch.Size in (a.cls, b.cls)  # `(2,) + x.shape` is one, too
    if is_shape and not all(issubclass(item.python_type(), int) for item in items):
        raise Break("operator", f"{operator.plain} of a torch.Size and what holds other than ints")
    return sequence_of(torch.Size if is_shape else a.cls, items)


def repeated(tx: Frame, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a * b`, `a *= b`."""
    if not (isinstance(b, ConstantVar) and isinstance(b.value, int)):
        return None
    if a.cls is tuple and b.value == 1:
        return a  # CPython makes no copy
    if len(a.items) * b.value > config.step_limit:
        raise Break("limit", f"{len(a.items) * b.value} items in one {a.cls.__name__}")
    items = list(a.iterate(tx)) * b.value
    if operator.in_place and isinstance(a, ListVar):
        a.items[:] = items
        a._changed()
        return a
    return sequence_of(a.cls, items)


@comparison(SequenceVar)
def compare_sequences(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    if not isinstance(a, SequenceVar) or not isinstance(b, SequenceVar):
        return None
    equality = symbol in ("==", "!=")
    if kind_of_sequence(a) is not kind_of_sequence(b):
        if equality:
            return ConstantVar(symbol == "!=")
        raise Break("compare", f"{a} {symbol} {b}")
    if a.cls is list and equality and len(a.items) != len(b.items):
        return ConstantVar(symbol == "!=")
    for left, right in zip(a.iterate(tx), b.iterate(tx)):
        if not tx.same_or_equal(left, right):
            return ConstantVar(symbol == "!=") if equality else tx.compare(symbol, left, right)
    return tx.fold(COMPARISONS[symbol], len(a.items), len(b.items))


def kind_of_sequence(sequence: SequenceVar) -> type:
    """A list is compared with its like, a tuple with any other."""
    return sequence.cls if isinstance(sequence, ListVar) else tuple


# ---- sets and the views of dictionaries
@in_place(SetVar)
def update_set(tx: Frame, operator: Operator, a: SetVar, b: Variable) -> Variable | None:
    if a.cls is not set or not isinstance(b, SetVar) or operator.plain not in UPDATING:
        return None
    a.call_method(tx, UPDATING[operator.plain], [b], {})
    return a


@left_operand(SetVar, DictViewVar)
def sets(tx: Frame, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    if operator.plain not in SET_METHODS or not isinstance(b, (SetVar, DictViewVar)):
        return None
    if isinstance(a, SetVar) and isinstance(b, SetVar):
        return a.call_method(tx, SET_METHODS[operator.plain], [b], {})
    raise Break("operator", f"{operator.plain} of a view of a dictionary")


@comparison(SetVar, DictViewVar)
def compare_sets(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    if not isinstance(a, (SetVar, DictViewVar)) or not isinstance(b, (SetVar, DictViewVar)):
        return None
    return tx.fold(COMPARISONS[symbol], keys_of(tx, a), keys_of(tx, b))


def keys_of(tx: Frame, variable: Variable) -> set:
    """The elements by what stands for them in a dictionary."""
    if isinstance(variable, SetVar):
        return set(variable.items)
    return {value.hash_key(tx) for value in variable.iterate(tx)}


# ---- dictionaries
@in_place(DictVar)
def update_dict(tx: Frame, operator: Operator, a: DictVar, b: Variable) -> Variable | None:
    if operator.plain != "|":
        return None
    a.method_update(tx, b)
    return a


@left_operand(DictVar)
def dicts(tx: Frame, operator: Operator, a: DictVar, b: Variable) -> Variable | None:
    if operator.plain != "|" or not isinstance(b, DictVar):
        return None
    if a.cls is not b.cls:  # a subclass's __ror__ comes first
        raise Break("operator", f"| of a {a.cls.__name__} and a {b.cls.__name__}")
    result = a.method_copy(tx)
    result.method_update(tx, b)
    return result


@comparison(DictVar)
def compare_dicts(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable | None:
    if symbol not in ("==", "!=") or not isinstance(a, DictVar) or not isinstance(b, DictVar):
        return None
    if a.cls is b.cls is collections.OrderedDict:
        raise Break("compare", "two OrderedDicts, whose order counts")
    return ConstantVar(have_equal_items(tx, a, b) == (symbol == "=="))


def have_equal_items(tx: Frame, a: DictVar, b: DictVar) -> bool:
    left = a.pairs(tx)
    if len(left) != len(b.pairs(tx)):
        return False
    for key, value in left:
        other = b.get(tx, key)
        if other is None or other is not value and not tx.equal(value, other):
            return False
    return True


# ---- classes
@comparison(ClassVar)
def compare_classes(tx: Frame, symbol: str, a: Variable, b: Variable) -> None:
    """Their metaclasses must not say what it means."""
    for operand in (a, b):
        if isinstance(operand, ClassVar):
            operand.refuse_own_operator(*(f"__{f.__name__}__" for f in COMPARISONS.values()))


# ---- objects of Python classes: their special methods
@left_operand(ObjectVar)
def object_left(tx: Frame, operator: Operator, a: ObjectVar, b: Variable) -> Variable | None:
    reverse = f"__r{operator.name}__"
    if overrides(b, a, reverse):
        result = answer(tx, b, reverse, a)
        if result is not None:
            return result
    return answer(tx, a, f"__{operator.name}__", b)


@right_operand(ObjectVar)
def object_right(tx: Frame, operator: Operator, a: Variable, b: ObjectVar) -> Variable | None:
    reverse = f"__r{operator.name}__"
    if isinstance(a, ObjectVar) and (a.cls is b.cls or overrides(b, a, reverse)):
        return None  # it is not asked, or was asked first
    return answer(tx, b, reverse, a)


def overrides(b: Variable, a: ObjectVar, method: str) -> bool:
    """Is `b` of a subclass of `a`'s class, with a method of its own?"""
    return is_of_subclass(b, a) and lookup(b.cls, method)[1] is not lookup(a.cls, method)[1]


def is_of_subclass(b: Variable, a: Variable) -> bool:
    """Is `b` an object of a subclass of `a`'s class?"""
    kind = a.python_type()
    return isinstance(b, ObjectVar) and b.cls is not kind and issubclass(b.cls, kind)


@in_place(ObjectVar)
def object_in_place(tx: Frame, operator: Operator, a: ObjectVar, b: Variable) -> Variable | None:
    return answer(tx, a, f"__i{operator.name}__", b)


@unary_operand(ObjectVar)
def object_alone(tx: Frame, symbol: str, a: ObjectVar) -> Variable:
    return through(f"__{UNARY[symbol].__name__}__")(a, tx)


def answer(tx: Frame, asked: Any, name: str, other: Variable) -> Variable | None:
    """What a special method answers; None if there is none, or it answers NotImplemented."""
    method = asked.special(tx, name)
    if method is None:
        return None
    result = method.call(tx, [other], {})
    return None if result.identity() is NotImplemented else result


@comparison(ObjectVar)
def compare_objects(tx: Frame, symbol: str, a: Variable, b: Variable) -> Variable:
    """CPython's do_richcompare."""
    questions = [(symbol, a, b), (SWAPPED[symbol], b, a)]
    if is_of_subclass(b, a):
        questions.reverse()
    for question, asked, other in questions:
        result = compared(tx, question, asked, other)
        if result is not None:
            return result
    # an object of a subclass of int or str, whose own methods do not know how: int's might
    left_to_c = any(isinstance(v, ObjectVar) and issubclass(v.cls, VALUES) for v in (a, b))
    if left_to_c or symbol not in ("==", "!="):
        raise Break("compare", f"{a} {symbol} {b}")
    return ConstantVar(tx.same(a, b) == (symbol == "=="))


def compared(tx: Frame, symbol: str, asked: Variable, other: Variable) -> Variable | None:
    """What the type of `asked` answers; None if it does not know how."""
    if not isinstance(asked, ObjectVar):
        return by_contents(tx, symbol, asked, other)
    name = f"__{COMPARISONS[symbol].__name__}__"
    method = lookup(asked.cls, name)[1]
    if symbol == "!=" and method is object.__ne__:
        equal = compared(tx, "==", asked, other)
        return None if equal is None else ConstantVar(not equal.truth(tx))
    if not is_inherited(asked.cls, name) or method.__objclass__ is object:
        return answer(tx, asked, name, other)
    if asked.payload is not None:
        return by_contents(tx, symbol, asked, other)
    raise Break("compare", f"{asked} is compared by C code")


def by_contents(tx: Frame, symbol: str, asked: Variable, other: Variable) -> Variable | None:
    """A container's own method looks at what the two hold, if they are of one kind."""
    first, second = contents(asked), contents(other)
    if not isinstance(first, Container) or not isinstance(second, Container):
        return None
    if isinstance(first, SequenceVar) and isinstance(second, SequenceVar):
        if kind_of_sequence(first) is not kind_of_sequence(second):
            return None
    return tx.compare(symbol, first, second)


def contents(variable: Variable) -> Variable:
    """What a list, dict or set subclass's object holds; else the variable itself."""
    return variable if variable.payload is None else variable.payload

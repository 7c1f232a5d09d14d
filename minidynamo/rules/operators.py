"""Operators of sequences, sets, dictionaries and their views, floats that change, classes and
objects; what Python says where nobody knows how.

    [1] + [2]        {1} | {2}        {"a": 1} | {"b": 2}        d.keys() & {1}
    lr * 0.1        int | None        Point(1, 2) + Point(3, 4)

In, out: as in `symbolic_eval.operators`, whose registries these handlers join.
"""

import collections
import operator as host
from typing import Any, NoReturn

import torch

from .. import config
from ..exceptions import Break
from ..symbolic_eval.operators import (
    COMPARISONS,
    OPERATORS,
    UNARY,
    Operator,
    comparison,
    in_place,
    last_comparison,
    last_operand,
    left_operand,
    right_operand,
    unary_operand,
)
from ..variables.base import Variable
from ..variables.classes import ClassVar
from ..variables.constant import ConstantVar
from ..variables.more.arrays import NUMPY
from ..variables.containers import Container, DictVar, DictViewVar, ListVar, SequenceVar, TupleVar
from ..variables.functions import BoundMethodVar, MethodVar
from ..variables.lookup import lookup
from ..variables.more.opaque import compared_by_identity
from ..variables.more.sets import SetVar
from ..variables.sequences import sequence_of
from ..variables.objects import ObjectVar, is_inherited
from ..variables.symbolic import SymVar, pinned

SWAPPED = {"<": ">", "<=": ">=", "==": "==", "!=": "!=", ">": "<", ">=": "<="}
VALUES = (int, float, complex, str, bytes)  # of C: a program's subclass has its operators, too
BOUND = (BoundMethodVar, MethodVar)
METHODS = {"|": "union", "&": "intersection", "-": "difference", "^": "symmetric_difference"}
UPDATING = {symbol: f"{name}_update" for symbol, name in METHODS.items()} | {"|": "update"}


# ---- where neither operand knows how
@last_operand(Variable)
def _last_operand(tx, operator, a, b):
    """Sequences are asked; Python's own types complain in their own words."""
    result = of_sequences(tx, operator, a, b)
    if result is not None:
        return result
    if not isinstance(a, ObjectVar) and not isinstance(b, ObjectVar):
        if callable(a.identity()) and callable(b.identity()):
            return tx.fold_pinned(operator.function, a.identity(), b.identity())
        return tx.fold(operator.function, a.as_constant(), b.as_constant())
    kinds = a.python_type(), b.python_type()
    if any(hasattr(kind, "__getitem__") for kind in kinds):
        raise Break("operator", f"{operator.plain} of {a} and {b}")  # sequences have words, too
    leave_to_c(a, b, operator.plain)
    first, second = (kind.__name__ for kind in kinds)
    written = "** or pow()" if operator.symbol == "**" else operator.symbol
    tx.raise_(TypeError, f"unsupported operand type(s) for {written}: '{first}' and '{second}'")


def leave_to_c(a: Variable, b: Variable, symbol: str) -> None:
    """An object of a subclass of int or str, whose own methods do not know how: int's might."""
    for operand in (a, b):
        if isinstance(operand, ObjectVar) and issubclass(operand.cls, VALUES):
            raise Break("operator", f"{symbol} of {a} and {b}")


@last_comparison(Variable)
def _last_comparison(tx, symbol, a, b):
    if is_symbol_and_number(a, b) or is_symbol_and_number(b, a):
        return tx.compare(symbol, pinned(a), pinned(b))
    if symbol in ("==", "!="):
        return ConstantVar(same_value(tx, a, b) == (symbol == "=="))
    return tx.fold(COMPARISONS[symbol], a.as_constant(), b.as_constant())


def is_symbol_and_number(a: Variable, b: Variable) -> bool:
    """Are they a symbol and a number that it is not computed with (NumPy's, a complex one)?"""
    return type(a) is SymVar and type(b) is ConstantVar and type(b.value) in (*NUMPY, complex)


def same_value(tx, a: Variable, b: Variable) -> bool:
    """a == b, where no container, tensor or object of a Python class is among the two."""
    if isinstance(a, BOUND) and isinstance(b, BOUND):
        return same_method(tx, a, b)
    if compared_by_identity(a) and compared_by_identity(b):
        return tx.same(a, b)
    if type(a) is not type(b) and not (a.is_constant() and b.is_constant()):
        return tx.same(a, b)
    return tx.fold(host.eq, a.real(), b.real()).value


def same_method(tx, a: Any, b: Any) -> bool:
    """Two bound methods are equal if their functions are, bound to the same object."""
    if a.python_type() is not b.python_type() or not tx.same(a.instance, b.instance):
        return False
    if isinstance(a, MethodVar) or isinstance(b, MethodVar):
        raise Break("compare", "methods of C")
    return tx.equal(a.function, b.function)


# ---- lists and tuples
def of_sequences(tx, operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """`+` and `*` of lists and tuples."""
    if isinstance(a, SequenceVar) and operator.plain == "+":
        return concatenated(tx, operator, a, b)
    if isinstance(a, SequenceVar) and operator.plain == "*":
        return repeated(tx, operator, a, b)
    if isinstance(b, SequenceVar) and operator.plain == "*":
        return repeated(tx, OPERATORS["*"], b, a)
    return None


def concatenated(tx, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
    """`a + b`, `a += b`."""
    if operator.in_place and isinstance(a, ListVar):
        a.method_extend(tx, b)
        return a
    if a.cls is tuple and type(b) is TupleVar and b.cls is tuple and not b.items:
        return a  # CPython makes no copy
    if not isinstance(b, SequenceVar):
        return None
    if isinstance(a, ListVar) != isinstance(b, ListVar):
        first, second = a.cls.__name__, b.cls.__name__
        tx.raise_(TypeError, f'can only concatenate {first} (not "{second}") to {first}')
    items = [*a.iterate(tx), *b.iterate(tx)]
    is_shape = torch.Size in (a.cls, b.cls)  # `(2,) + x.shape` is one, too
    if is_shape and not all(issubclass(item.python_type(), int) for item in items):
        raise Break("operator", f"{operator.plain} of a torch.Size and what holds other than ints")
    return sequence_of(torch.Size if is_shape else a.cls, items)


def repeated(tx, operator: Operator, a: SequenceVar, b: Variable) -> Variable | None:
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
def _compare_sequences(tx, symbol, a, b):
    if not isinstance(a, SequenceVar) or not isinstance(b, SequenceVar):
        return None
    first, second = kind_of_sequence(a), kind_of_sequence(b)
    equality = symbol in ("==", "!=")
    if first is not second and equality:
        return ConstantVar(symbol == "!=")
    if first is not second:
        not_supported(tx, symbol, a, b)
    if a.cls is list and equality and len(a.items) != len(b.items):
        return ConstantVar(symbol == "!=")
    n = 0
    while n < min(len(a.items), len(b.items)):  # comparing items may change the lists
        left, right = a.item(tx, n), b.item(tx, n)
        if not tx.same_or_equal(left, right):
            if n >= min(len(a.items), len(b.items)):
                break
            return ConstantVar(symbol == "!=") if equality else tx.compare(symbol, left, right)
        n += 1
    return tx.fold(COMPARISONS[symbol], len(a.items), len(b.items))


def kind_of_sequence(sequence: SequenceVar) -> type:
    """A list is compared with its like, a tuple with any other."""
    return sequence.cls if isinstance(sequence, ListVar) else tuple


def not_supported(tx, symbol: str, a: Variable, b: Variable) -> NoReturn:
    first, second = a.python_type().__name__, b.python_type().__name__
    tx.raise_(TypeError, f"'{symbol}' not supported between instances of '{first}' and '{second}'")


# ---- sets and the views of dictionaries
@in_place(SetVar)
def _update_set(tx, operator, a, b):
    if a.cls is not set or not isinstance(b, SetVar) or operator.plain not in UPDATING:
        return None
    a.call_method(tx, UPDATING[operator.plain], [b], {})
    return a


@left_operand(SetVar, DictViewVar)
def _sets(tx, operator, a, b):
    if operator.plain not in METHODS or not isinstance(b, (SetVar, DictViewVar)):
        return None
    if isinstance(a, SetVar) and isinstance(b, SetVar):
        return a.call_method(tx, METHODS[operator.plain], [b], {})
    raise Break("operator", f"{operator.plain} of a view of a dictionary")


@comparison(SetVar, DictViewVar)
def _compare_sets(tx, symbol, a, b):
    if not isinstance(a, (SetVar, DictViewVar)) or not isinstance(b, (SetVar, DictViewVar)):
        return None
    return tx.fold(COMPARISONS[symbol], keys_of(tx, a), keys_of(tx, b))


def keys_of(tx, variable: Variable) -> set:
    """The elements by what stands for them in a dictionary."""
    if isinstance(variable, SetVar):
        return set(variable.items)
    return {value.hash_key(tx) for value in variable.iterate(tx)}


# ---- dictionaries
@in_place(DictVar)
def _update_dict(tx, operator, a, b):
    if operator.plain != "|":
        return None
    a.method_update(tx, b)
    return a


@left_operand(DictVar)
def _dicts(tx, operator, a, b):
    if operator.plain != "|" or not isinstance(b, DictVar):
        return None
    result = a.method_copy(tx)
    if a.cls is dict:  # a subclass's __ror__ comes first
        result.cls, result.factory = b.cls, b.factory
    result.method_update(tx, b)
    return result


@comparison(DictVar)
def _compare_dicts(tx, symbol, a, b):
    if symbol not in ("==", "!=") or not isinstance(a, DictVar) or not isinstance(b, DictVar):
        return None
    same = have_equal_items(tx, a, b)
    if same and a.cls is b.cls is collections.OrderedDict:
        same = [k.hash_key(tx) for k, _ in a.pairs(tx)] == [k.hash_key(tx) for k, _ in b.pairs(tx)]
    return ConstantVar(same == (symbol == "=="))


def have_equal_items(tx, a: DictVar, b: DictVar) -> bool:
    left = a.pairs(tx)
    if len(left) != len(b.pairs(tx)):
        return False
    for key, value in left:
        other = b.get(tx, key)
        if other is None or other is not value and not tx.equal(value, other):
            return False
    return True


# ---- classes: int | None
@left_operand(ClassVar)
@right_operand(ClassVar)
def _classes(tx, operator, a, b):
    first, second = a.identity(), b.identity()
    if isinstance(a, ObjectVar) or isinstance(b, ObjectVar):
        return None
    if isinstance(first, Variable) or isinstance(second, Variable):
        return None
    for operand in (a, b):
        if isinstance(operand, ClassVar):
            operand.refuse_own_operator(*(f"__{kind}{operator.name}__" for kind in ("", "r", "i")))
    return tx.fold_pinned(operator.function, first, second)


@unary_operand(ClassVar)
def _class_alone(tx, symbol, a):
    a.refuse_own_operator(f"__{UNARY[symbol].__name__}__")


@comparison(ClassVar)
def _compare_classes(tx, symbol, a, b):
    for operand in (a, b):
        if isinstance(operand, ClassVar):
            operand.refuse_own_operator(*(f"__{f.__name__}__" for f in COMPARISONS.values()))


# ---- objects of Python classes: their special methods
@left_operand(ObjectVar)
def _object_left(tx, operator, a, b):
    reverse = f"__r{operator.name}__"
    if overrides(b, a, reverse):
        result = answer(tx, b, reverse, a)
        if result is not None:
            return result
    return answer(tx, a, f"__{operator.name}__", b)


@right_operand(ObjectVar)
def _object_right(tx, operator, a, b):
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
def _object_in_place(tx, operator, a, b):
    return answer(tx, a, f"__i{operator.name}__", b)


def answer(tx, asked: ObjectVar, name: str, other: Variable) -> Variable | None:
    """What a special method answers; None if there is none, or it answers NotImplemented."""
    method = method_of(tx, asked, name)
    if method is None:
        return None
    result = method.call(tx, [other], {})
    return None if result.identity() is NotImplemented else result


def method_of(tx, asked: ObjectVar, name: str) -> Variable | None:
    """An operator's method.  Python calls one that is None, too, and says that it cannot."""
    if lookup(asked.cls, name)[1] is None:
        raise Break("operator", f"{name} of {asked}, which is None")
    return asked.special(tx, name)


@unary_operand(ObjectVar)
def _unary_object(tx, symbol, a):
    method = method_of(tx, a, f"__{UNARY[symbol].__name__}__")
    if method is None:
        tx.raise_(TypeError, f"bad operand type for unary {symbol}: '{a.cls.__name__}'")
    return method.call(tx, [], {})


@comparison(ObjectVar)
def _compare_objects(tx, symbol, a, b):
    """CPython's do_richcompare."""
    questions = [(symbol, a, b), (SWAPPED[symbol], b, a)]
    if is_of_subclass(b, a):
        questions.reverse()
    for question, asked, other in questions:
        result = compared(tx, question, asked, other)
        if result is not None:
            return result
    leave_to_c(a, b, symbol)
    if symbol in ("==", "!="):
        return ConstantVar(tx.same(a, b) == (symbol == "=="))
    not_supported(tx, symbol, a, b)


def compared(tx, symbol: str, asked: Variable, other: Variable) -> Variable | None:
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
    if not asked.immutable():
        raise Break("compare", f"{asked} is compared by C code")
    result = tx.run_now(method, asked.real(), other.real())
    return None if result is NotImplemented else tx.output.wrap_result(result)


def by_contents(tx, symbol: str, asked: Variable, other: Variable) -> Variable | None:
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
    payload = getattr(variable, "payload", None)
    return variable if payload is None else payload

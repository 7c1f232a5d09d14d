"""Operators of objects of Python classes: their special methods.

    Point(1, 2) + Point(3, 4)        version < Version("2.0")        -vector

In, out: as in `symbolic_eval.operators`, whose registries these handlers join.
"""

import types

from ..exceptions import Break
from ..symbolic_eval.operators import (
    COMPARISONS,
    SWAPPED,
    UNARY,
    compare,
    comparison,
    in_place,
    is_of_subclass,
    kind_of_sequence,
    leave_to_c,
    left_operand,
    not_supported,
    right_operand,
    unary_operand,
)
from ..variables.base import Variable
from ..variables.constant import ConstantVar
from ..variables.containers import Container, SequenceVar
from ..variables.lookup import lookup, type_text
from ..variables.objects import ObjectVar


@left_operand(ObjectVar)
def _object_left(tx, operator, a, b):
    return answer(tx, a, f"__{operator.name}__", b)


@right_operand(ObjectVar)
def _object_right(tx, operator, a, b):
    return answer(tx, b, f"__r{operator.name}__", a)


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
        tx.raise_(TypeError, f"bad operand type for unary {symbol}: '{type_text(a.cls)}'")
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
    if not isinstance(method, types.WrapperDescriptorType) or method.__objclass__ is object:
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
    return compare(tx, symbol, first, second)


def contents(variable: Variable) -> Variable:
    """What a list, dict or set subclass's object holds; else the variable itself."""
    payload = getattr(variable, "payload", None)
    return variable if payload is None else payload

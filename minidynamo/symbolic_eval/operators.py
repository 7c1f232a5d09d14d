"""Python's operators: who is asked, in which order, and what numbers and tensors answer.

In:   the symbol and the operands, as variables.  Out: a variable; the program's TypeError; a break.

    >>> binary(tx, "+", tensor, ConstantVar(1))      # a node of the graph

It goes as in CPython's abstract.c.  `a + b` asks `a` (`left_operand`), then `b` (`right_operand`);
`a += b` asks `a` first whether it can be changed (`in_place`).  A comparison asks `a`, then `b`
(`comparison`); `-a` asks `a` (`unary_operand`).  Who does not know how returns None.  Objects,
sequences, sets, dictionaries and classes answer in minidynamo/rules/operators.py, which also knows
what Python says where nobody knows how (`last_operand`, `last_comparison`).
Mirrors torch/_dynamo/variables/builtin.py.
"""

import operator as host
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import Break
from ..variables.base import Variable
from ..variables.constant import ConstantVar
from ..variables.lookup import BINARY
from ..variables.more.opaque import OpaqueVar, compared_by_identity
from ..variables.objects import ObjectVar
from ..variables.registry import ByClass
from ..variables.symbolic import SymVar, apply, pinned
from ..variables.tensor import TensorVar

if TYPE_CHECKING:
    from .evaluator import Frame


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
# Binary operators: handler(tx, operator, a, b).
left_operand, right_operand, in_place, last_operand = ByClass(), ByClass(), ByClass(), ByClass()
# Comparisons: handler(tx, symbol, a, b); `a` or `b` is of the class
comparison, last_comparison = ByClass(), ByClass()


UNARY: dict[str, Callable] = {"-": host.neg, "+": host.pos, "~": host.invert, "not": host.not_}
unary_operand = ByClass()  # handler(tx, symbol, a)


# ---- who is asked
def binary(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a + b`, `a += b`..."""
    operator = OPERATORS[symbol]
    questions = [(left_operand, a), (right_operand, b), (last_operand, a)]
    if operator.in_place:
        questions.insert(0, (in_place, a))
    for registry, asked in questions:
        result = registry.ask(type(asked), tx, operator, a, b)
        if result is not None:
            return result
    raise Break("operator", f"{operator.plain} of {a} and {b}")


def compare(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable:
    """`a < b`, `a == b`...  (A value that is not traced can be compared where its class leaves that
    to its identity.)"""
    for operand in (a, b):
        if isinstance(operand, OpaqueVar) and not (
            symbol in ("==", "!=") and compared_by_identity(operand)
        ):
            raise operand.broken
    for registry, asked in ((comparison, a), (comparison, b), (last_comparison, a)):
        result = registry.ask(type(asked), tx, symbol, a, b)
        if result is not None:
            return result
    raise Break("compare", f"{a} {symbol} {b}")


def unary(tx: "Frame", symbol: str, a: Variable) -> Variable:
    """`-a`, `not a`..."""
    if symbol == "not":
        return ConstantVar(not a.truth(tx))
    result = unary_operand.ask(type(a), tx, symbol, a)
    if result is None:
        return tx.fold(UNARY[symbol], a.as_constant())
    return result


# ---- constants: computed now
@left_operand(ConstantVar)
def _constants(tx: "Frame", operator: Operator, a: ConstantVar, b: Variable) -> Variable | None:
    if type(b) is not ConstantVar:
        return None
    return tx.fold(operator.function, a.value, b.value)


@comparison(ConstantVar)
def _compare_constants(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    if type(a) is not ConstantVar or type(b) is not ConstantVar:
        return None
    return tx.fold(COMPARISONS[symbol], a.value, b.value)


# ---- symbols (sizes and numbers that differ from call to call), and tensors: nodes of the graph
@left_operand(SymVar)
@right_operand(SymVar)
def _symbols(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
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
def _tensor_left(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable:
    return tx.node(operator.function, [a, b])


@right_operand(TensorVar)
def _tensor_right(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
    return None if isinstance(a, ObjectVar) else tx.node(operator.function, [a, b])


@comparison(TensorVar)
def _compare_tensors(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    other = b if isinstance(a, TensorVar) else a
    if not isinstance(other, (TensorVar, ConstantVar)) and type(other) is not SymVar:
        return None  # its own handler knows better
    if symbol in ("==", "!=") and other.identity() is None:
        return ConstantVar(symbol == "!=")  # `tensor == None` is False
    return tx.node(COMPARISONS[symbol], [a, b])


@comparison(SymVar)
def _compare_symbols(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    return apply(tx, COMPARISONS[symbol], a, b)


@unary_operand(SymVar)
def _unary_symbol(tx: "Frame", symbol: str, a: SymVar) -> Variable:
    result = apply(tx, UNARY[symbol], a)
    return unary(tx, symbol, a.constant()) if result is None else result


@unary_operand(TensorVar)
def _unary_tensor(tx: "Frame", symbol: str, a: Variable) -> Variable:
    return tx.node(UNARY[symbol], [a])

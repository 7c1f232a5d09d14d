"""Python's operators: who is asked, in which order, and what numbers and tensors answer.

In:   the symbol and the operands, as variables.  Out: a variable; the program's TypeError; a break.

    >>> binary(tx, "+", tensor, ConstantVar(1))      # a node of the graph

It goes as in CPython's abstract.c.  `a + b` asks `a` (`left_operand`), then `b` (`right_operand`);
`a += b` asks `a` first whether it can be changed (`in_place`).  A comparison asks `a`, then `b`
(`comparison`).  Who does not know how returns None.  Objects, sequences, sets, dictionaries and
classes answer in minidynamo/rules/operators.py, as do symbols and tensors beside such operands; it
also knows what Python says where nobody knows how (`last_operand`, `last_comparison`).
Mirrors torch/_dynamo/variables/builtin.py.
"""

import operator as host
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..exceptions import Break
from ..variables.base import Variable
from ..variables.constant import ConstantVar
from ..variables.symbolic import SymVar, apply
from ..variables.tensor import TensorVar
from ..variables.registry import ByClass

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
NAMES = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
OPERATORS: dict[str, Operator] = {}
for _plain, _name in zip(SYMBOLS, NAMES):
    _function, _updating = getattr(host, f"__{_name}__"), getattr(host, f"__i{_name}__")
    OPERATORS[_plain] = Operator(_plain, _plain, _name, _function, False)
    OPERATORS[_plain + "="] = Operator(_plain + "=", _plain, _name, _updating, True)
COMPARISONS: dict[str, Callable] = {"<": host.lt, "<=": host.le, "==": host.eq}
COMPARISONS |= {"!=": host.ne, ">": host.gt, ">=": host.ge}
# Binary operators: handler(tx, operator, a, b).  (last_...: empty without rules/operators.py)
left_operand, right_operand, in_place, last_operand = ByClass(), ByClass(), ByClass(), ByClass()
# Comparisons: handler(tx, symbol, a, b); `a` or `b` is of the class
comparison, last_comparison = ByClass(), ByClass()


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
    """`a < b`, `a == b`..."""
    for registry, asked in ((comparison, a), (comparison, b), (last_comparison, a)):
        result = registry.ask(type(asked), tx, symbol, a, b)
        if result is not None:
            return result
    raise Break("compare", f"{a} {symbol} {b}")


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


# ---- symbols: sizes and numbers that differ from call to call
@left_operand(SymVar)
@right_operand(SymVar)
def _symbols(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
    """Symbolic where torch can compute so."""
    return apply(tx, operator.function, a, b)


@comparison(SymVar)
def _compare_symbols(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    return apply(tx, COMPARISONS[symbol], a, b)


# ---- tensors: nodes of the graph
@left_operand(TensorVar)
@right_operand(TensorVar)
def _tensors(tx: "Frame", operator: Operator, a: Variable, b: Variable) -> Variable | None:
    return tx.node(operator.function, [a, b])


@comparison(TensorVar)
def _compare_tensors(tx: "Frame", symbol: str, a: Variable, b: Variable) -> Variable | None:
    return tx.node(COMPARISONS[symbol], [a, b])

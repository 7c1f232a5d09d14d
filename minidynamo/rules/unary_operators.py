"""`-a`, `+a`, `~a`, `not a`.

In:   the symbol and the operand.   Out: a variable; the program's TypeError; a break.

    >>> unary(tx, "-", tensor)              # a node of the graph

The operand's class is asked, as in `symbolic_eval.operators`; objects answer in operators.py.
"""

import operator as host
from collections.abc import Callable

from ..extras.extending import extends
from ..symbolic_eval.opcodes import pushes
from ..symbolic_eval.operations import Operations
from ..variables.registry import ByClass
from ..variables.base import Frame, Variable
from ..variables.constant import ConstantVar
from ..variables.symbolic import SymVar, apply
from ..variables.tensor import TensorVar

UNARY: dict[str, Callable] = {"-": host.neg, "+": host.pos, "~": host.invert, "not": host.not_}

unary_operand = ByClass()  # handler(tx, symbol, a)


def unary(tx: "Frame", symbol: str, a: Variable) -> Variable:
    """`-a`, `not a`..."""
    if symbol == "not":
        return ConstantVar(not a.truth(tx))
    result = unary_operand.ask(type(a), tx, symbol, a)
    if result is None:
        return tx.fold(UNARY[symbol], a.as_constant())
    return result


@unary_operand(SymVar)
def _unary_symbol(tx, symbol, a):
    result = apply(tx, UNARY[symbol], a)
    return unary(tx, symbol, a.constant()) if result is None else result


@unary_operand(TensorVar)
def _unary_tensor(tx, symbol, a):
    return tx.node(UNARY[symbol], [a])


@extends(Operations)
class UnaryOperators(Operations):
    unary = unary


pushes({"UNARY_OP": lambda frame, symbol: frame.unary(symbol, frame.stack.pop())})

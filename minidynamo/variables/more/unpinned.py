"""Symbolic numbers that are asked for more than arithmetic: `n.bit_length()`, `table[n]`, `f"{n}"`.

In:   an operation that `SymVar` does not know.
Out:  what the constant answers that the number is in this run, which is guarded.

    >>> SymVar(x.shape[0]).getattr(tx, "bit_length")        # guard: x.shape[0] == 5
"""

from collections.abc import Callable
from typing import Any

from ...extras.extending import extends
from ..base import Frame, Variable
from ..constant import ConstantVar
from ..symbolic import SymVar


def pinned(variable: Variable) -> Variable:
    """The number of this run, guarded, for a symbol; else the variable itself."""
    return ConstantVar(variable.as_constant()) if type(variable) is SymVar else variable


def of_constant(name: str) -> Callable:
    return lambda self, *args: getattr(self.constant(), name)(*args)


@extends(SymVar)
class Unpinned(Variable):
    """A value made of symbolic numbers.  What a subclass does not know is asked of the constant
    that the value is in this run, and that is guarded."""

    def constant(self) -> ConstantVar:
        return ConstantVar(self.as_constant())

    def hash_key(self, tx: Frame) -> Any:
        return self.constant().hash_key(tx)

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__class__":
            return tx.output.wrap_pinned(self.python_type())
        return self.constant().getattr(tx, name)


for _name in ("call_method", "iterate", "length", "getitem", "call"):
    for _class in (Unpinned, SymVar):
        extends(_class, _name)(of_constant(_name))

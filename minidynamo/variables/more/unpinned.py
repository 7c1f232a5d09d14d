"""Symbolic numbers that are asked for more than arithmetic: `n.bit_length()`, `table[n]`, `f"{n}"`.

In:   an operation that `Unpinned` does not know.
Out:  what the constant answers that the number is in this run, which is guarded.

    >>> SymVar(x.shape[0]).getattr(tx, "bit_length")        # guard: x.shape[0] == 5
"""

from collections.abc import Callable
from typing import Any

from ...extras.extending import extends
from ..base import Frame, Variable
from ..symbolic import SymVar, Unpinned


def pinned(variable: Variable) -> Variable:
    """The number of this run, guarded, for a symbol; else the variable itself."""
    return variable.constant() if type(variable) is SymVar else variable


def of_constant(name: str) -> Callable:
    return lambda self, *args: getattr(self.constant(), name)(*args)


@extends(Unpinned)
class AsConstant(Unpinned):
    def hash_key(self, tx: Frame) -> Any:
        return self.as_constant()

    def getattr(self, tx: Frame, name: str) -> Variable:
        if name == "__class__":
            return tx.output.wrap_pinned(self.python_type())
        return self.constant().getattr(tx, name)


for _name in ("call_method", "iterate", "length", "getitem", "call"):
    extends(Unpinned, _name)(of_constant(_name))

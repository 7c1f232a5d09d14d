"""Symbolic numbers: sizes and ints that differ from call to call.

In:   `x.shape[0]` of a tensor with symbolic sizes, an int argument that changed.
Out:  arithmetic on them makes other symbolic numbers; a comparison that the program branches on is
      a guard; where Python itself needs the number (range, a list's length, text) it is pinned:
      `as_constant` answers with the number of this run and guards it.

    >>> tx.binary("+", SymVar(x.shape[0]), ConstantVar(1))      # SymVar, no guard
    >>> SymVar(x.shape[0] > 3).truth(tx)                        # True; guard: x.shape[0] >= 4

`reconstruct` computes the value again from the inputs' sizes: the program gets plain ints.
Mirrors torch/_dynamo/variables/tensor.py (SymNodeVariable).
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import sympy
import torch

from ..exceptions import Break
from ..foreign import ours
from ..symbolic_shapes import DataDependentDecision
from .base import Variable
from .constant import ConstantVar

if TYPE_CHECKING:
    from ..reconstruct import Codegen
    from ..sources import Source
    from ..symbolic_eval.evaluator import Frame

PLAIN = re.compile(r"[<>^=]?[ +-]?#?\d*[,_]?d?")  # specifications that format every int
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
NOT_FINITE = (
    sympy.nan,
    sympy.oo,
    -sympy.oo,
    sympy.zoo,
)  # sympy's rules for them are not those of floats
CALLS = {  # builtins and math functions that stay symbolic
    math.floor: math.floor,
    math.ceil: math.ceil,
    math.trunc: math.trunc,
    abs: operator.abs,
    round: round,
    float: torch.sym_float,
    int: lambda n: torch.SymInt(n.node.sym_int()),
    min: torch.sym_min,
    max: torch.sym_max,
    math.prod: None,
    math.isqrt: None,
}


class Unpinned(Variable):
    """A value made of symbolic numbers; whoever looks at it in another way than passing it on gets
    the constant, which pins them."""

    __slots__ = ()

    def constant(self) -> ConstantVar:
        return ConstantVar(self.as_constant())

    def truth(self, tx: Frame) -> bool:
        return bool(self.as_constant())

    def hash_key(self, tx: Frame) -> Any:
        return self.as_constant()

    def getattr(self, tx: Frame, name: str) -> Variable:
        return (
            tx.output.wrap_pinned(self.python_type())
            if name == "__class__"
            else self.constant().getattr(tx, name)
        )


def _of_constant(name: str) -> Callable:
    return lambda self, *args: getattr(self.constant(), name)(*args)


for _name in ("call_method", "iterate", "length", "getitem", "call"):
    setattr(Unpinned, _name, _of_constant(_name))


class SymVar(Unpinned):
    """`value`: a torch.SymInt, SymFloat or SymBool; `node`: its placeholder, of a symbol that is an
    input of the graph."""

    __slots__ = ("value", "node")

    def __init__(self, value: Any, source: Source | None = None, node: Any = None) -> None:
        self.source, self.mutated, self.value, self.node = source, False, value, node

    @property
    def fake(self) -> Any:
        return self.value

    def python_type(self) -> type:
        return self.value.node.pytype

    def as_constant(self) -> Any:
        node = self.value.node
        return node.guard_bool() if node.pytype is bool else node.guard_int()

    def truth(self, tx: Frame) -> bool:
        return bool(self.value) if self.python_type() is bool else bool(self.value != 0)

    def reconstruct(self, cg: Codegen) -> None:
        cg.symbolic(self.value.node.expr)

    def __repr__(self) -> str:
        return f"symbolic {self.value}"


class TextVar(Unpinned):
    """An f-string: `parts` are texts and (SymVar, format specification), and it is put together
    when the program runs."""

    __slots__ = ("parts",)
    parts: list
    cls = str

    def as_constant(self) -> Any:
        return "".join(
            part if type(part) is str else format(part[0].as_constant(), part[1])
            for part in self.parts
        )

    def identity(self) -> Any:
        return self.as_constant()

    def argument(self, part: Any) -> Any:
        return self.as_constant()

    def reconstruct(self, cg: Codegen) -> None:
        texts = [
            part.replace("{", "{{").replace("}", "}}") if type(part) is str else f"{{:{part[1]}}}"
            for part in self.parts
        ]
        numbers = [part[0] for part in self.parts if type(part) is not str]
        cg.start_call(lambda: cg.load_const("".join(texts).format))
        for number in numbers:
            number.reconstruct(cg)
        cg.finish_call(len(numbers))


def parts_of(value: Variable, specification: str = "") -> list | None:
    """The parts of a formatted value, or None: nothing is symbolic, or formatting may raise."""
    if type(value) is TextVar and not specification:
        return value.parts
    return (
        [(value, specification)]
        if type(value) is SymVar and value.python_type() is int and PLAIN.fullmatch(specification)
        else None
    )


def wrap_symbolic(value: Any) -> Variable:
    """The variable of a SymInt, SymFloat or SymBool; a constant where it depends on no symbol any
    more."""
    constant = value.node.constant
    return SymVar(value) if constant is None else ConstantVar(constant)


def is_number(variable: Variable) -> bool:
    return (
        type(variable) is SymVar
        or type(variable) is ConstantVar
        and type(variable.value) in (int, float, bool)
    )


def apply(tx: Frame, function: Callable | None, *variables: Any) -> Variable | None:
    """`function` on symbolic and constant numbers: symbolic where torch computes so, else on the
    pinned numbers."""
    if function is not None and all(map(is_number, variables)):
        try:
            value = function(*[variable.value for variable in variables])
            if (
                type(value) in SYMBOLIC
                and not value.node.expr.has(*NOT_FINITE)
                or type(value) in (int, float, bool)
            ):
                return tx.output.wrap_result(value)
        except DataDependentDecision as error:
            raise data_dependent(error) from None
        except ours(Exception):
            pass  # an error of the program (division by zero), or torch has no symbols for it
    return None


def data_dependent(error: Exception) -> Break:
    return Break(
        "data-dependent",
        str(error),
        "the value is only known when the program runs; keep the decision outside the compiled function",
    )

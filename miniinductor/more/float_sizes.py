"""Sizes that are computed in floating point: functions that sympy keeps as they were written.

In:   numbers made of sizes: int(n * 0.3).  Out: `Opaque` functions of them, and a symbol for
      each integer that such a function gives, which the loops of kernels have like any other size.

    >>> i = sympy.Symbol("i", integer=True, nonnegative=True)
    >>> ToFloat(i), ToFloat(2)              # float arithmetic is kept as it was written
    (ToFloat(i), 2.00000000000000)

minidynamo/extras/float_numbers.py makes more of them.  Mirrors torch/utils/_sympy/functions.py.
"""

import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from ..sizes.expressions import INFINITY, as_number
from ..sizes.intervals import RULES, UNKNOWN, Interval
from ..sizes.printing import python_code
from ..sizes.symbols import hidden, shown
from .exact_bounds import is_nonnegative


class Opaque(sympy.Function):
    """A function that is computed on numbers and otherwise kept: floats must round as Python's.

    Subclasses are made by `opaque`."""

    is_real = True
    texts: dict[str, str] = {}  # "python", "c" or "triton" -> how the call is written there
    compute: Callable  # the function on numbers
    in_graph: Callable  # the function on torch's symbolic numbers
    result: type  # of what it gives: int or float

    @classmethod
    def eval(cls, *args: sympy.Expr) -> sympy.Expr | None:
        if not all(a.is_number for a in args):
            return None
        value = cls.compute(*map(as_number, args))
        return sympy.Integer(value) if cls.result is int else sympy.Float(value)


def opaque(
    name: str,
    module: str,
    compute: Callable,
    result: type,
    python: str,
    c: str = "",
    triton: str = "",
    in_graph: Callable | None = None,
    keeps_sign: bool = False,
) -> type[Opaque]:
    """Makes the opaque function `name`.

    module: where a variable of this name holds it.  Compiled graphs are kept on disk, and pickle
    looks for the class there.  keeps_sign: the result is >= 0 where all arguments are."""
    fields: dict[str, Any] = {
        "texts": {"python": python, "c": c, "triton": triton},
        "compute": staticmethod(compute),
        "in_graph": staticmethod(in_graph or compute),
        "result": result,
        "is_integer": True if result is int else None,
        "__module__": module,
    }
    made = type(name, (Opaque,), fields)
    if keeps_sign:
        RULES[made] = keeping_sign
    return made


def keeping_sign(*parts: Interval) -> Interval:
    return (0, INFINITY) if all(low >= 0 for low, _ in parts) else UNKNOWN


ToFloat = opaque(
    "ToFloat",
    __name__,
    compute=float,
    result=float,
    python="float({})",
    c="(double)({})",
    triton="tl.cast({}, tl.float64)",
    in_graph=torch.sym_float,
    keeps_sign=True,
)

# --- integers of floats ---------------------------------------------------------------------------
# a symbol -> the integer that it stands for, such as math.trunc(s0 / 2); its name is a hash of that
MEANING: dict[sympy.Symbol, sympy.Expr] = {}


@hidden.replaced
@functools.lru_cache(10_000)
def with_symbols(expr: sympy.Expr) -> sympy.Expr:
    """The expression with a symbol for each integer that is computed in floating point."""
    if not expr.args:
        return expr
    if isinstance(expr, Opaque) and expr.is_integer and is_nonnegative(expr):
        name = "n_" + hashlib.sha1(python_code(expr).encode()).hexdigest()[:12]
        symbol = sympy.Symbol(name, integer=True, nonnegative=True)
        MEANING[symbol] = expr
        return symbol
    args = [with_symbols(a) for a in expr.args]
    unchanged = all(a is b for a, b in zip(args, expr.args))
    return expr if unchanged else expr.func(*args)


@shown.replaced
def without_symbols(expr: sympy.Expr, known: Sequence[str]) -> sympy.Expr:
    return expr.xreplace(
        {s: MEANING[s] for s in expr.free_symbols if s in MEANING and s.name not in known}
    )

"""Numbers that are computed from sizes in floating point: int(n * 0.3), n ** -0.5.

In:   numbers, or expressions over sizes.
Out:  functions that sympy keeps as they were written, for floats must round as Python's; and one
      symbol for each integer that they give, which the loops of kernels have like any other size.

    >>> i = sympy.Symbol("i", integer=True, nonnegative=True)
    >>> ToFloat(i), ToFloat(2)
    (ToFloat(i), 2.00000000000000)
    >>> hidden(FUNCTIONS["Trunc"](ToFloat(i)))          # the wrapper computes it, in Python
    n_c1c91c021794

minidynamo/symbolic_numbers.py makes them.  Mirrors torch/utils/_sympy/functions.py.
"""

import functools
import hashlib
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from .expressions import INFINITY, as_number
from .intervals import RULES, UNKNOWN, Interval
from .printing import python_code
from .prover import is_nonnegative


class Opaque(sympy.Function):
    """A function that is computed on numbers and otherwise kept."""

    is_real = True
    methods: list[str]  # of minidynamo's SymNode, whose results it stands for
    compute: Callable  # the function on numbers
    in_graph: Callable  # the function on torch's symbolic numbers, which a node of a graph calls
    result: type  # of what it gives: int or float
    texts: dict[str, str]  # "python", "c" or "triton" -> how the call is written there

    @classmethod
    def eval(cls, *args: sympy.Expr) -> sympy.Expr | None:
        if not all(a.is_number for a in args):
            return None
        value = cls.compute(*map(as_number, args))
        return sympy.Integer(value) if cls.result is int else sympy.Float(value)


# name -> (methods of SymNode, what computes it, the type of its result, how Python writes it)
TABLE: dict[str, tuple[str, Callable, type, str]] = {
    "ToFloat": ("sym_float", float, float, "float({})"),
    "FloatAdd": ("add", operator.add, float, "({} + {})"),
    "FloatSub": ("sub", operator.sub, float, "({} - {})"),
    "FloatMul": ("mul", operator.mul, float, "({} * {})"),
    "TrueDiv": ("truediv int_truediv float_truediv", operator.truediv, float, "({} / {})"),
    "FloatPow": ("pow float_pow", operator.pow, float, "({} ** {})"),
    "FloatNeg": ("neg", operator.neg, float, "(-{})"),
    "FloatAbs": ("abs", abs, float, "abs({})"),
    "FloatMin": ("sym_min", min, float, "min({}, {})"),
    "FloatMax": ("sym_max", max, float, "max({}, {})"),
    "Sqrt": ("sym_sqrt", math.sqrt, float, "math.sqrt({})"),
    "Sin": ("sym_sin", math.sin, float, "math.sin({})"),
    "Cos": ("sym_cos", math.cos, float, "math.cos({})"),
    "Floor": ("floor", math.floor, int, "math.floor({})"),
    "Ceil": ("ceil", math.ceil, int, "math.ceil({})"),
    "Trunc": ("trunc sym_int", math.trunc, int, "math.trunc({})"),
    "Round": ("round", round, int, "round({})"),
}
C = {"ToFloat": "(double)({})", "TrueDiv": "((double)({})/(double)({}))"}
C |= {"FloatPow": "__builtin_pow({}, {})", "Sqrt": "__builtin_sqrt({})"}
TRITON = {"ToFloat": "tl.cast({}, tl.float64)", "Sqrt": "tl.sqrt({})"}
TRITON |= {"TrueDiv": "(tl.cast({}, tl.float64)/tl.cast({}, tl.float64))"}
TRITON |= {"FloatPow": "tl.exp2(tl.log2({})*{})"}
for _name in ("FloatAdd", "FloatSub", "FloatMul", "FloatNeg"):
    C[_name] = TRITON[_name] = TABLE[_name][-1].replace("{}", "({})")
# Python's own (math.sqrt) would make a plain number of a symbolic one
IN_GRAPH: dict[str, Callable] = {"ToFloat": torch.sym_float, "Sqrt": torch.sym_sqrt}
IN_GRAPH |= {"FloatMin": torch.sym_min, "FloatMax": torch.sym_max}
IN_GRAPH |= {"Sin": getattr(torch, "_sym_sin"), "Cos": getattr(torch, "_sym_cos")}
# their results are not negative where no argument is
KEEP_SIGN = (
    "ToFloat FloatAdd FloatMul TrueDiv FloatMin FloatMax Floor Ceil Trunc Round Sqrt".split()
)


def keeping_sign(*parts: Interval) -> Interval:
    return (0, INFINITY) if all(low >= 0 for low, _ in parts) else UNKNOWN


def made(name: str, methods: str, compute: Callable, result: type, python: str) -> type[Opaque]:
    fields: dict[str, Any] = {
        "methods": methods.split(),
        "texts": {"python": python, "c": C.get(name, ""), "triton": TRITON.get(name, "")},
        "compute": staticmethod(compute),
        "in_graph": staticmethod(IN_GRAPH.get(name, compute)),
        "result": result,
        "is_integer": True if result is int else None,
        "__module__": __name__,  # pickle finds it here
    }
    return type(name, (Opaque,), fields)


FUNCTIONS = {name: made(name, *row) for name, row in TABLE.items()}
globals().update(FUNCTIONS)
ToFloat = FUNCTIONS["ToFloat"]
RULES |= {FUNCTIONS[name]: keeping_sign for name in KEEP_SIGN}


# --- integers of floats ---------------------------------------------------------------------------
# a symbol -> the integer that it stands for, such as math.trunc(s0 / 2); its name is a hash of that
MEANING: dict[sympy.Symbol, sympy.Expr] = {}


@functools.lru_cache(10_000)
def hidden(expr: sympy.Expr) -> sympy.Expr:
    """The expression with a symbol for each integer that is computed in floating point."""
    if not expr.args:
        return expr
    if isinstance(expr, Opaque) and expr.is_integer and is_nonnegative(expr):
        name = "n_" + hashlib.sha1(python_code(expr).encode()).hexdigest()[:12]
        symbol = sympy.Symbol(name, integer=True, nonnegative=True)
        MEANING[symbol] = expr
        return symbol
    args = [hidden(a) for a in expr.args]
    unchanged = all(a is b for a, b in zip(args, expr.args))
    return expr if unchanged else expr.func(*args)


def shown(expr: sympy.Expr, known: Sequence[str]) -> sympy.Expr:
    """What `hidden` has changed, taken back, but for the symbols of these names: whoever evaluates
    the expression has their values."""
    return expr.xreplace(
        {s: MEANING[s] for s in expr.free_symbols if s in MEANING and s.name not in known}
    )

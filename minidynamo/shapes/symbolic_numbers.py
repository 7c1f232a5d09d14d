"""Numbers that are expressions: what stands behind torch.SymInt, SymFloat and SymBool.

In:   a sympy expression over symbols, its value in this run (the hint; None: it is drawn when the
      graph runs), an environment that decides.
Out:  `SymNode`: torch.SymInt(node) forwards every operator to it, and C++ does the same
      (PythonSymNodeImpl); neither asks for its class.

    >>> n = torch.SymInt(SymNode(env, sympy.Symbol("s0", integer=True, positive=True), int, 5))
    >>> n * 2 + 1, (n * 2 + 1).node.hint            # (2*s0 + 1, 11)
    >>> (n * 4) // 8                    # s0 // 2: FloorDiv and Mod are simplified at construction
    >>> bool(n > 3)                                 # env.decide(s0 > 3)

sympy must not touch integer division and float arithmetic: `FloorDiv` and `Mod` are those of
miniinductor/sizes/expressions.py, functions of floats `FUNCTIONS` there.  Any other operator
computes with the numbers of this run, and pins them.

The environment (`ShapeEnv` in symbolic_shapes.py) gives `simplify`, `decide`, `specialize`, `prove`
and `size_hint`. Mirrors torch/fx/experimental/sym_node.py (paper section 5).  Left out: nested
tensors, and what torch asks of other sym nodes about layouts.
"""

import functools
import math
import operator
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import sympy
import torch

from miniinductor.sizes.expressions import (
    FUNCTIONS,
    FloatPow,
    FloorDiv,
    Mod,
    Sqrt,
    ToFloat,
    TrueDiv,
    python_code,
)
from miniinductor.sizes.symbols import SYMBOLIC

from ..frame import frame_hook

if TYPE_CHECKING:
    from .symbolic_shapes import ShapeEnv

Number = int | float | bool
Text = str  # SymNode has a method of that name

# ---- operators -----------------------------------------------------------------------------------
# method of SymNode -> (what makes the expression, of integers; the same function on numbers; the
# type of its result, of integers)
OPERATORS: dict[str, tuple[Any, Callable, type]] = {
    "add": (sympy.Add, operator.add, int),
    "sub": (operator.sub, operator.sub, int),
    "mul": (sympy.Mul, operator.mul, int),
    "sym_min": (sympy.Min, min, int),
    "sym_max": (sympy.Max, max, int),
    "eq": (sympy.Eq, operator.eq, bool),
    "ne": (sympy.Ne, operator.ne, bool),
    "lt": (sympy.Lt, operator.lt, bool),
    "le": (sympy.Le, operator.le, bool),
    "gt": (sympy.Gt, operator.gt, bool),
    "ge": (sympy.Ge, operator.ge, bool),
    "sym_and": (sympy.And, operator.and_, bool),
    "sym_or": (sympy.Or, operator.or_, bool),
    "floordiv": (FloorDiv, operator.floordiv, int),
    "int_floordiv": (FloorDiv, operator.floordiv, int),
    "mod": (Mod, operator.mod, int),
}
# a sympy class -> the function that computes it in a graph (a difference is a sum there), called
# with its arguments; for a sum or product of several, with two at a time
IN_GRAPH: dict[Any, Callable] = {
    **{expression: compute for expression, compute, _ in OPERATORS.values()},
    **{function: function.compute for function in FUNCTIONS},
    # (Python's own would make a plain number of a symbolic one)
    ToFloat: torch.sym_float,
    Sqrt: torch.sym_sqrt,
    sympy.Pow: operator.pow,
    sympy.Max: torch.sym_max,
    sympy.Min: torch.sym_min,
    sympy.Abs: operator.abs,
}


# method of SymNode -> the opaque function that stands for it
FLOATS = {name: function for function in FUNCTIONS for name in function.methods}
QUOTIENTS = TrueDiv.methods
POWERS = FloatPow.methods
# an int of a float is a number, which is guarded: int(n * 0.3)
WHOLE: dict[str, Callable] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "sym_int": int,
}

# sympy's rules for them are not those of floats.
NOT_FINITE = (sympy.nan, sympy.oo, -sympy.oo, sympy.zoo)
# functions that stay symbolic -> what computes them for such numbers (operators do themselves)
CALLS: dict[Any, Any] = {
    **{function: function for function in (math.floor, math.ceil, math.trunc, abs, round)},
    float: torch.sym_float,
    int: lambda n: torch.SymInt(n.node.sym_int()),
    min: torch.sym_min,
    max: torch.sym_max,
    math.isqrt: None,
    math.sqrt: torch.sym_sqrt,
}


def of_table(name: str) -> Callable[..., "SymNode"]:
    """The method of SymNode for an operator of the table."""
    expression, compute, result = OPERATORS[name]

    def method(self: "SymNode", other: "SymNode") -> "SymNode":
        of_floats = result is int and float in (self.pytype, other.pytype)
        # (that a divisor is positive becomes a guard)
        if of_floats or (expression in (FloorDiv, Mod) and not other.is_positive()):
            return self.opaque(name, compute, other)
        expr = _cached(expression, self.expr, other.expr)
        return self.new(expr, result, computed(compute, self, other))

    return method


def with_floats(name: str) -> Callable[..., "SymNode"]:
    """A method that computes with floats, in no table above."""
    is_whole, compute = name in WHOLE, WHOLE.get(name) or FLOATS[name].compute

    def method(self: "SymNode", *others: "SymNode") -> "SymNode":
        is_itself = is_whole and self.pytype is int
        return self if is_itself else self.opaque(name, compute, *others)

    return method


# ---- the node behind torch.SymInt, SymFloat and SymBool ------------------------------------------
# C++ asks each argument of an op what it is.  The answers are functions of C: in one of Python an
# exception of a signal's handler may arrive, and C++ would take the argument for another type's.
YES, NO = functools.partial(bool, True), functools.partial(bool, False)
ANSWERS = {int: (YES, NO, NO), float: (NO, YES, NO), bool: (NO, NO, YES)}  # int? float? bool?


class SymNode:
    """An expression, its value in this run (`hint`; None: not known before the run), and its type
    (`pytype`): int, float or bool."""

    __slots__ = ("shape_env", "_expr", "pytype", "hint", "is_int", "is_float", "is_bool")

    def __init__(
        self, shape_env: "ShapeEnv", expr: sympy.Expr, pytype: type, hint: Number | None
    ) -> None:
        self.shape_env = shape_env
        self._expr = expr
        self.pytype = pytype
        self.hint = hint
        self.is_int, self.is_float, self.is_bool = ANSWERS[pytype]

    @property
    def expr(self) -> sympy.Expr:
        return self.shape_env.simplify(self._expr)

    def new(self, expr: sympy.Expr, pytype: type, hint: Number | None) -> "SymNode":
        return SymNode(self.shape_env, expr, pytype, hint)

    is_symbolic = staticmethod(YES)
    is_nested_int = staticmethod(NO)
    # (a size that became a number: torch would compute with a float where it expects a SymFloat)
    is_constant = staticmethod(NO)

    def has_hint(self) -> bool:
        return self.hint is not None

    def clone(self) -> "SymNode":
        return self

    pos = clone

    def str(self) -> Text:
        return python_code(self.expr)

    __str__ = __repr__ = _graph_repr = str

    _hint = property(operator.attrgetter("hint"))  # torch reads either

    @property
    def constant(self) -> Number | None:
        """The number, once the expression depends on no symbol."""
        e = self.expr
        if e in (sympy.true, sympy.false):
            return bool(e)
        return self.pytype(e) if e.is_number else None

    def maybe_as_int(self) -> Number | None:
        return self.constant if self.pytype is int else None

    def wrap_int(self, n: int) -> "SymNode":
        return self.new(sympy.Integer(n), int, n)

    def wrap_bool(self, b: bool) -> "SymNode":
        return self.new(sympy.true if b else sympy.false, bool, b)

    # decisions
    def guard_bool(self, *place: Any) -> Any:
        return self.shape_env.decide(self.expr)

    def guard_int(self, *place: Any) -> Any:
        return self.shape_env.specialize(self.expr)

    guard_float = guard_int
    # What torch calls where it would rather not decide; here each is a decision with a guard.
    bool_, int_ = guard_bool, guard_int
    guard_or_true = guard_or_false = guard_size_oblivious = expect_true = guard_bool

    add, sub, mul, sym_min, sym_max, eq, ne, lt, le, gt, ge, *_others = map(of_table, OPERATORS)
    sym_and, sym_or, floordiv, int_floordiv, mod = _others
    floor, ceil, trunc, sym_int = map(with_floats, WHOLE)
    truediv, int_truediv, float_truediv = map(with_floats, QUOTIENTS)
    pow, float_pow = map(with_floats, POWERS)
    sym_sqrt = with_floats("sym_sqrt")

    # ---- operators that the tables do not say
    def opaque(self, name: Text, compute: Callable, *others: "SymNode") -> "SymNode":
        """The result of an operator that sympy must not compute (on floats, for fractions): a call
        of its opaque function; or, where there is none or Python may raise for other numbers, the
        number that it has in this run, with guards on the operands."""
        nodes = (self, *others)
        function = FLOATS.get(name)
        if function is None or not all(map(is_plain, nodes)) or not self.in_domain(name, nodes):
            numbers = [node.guard_int() for node in nodes]
            value = compute(*numbers)
            return self.new(sympy.sympify(value), type(value), value)
        expr = function(*[node.expr for node in nodes])
        return self.new(expr, float, computed(compute, *nodes))

    def in_domain(self, name: Text, nodes: tuple["SymNode", ...]) -> bool:
        """Does Python raise nothing for such operands?  Decisions, which may become guards."""
        first, *_, last = [of_size(node.expr) for node in (*nodes, *nodes)]
        decide, of_floats = self.shape_env.decide, any(map(is_of_floats, nodes))
        if name in QUOTIENTS:
            return decide(sympy.Ne(last, 0))
        if name in POWERS:
            is_small = bool(last.is_number and abs(last) <= 16)
            return is_small and not of_floats and decide(sympy.Gt(first, 0))
        return name != "sym_sqrt" or decide(sympy.Ge(first, 0))

    def sym_float(self) -> "SymNode":
        return self if self.pytype is float else self.opaque("sym_float", float)

    def sym_sum(self, nodes: Iterable["SymNode"]) -> "SymNode":
        return functools.reduce(SymNode.add, nodes, self.wrap_int(0))

    def is_positive(self) -> bool:
        """Asked of a divisor: FloorDiv and Mod are for positive ones."""
        return self.shape_env.decide(sympy.Gt(self.expr, 0))

    def wrap_float(self, x: float) -> "SymNode":
        return self.new(sympy.Float(x), float, x)

    def statically_known_true(self, *place: Any) -> bool:
        return self.shape_env.prove(self.expr) is True

    def neg(self) -> "SymNode":
        if self.pytype is float:
            return self.opaque("neg", operator.neg)
        return self.wrap_int(-1).mul(self)

    def abs(self) -> "SymNode":
        if self.pytype is float:
            return self.opaque("abs", abs)
        return self.new(sympy.Abs(self.expr), int, computed(abs, self))

    def pow_by_natural(self, other: "SymNode") -> "SymNode":
        exponent = other.guard_int()
        return self.new(self.expr**exponent, int, computed(lambda n: n**exponent, self))

    def round(self, digits: int | None = None) -> "SymNode":
        if digits is not None:
            raise NotImplementedError("it is rounded as the number of this run")
        return self if self.pytype is int else self.opaque("round", round)

    def sym_not(self) -> "SymNode":
        return self.new(sympy.Not(self.expr), bool, computed(operator.not_, self))

    def sym_ite(self, yes: "SymNode", no: "SymNode") -> "SymNode":
        return yes if self.guard_bool() else no


# ---- floats --------------------------------------------------------------------------------------
def is_plain(node: SymNode) -> bool:
    """Is the number finite, and not the constant -0.0, whose sign sympy loses?"""
    if node.hint is None:
        return True
    is_negative_zero = node.hint == 0 and math.copysign(1, node.hint) < 0
    return math.isfinite(node.hint) and not (node.expr.is_number and is_negative_zero)


def is_of_floats(node: SymNode) -> bool:
    """Does a float of the program, that changes, stand in it?"""
    return any(not symbol.is_integer for symbol in node.expr.free_symbols)


def of_size(expr: sympy.Expr) -> sympy.Expr:
    """`float(s0)` is positive where s0 is, of which more is known."""
    return expr.args[0] if isinstance(expr, ToFloat) else expr


def computed(compute: Callable, *nodes: SymNode) -> Any:
    """compute(hints), or None where one is not known."""
    hints = [node.hint for node in nodes]
    return None if None in hints else compute(*hints)


# tracing asks the same few questions over and over
_cached = functools.lru_cache(4096)(lambda function, *args: function(*args))


def hint_of(n: Any) -> Any:
    """The number that an int or SymInt has in this run."""
    return n.node.hint if isinstance(n, SYMBOLIC) else n


@functools.lru_cache(1000)
def size_function(text: str, names: tuple[str, ...]) -> Callable:
    """The function of symbols that computes `text`; never compiled itself."""
    function = eval(
        compile(f"lambda {', '.join(names)}: {text}", "<minidynamo sizes>", "eval"), {"math": math}
    )
    frame_hook.set_cache(function.__code__, None)
    return function

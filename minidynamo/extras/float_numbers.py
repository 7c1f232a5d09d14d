"""Floats that are made of sizes, bits of sizes, and rare methods of symbolic numbers.

In:   `SymNode` (symbolic_numbers.py) and the functions of Python that stay symbolic (`CALLS`).
Out:  both, with more in them.

    >>> n = env.create_symbol(7)
    >>> n / 2, math.ceil(n / 2)             # ((s0 / 2), math.ceil((s0 / 2))): no size is pinned

Without this file such an operator computes with the numbers of this run, and guards them.
"""

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import sympy
import torch

from miniinductor.more.float_sizes import Opaque, ToFloat, opaque

from .extending import extends
from ..symbolic_numbers import SymNode, computed

from ..variables.symbolic import CALLS

# method of SymNode -> the opaque function that stands for it where sympy must not compute: on
# floats, for fractions, for bits
OPAQUE: dict[str, type[Opaque]] = {"sym_float": ToFloat}
DOUBLES = ("((double)({})/(double)({}))", "(tl.cast({}, tl.float64)/tl.cast({}, tl.float64))")
ROOTS = ("__builtin_sqrt({})", "tl.sqrt({})")
POWERS = ("__builtin_pow({}, {})", "tl.exp2(tl.log2({})*{})")
PRODUCTS = ("(({})*({}))", "(({})*({}))")
# methods -> (name, what computes it, class of the result, Python's text); where kernels may compute
# it, too, the texts in C and in Triton follow
TABLE: dict[str, tuple] = {
    "add": ("FloatAdd", operator.add, float, "({} + {})", "({} + {})", "({} + {})"),
    "sub": ("FloatSub", operator.sub, float, "({} - {})", "({} - {})", "({} - {})"),
    "mul": ("FloatMul", operator.mul, float, "({} * {})", *PRODUCTS),
    "truediv int_truediv float_truediv": (
        "TrueDiv",
        operator.truediv,
        float,
        "({} / {})",
        *DOUBLES,
    ),
    "pow float_pow": ("FloatPow", operator.pow, float, "({} ** {})", *POWERS),
    "floordiv": ("FloatFloorDiv", operator.floordiv, float, "({} // {})"),
    "mod": ("FloatMod", operator.mod, float, "({} % {})"),
    "sym_min": ("FloatMin", min, float, "min({}, {})"),
    "sym_max": ("FloatMax", max, float, "max({}, {})"),
    "neg": ("FloatNeg", operator.neg, float, "(-{})", "(-({}))", "(-({}))"),
    "abs": ("FloatAbs", abs, float, "abs({})"),
    "floor": ("Floor", math.floor, int, "math.floor({})"),
    "ceil": ("Ceil", math.ceil, int, "math.ceil({})"),
    "trunc": ("Trunc", math.trunc, int, "math.trunc({})"),
    "round": ("Round", round, int, "round({})"),
    "round_to": ("RoundTo", round, float, "round({}, {})"),
    "bitwise_and": ("BitAnd", operator.and_, int, "({} & {})"),
    "bitwise_or": ("BitOr", operator.or_, int, "({} | {})"),
    "bitwise_xor": ("BitXor", operator.xor, int, "({} ^ {})"),
    "sym_sqrt": ("Math_sqrt", math.sqrt, float, "math.sqrt({})", *ROOTS),
}
MATH = "log2 sin cos tan sinh cosh tanh asin acos atan".split()
for _name in MATH:
    TABLE[f"sym_{_name}"] = (f"Math_{_name}", getattr(math, _name), float, f"math.{_name}({{}})")
# those whose result is not negative where no argument is
KEEP_SIGN = """FloatAdd FloatMul TrueDiv FloatFloorDiv FloatMin FloatMax Floor Ceil Trunc Round
    Math_sqrt""".split()
# name -> the function that a node of the graph calls.  It is torch's: Python's own (math.sqrt)
# would make a plain number of a symbolic one.
IN_GRAPH: dict[str, Any] = {"FloatMin": torch.sym_min, "FloatMax": torch.sym_max}
IN_GRAPH["Math_sqrt"] = CALLS[math.sqrt] = torch.sym_sqrt
for _name in MATH:
    IN_GRAPH[f"Math_{_name}"] = CALLS[getattr(math, _name)] = getattr(torch, f"_sym_{_name}")

compute_now = SymNode.opaque
QUOTIENTS = ("truediv", "int_truediv", "float_truediv")
DIVISIONS = ("floordiv", "int_floordiv", "mod")


@extends(SymNode, "opaque")
def kept_opaque(node: Any, name: str, compute: Callable, *others: SymNode) -> SymNode:
    """The result of an operator that sympy must not compute: a call of its opaque function; of a
    division by a negative size: that of the negated sides."""
    if name in DIVISIONS and node.pytype is others[0].pytype is int:
        node.shape_env.decide(sympy.Lt(others[0].expr, 0))
        result = getattr(negative(node), name)(negative(others[0]))
        return negative(result) if name == "mod" else result
    node.check_domain(name, *others)
    if name in QUOTIENTS and divides_by_zero(others[0]):
        return by_zero(node)
    if name not in OPAQUE:
        return compute_now(node, name, compute, *others)
    function, nodes = OPAQUE[name], (node, *others)
    expr = function(*[each.expr for each in nodes])
    return node.new(expr, function.result, computed(compute, *nodes))


# floats that are made of sizes, by name -> the same of integers
OF_SIZES = {"FloatAdd": sympy.Add, "FloatSub": operator.sub, "FloatMul": sympy.Mul}
OF_SIZES |= {"FloatMax": sympy.Max, "FloatMin": sympy.Min, "ToFloat": lambda size: size}


def in_integers(expr: sympy.Expr) -> sympy.Expr:
    """`float(s0) - 1.0` is 0 where `s0 - 1` is, of which more is known."""
    if isinstance(expr, sympy.Float) and expr == int(expr):
        return sympy.Integer(expr)
    function = OF_SIZES.get(type(expr).__name__)
    return function(*map(in_integers, expr.args)) if function is not None else expr


def divides_by_zero(divisor: SymNode) -> bool:
    """`2 / (n - 1)`, as the gradient of a variance has it, means a number for all sizes but one:
    Python, which computes it in the graph, raises there, and torch's C++ gives infinity."""
    expr = divisor.expr
    if expr.is_number or not all(symbol.is_integer for symbol in expr.free_symbols):
        return expr == 0  # (floats of the program's: `check_domain`)
    return not divisor.shape_env.decide(sympy.Ne(in_integers(expr), 0))


def by_zero(node: SymNode) -> SymNode:
    """What C++ gives for it; a quotient of the program's own is computed by Python then."""
    number = node.guard_float()
    value = math.copysign(math.inf, number) if number else math.nan
    return node.new(sympy.sympify(value), float, value)


if not hasattr(SymNode, "check_domain"):  # that of variables/more/floats.py
    extends(SymNode, "check_domain")(lambda node, name, *others: None)
for _methods, _row in TABLE.items():
    _known, *_rest = _row
    _function = opaque(
        _known, __name__, *_rest, in_graph=IN_GRAPH.get(_known), keeps_sign=_known in KEEP_SIGN
    )
    globals()[_known] = _function  # pickle finds it here
    for _name in _methods.split():
        OPAQUE[_name] = _function
        if not hasattr(SymNode, _name):
            _method = functools.partialmethod(SymNode.opaque, _name, _function.compute)
            extends(SymNode, _name)(_method)


# ---- rare methods --------------------------------------------------------------------------------
def absolute(node: SymNode) -> SymNode:
    if node.pytype is float:
        return node.opaque("abs", abs)
    return node.new(sympy.Abs(node.expr), int, computed(abs, node))


def whole(name: str) -> Any:
    """The method `name`, of which an int is the result already: floor(n) is n."""
    compute = OPAQUE[name].compute
    return lambda node: node if node.pytype is int else node.opaque(name, compute)


def rounded(node: SymNode, digits: int | None = None) -> SymNode:
    if node.pytype is int:
        return node
    if digits is None:
        return node.opaque("round", round)
    return node.opaque("round_to", round, node.wrap_int(digits))


def is_integer(node: SymNode) -> SymNode:
    return node.wrap_bool(node.pytype is int or float(node.guard_float()).is_integer())


def shifted_left(node: SymNode, places: SymNode) -> SymNode:
    return node.mul(node.wrap_int(2 ** places.guard_int()))


def shifted_right(node: SymNode, places: SymNode) -> SymNode:
    return node.floordiv(node.wrap_int(2 ** places.guard_int()))


def power(node: SymNode, other: SymNode) -> SymNode:
    exponent = other.guard_int()
    hint = None if node.hint is None else node.hint**exponent
    return node.new(node.expr**exponent, int, hint)


def inverted(node: SymNode) -> SymNode:
    return node.new(sympy.Not(node.expr), bool, computed(operator.not_, node))


def negative(node: SymNode) -> SymNode:
    return node.opaque("neg", operator.neg) if node.pytype is float else node.wrap_int(-1).mul(node)


def is_positive(node: SymNode) -> bool:
    """May the size be a divisor as it is?  One that only the run knows may be 0 there."""
    if node.hint == 0:
        raise ZeroDivisionError("integer division or modulo by zero")
    if node.hint is None and node.shape_env.prove(sympy.Ge(node.expr, 0)):
        return True
    return node.shape_env.decide(sympy.Gt(node.expr, 0))


METHODS: dict[str, Any] = {
    "is_positive": is_positive,
    "neg": negative,
    "wrap_float": lambda node, x: node.new(sympy.Float(x), float, x),
    "statically_known_true": lambda node, file="", line=0: node.shape_env.prove(node.expr) is True,
    "sym_not": inverted,
    "pow_by_natural": power,
    "pos": lambda node: node,
    "abs": absolute,
    "floor": whole("floor"),
    "ceil": whole("ceil"),
    "trunc": whole("trunc"),
    "sym_int": whole("trunc"),
    "round": rounded,
    "is_integer": is_integer,
    "lshift": shifted_left,
    "rshift": shifted_right,
    "sym_ite": lambda node, a, b: a if node.guard_bool() else b,
}
for _name, _method in METHODS.items():
    extends(SymNode, _name)(_method)

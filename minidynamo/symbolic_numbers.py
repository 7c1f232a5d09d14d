"""Numbers that are expressions: what stands behind torch.SymInt, SymFloat and SymBool.

In:   a sympy expression over size symbols, its value in this run (the hint; None: only the run will
      know), an environment that decides.
Out:  `SymNode`: torch.SymInt(node) forwards every operator to it, and C++ does the same
      (PythonSymNodeImpl); neither asks for its class.

    >>> n = torch.SymInt(SymNode(env, sympy.Symbol("s0", integer=True, positive=True), int, 5))
    >>> n * 2 + 1, (n * 2 + 1).node.hint            # (s0 * 2 + 1, 11)
    >>> (n * 4) // 8                    # (s0 // 2): FloorDiv and Mod are simplified at construction
    >>> bool(n > 3)                                 # env.decide(s0 > 3)

sympy must not touch integer division and float arithmetic: `FloorDiv`, `Mod` and the float
functions are those of miniinductor/sizes/expressions.py. The environment (`ShapeEnv` in
symbolic_shapes.py) gives `simplify`, `decide`, `specialize`, `prove` and `size_hint`. Mirrors
torch/fx/experimental/sym_node.py (paper section 5).  Left out: nested tensors.
"""

import functools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import sympy
import torch

from miniinductor.sizes.expressions import FLOAT_FUNCTIONS, FloorDiv, Mod
from miniinductor.sizes.printing import python_code

from .foreign import remembered

if TYPE_CHECKING:
    from .symbolic_shapes import ShapeEnv

Number = int | float | bool
Text = str  # SymNode has a method of that name

SYMBOLIC_MATH = {"sqrt": torch.sym_sqrt} | {
    name: getattr(torch, f"_sym_{name}")
    for name in (  # math's own make a symbolic number a plain one
        "log2",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
    )
    if hasattr(torch, f"_sym_{name}")
}
EXPRESSIONS = {  # a sympy class -> (the function that computes it in a graph, applied two by two?)
    sympy.Gt: (operator.gt, False),
    sympy.Ge: (operator.ge, False),
    sympy.Lt: (operator.lt, False),
    sympy.Le: (operator.le, False),
    sympy.Eq: (operator.eq, False),
    sympy.Ne: (operator.ne, False),
    sympy.Add: (operator.add, True),
    sympy.Mul: (operator.mul, True),
    sympy.Pow: (operator.pow, False),
    FloorDiv: (operator.floordiv, False),
    Mod: (operator.mod, False),
    sympy.Max: (torch.sym_max, True),
    sympy.Min: (torch.sym_min, True),
    sympy.Abs: (operator.abs, False),
    **{function: (function.compute, False) for function in FLOAT_FUNCTIONS.values()},
    FLOAT_FUNCTIONS["ToFloat"]: (torch.sym_float, False),
    FLOAT_FUNCTIONS["FloatMin"]: (torch.sym_min, False),
    FLOAT_FUNCTIONS["FloatMax"]: (torch.sym_max, False),
    **{
        FLOAT_FUNCTIONS[f"Math_{name}"]: (function, False)
        for name, function in SYMBOLIC_MATH.items()
    },
}


# ---- the node behind torch.SymInt, SymFloat and SymBool ------------------------------------------
# What C++ asks of each argument of an op: functions of C.  In one of Python an exception of a
# signal's handler may arrive, and C++ takes it for an argument of another type.
YES, NO = functools.partial(bool, True), functools.partial(bool, False)
ANSWERS = {int: (YES, NO, NO), float: (NO, YES, NO), bool: (NO, NO, YES)}  # int? float? bool?


class SymNode:
    """`expr` with its value in this run (`hint`; None: not known before the run) and `pytype`: int,
    float or bool."""

    __slots__ = ("shape_env", "_expr", "pytype", "hint", "is_int", "is_float", "is_bool")

    if TYPE_CHECKING:  # those that `_install` makes, as far as this file calls them
        add: Callable[["SymNode", "SymNode"], "SymNode"]
        mul: Callable[["SymNode"], "SymNode"]
        eq: Callable[["SymNode"], "SymNode"]
        ne: Callable[["SymNode"], "SymNode"]
        ge: Callable[["SymNode"], "SymNode"]
        sym_and: Callable[["SymNode"], "SymNode"]
        sym_or: Callable[["SymNode"], "SymNode"]
        sym_max: Callable[["SymNode"], "SymNode"]

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

    def nested_int(self) -> None:
        return None

    def nested_int_coeff(self) -> None:
        return None

    def is_constant(self) -> bool:
        return self.constant is not None

    def _value_eq(self, other: "SymNode") -> bool:
        return self.expr == other.expr and self.pytype is other.pytype

    def _value_hash(self) -> int:
        return hash((self.expr, self.pytype))

    def has_hint(self) -> bool:
        return self.hint is not None

    def clone(self) -> "SymNode":
        return self

    def str(self) -> Text:
        return python_code(self.expr)

    __str__ = __repr__ = _graph_repr = str

    @property
    def _hint(self) -> Number | None:
        return self.hint

    def require_hint(self, fallback: Number | None = None) -> Number | None:
        return self.hint if self.hint is not None else fallback

    @property
    def constant(self) -> Number | None:
        """The number, once the expression depends on no symbol."""
        e = self.expr
        if e in (sympy.true, sympy.false):
            return bool(e)
        return self.pytype(e) if e.is_number else None

    @remembered
    def maybe_as_int(self) -> Number | None:
        return self.constant if self.pytype is int else None

    @remembered
    def maybe_as_float(self) -> Number | None:
        return self.constant if self.pytype is float else None

    @remembered
    def maybe_as_bool(self) -> Number | None:
        return self.constant if self.pytype is bool else None

    def wrap_int(self, n: int) -> "SymNode":
        return self.new(sympy.Integer(n), int, n)

    def wrap_float(self, x: float) -> "SymNode":
        return self.new(sympy.Float(x), float, x)

    def wrap_bool(self, b: bool) -> "SymNode":
        return self.new(sympy.true if b else sympy.false, bool, b)

    # decisions
    def guard_bool(self, file: Text = "", line: int = 0) -> Any:
        return self.shape_env.decide(self.expr)

    def guard_int(self, file: Text = "", line: int = 0) -> Any:
        return self.shape_env.specialize(self.expr)

    guard_float = guard_int
    bool_, int_ = guard_bool, guard_int

    def expect_size(self, file: Text = "", line: int = 0) -> bool:
        return True

    def statically_known_true(self, file: Text = "", line: int = 0) -> bool:
        return self.shape_env.prove(self.expr) is True

    def _or(self, default: bool) -> bool:
        """What is known for all sizes; else the truth in this run, guarded; else `default`."""
        known = self.shape_env.prove(self.expr)
        if known is not None:
            return known
        return default if self.size_hint() is None else self.guard_bool()

    def size_hint(self) -> Number | None:
        return self.shape_env.size_hint(self.expr)

    def guard_or_false(self, file: Text = "", line: int = 0) -> Any:
        return self._or(False)

    def guard_or_true(self, file: Text = "", line: int = 0) -> Any:
        return self._or(True)

    def guard_size_oblivious(self, file: Text = "", line: int = 0) -> Any:
        return self._or(False)

    def expect_true(self, file: Text = "", line: int = 0) -> bool:
        return self.guard_bool()

    # unary
    def pos(self) -> "SymNode":
        return self

    def sym_not(self) -> "SymNode":
        return self.new(sympy.Not(self.expr), bool, _computed(operator.not_, self))

    def sym_float(self) -> "SymNode":
        return self if self.pytype is float else self._call("ToFloat")

    def sym_int(self) -> "SymNode":
        return self.trunc()

    def is_integer(self) -> "SymNode":
        if self.pytype is int:
            return self.wrap_bool(True)
        return self.wrap_bool(float(self.guard_float()).is_integer())

    def _call(self, name: Text, *others: "SymNode") -> "SymNode":
        function = FLOAT_FUNCTIONS[name]
        nodes = (self, *others)
        hint = _computed(function.compute, *nodes)
        return self.new(function(*[n.expr for n in nodes]), function.result, hint)

    def neg(self) -> "SymNode":
        if self.pytype is float:
            return self._call("FloatNeg")
        return self.wrap_int(-1).mul(self)

    def abs(self) -> "SymNode":
        if self.pytype is float:
            return self._call("FloatAbs")
        return self.new(sympy.Abs(self.expr), int, _computed(operator.abs, self))

    def floor(self) -> "SymNode":
        return self if self.pytype is int else self._call("Floor")

    def ceil(self) -> "SymNode":
        return self if self.pytype is int else self._call("Ceil")

    def trunc(self) -> "SymNode":
        return self if self.pytype is int else self._call("Trunc")

    def round(self, ndigits: int | None = None) -> "SymNode":
        if self.pytype is int:
            return self
        if ndigits is None:
            return self._call("Round")
        return self._call("RoundTo", self.wrap_int(ndigits))

    def sym_ite(self, a: Any, b: Any) -> Any:
        return a if self.guard_bool() else b

    def sym_sum(self, nodes: Iterable["SymNode"]) -> "SymNode":
        return functools.reduce(SymNode.add, nodes, self.wrap_int(0))

    # int operators whose answer sympy cannot write in general
    def floordiv(self, other: "SymNode") -> "SymNode":
        return self._divide("FloatFloorDiv", FloorDiv, operator.floordiv, other)

    def mod(self, other: "SymNode") -> "SymNode":
        return self._divide("FloatMod", Mod, operator.mod, other)

    int_floordiv = floordiv

    def _divide(
        self, opaque: Text, function: type, compute: Callable[..., Any], other: "SymNode"
    ) -> "SymNode":
        if float in (self.pytype, other.pytype):
            return self._call(opaque, other)
        if other.hint == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        # FloorDiv and Mod are for positive divisors
        if not self.shape_env.decide(sympy.Gt(other.expr, 0)):
            self.shape_env.decide(sympy.Lt(other.expr, 0))
            result = self.neg()._divide(opaque, function, compute, other.neg())
            return result if function is FloorDiv else result.neg()
        expr = _cached(function, self.expr, other.expr)
        return self.new(expr, int, _computed(compute, self, other))

    def pow_by_natural(self, other: "SymNode") -> "SymNode":
        exponent = other.guard_int()
        hint = None if self.hint is None else self.hint**exponent
        return self.new(self.expr**exponent, int, hint)

    def lshift(self, other: "SymNode") -> "SymNode":
        return self.mul(other.wrap_int(2 ** other.guard_int()))

    def rshift(self, other: "SymNode") -> "SymNode":
        return self.floordiv(other.wrap_int(2 ** other.guard_int()))

    # layouts: is a tensor of these sizes and strides contiguous in this order of dimensions?
    def _contiguous_in(
        self, sizes: Sequence["SymNode"], strides: Sequence["SymNode"], order: Sequence[int]
    ) -> "SymNode":
        expected = self.wrap_int(1)
        answer = self.wrap_bool(True)
        for d in order:
            answer = answer.sym_and(sizes[d].eq(self.wrap_int(1)).sym_or(strides[d].eq(expected)))
            expected = expected.mul(sizes[d])
        return answer

    def is_contiguous(self, sizes: Sequence["SymNode"], strides: Sequence["SymNode"]) -> "SymNode":
        return self._contiguous_in(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_non_overlapping_and_dense(
        self, sizes: Sequence["SymNode"], strides: Sequence["SymNode"]
    ) -> "SymNode":
        order = sorted(range(len(sizes)), key=lambda d: (strides[d].hint or 0, sizes[d].hint or 0))
        return self._contiguous_in(sizes, strides, order)

    def is_non_overlapping_and_dense_indicator(
        self, sizes: Sequence["SymNode"], strides: Sequence["SymNode"]
    ) -> "SymNode":
        return self.wrap_int(int(self.is_non_overlapping_and_dense(sizes, strides).guard_bool()))

    def _channels_last_strides(
        self, sizes: Sequence["SymNode"], strides: Sequence["SymNode"], order: Sequence[int]
    ) -> "SymNode":
        low = self.wrap_int(0)
        answer = strides[1].ne(self.wrap_int(0))
        for d in order:
            answer = answer.sym_and(sizes[d].ne(self.wrap_int(0))).sym_and(strides[d].ge(low))
            if d == 0:
                answer = answer.sym_and(low.ne(strides[1]))
            low = strides[d].mul(sizes[d].sym_max(self.wrap_int(1)))
        return answer


def _computed(compute: Callable[..., Any], *nodes: SymNode) -> Any:
    """compute(hints), or None where one is not known."""
    hints = [node.hint for node in nodes]
    return None if None in hints else compute(*hints)


def _layout(name: str, rank: int, order: Sequence[int]) -> None:
    """Give SymNode the questions about channels-last tensors of `rank` dimensions."""

    def contiguous(self: SymNode, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> SymNode:
        if len(sizes) != rank:
            return self.wrap_bool(False)
        return self._contiguous_in(sizes, strides, order)

    def strided(self: SymNode, sizes: Sequence[SymNode], strides: Sequence[SymNode]) -> SymNode:
        if len(sizes) != rank:
            return self.wrap_bool(False)
        return self._channels_last_strides(sizes, strides, order)

    setattr(SymNode, f"is_channels_last_contiguous_{name}", contiguous)
    setattr(SymNode, f"is_channels_last_strides_{name}", strided)


_layout("2d", 4, (1, 3, 2, 0))
_layout("3d", 5, (1, 4, 3, 2, 0))

# tracing asks the same few questions over and over
_cached = functools.lru_cache(4096)(lambda function, *args: function(*args))

# method -> (on numbers, on integer expressions or None, on floats: the opaque function or None,
# result type or None: int or float)
BINARY: dict[str, tuple[Any, Any, str | None, type | None]] = {
    "add": (operator.add, operator.add, "FloatAdd", None),
    "sub": (operator.sub, operator.sub, "FloatSub", None),
    "mul": (operator.mul, operator.mul, "FloatMul", None),
    "sym_min": (min, sympy.Min, "FloatMin", None),
    "sym_max": (max, sympy.Max, "FloatMax", None),
    "truediv": (operator.truediv, None, "TrueDiv", float),
    "int_truediv": (operator.truediv, None, "TrueDiv", float),
    "float_truediv": (operator.truediv, None, "TrueDiv", float),
    "pow": (operator.pow, None, "FloatPow", float),
    "float_pow": (operator.pow, None, "FloatPow", float),
    "bitwise_and": (operator.and_, None, "BitAnd", int),
    "bitwise_or": (operator.or_, None, "BitOr", int),
    "bitwise_xor": (operator.xor, None, "BitXor", int),
    "eq": (operator.eq, sympy.Eq, None, bool),
    "ne": (operator.ne, sympy.Ne, None, bool),
    "lt": (operator.lt, sympy.Lt, None, bool),
    "le": (operator.le, sympy.Le, None, bool),
    "gt": (operator.gt, sympy.Gt, None, bool),
    "ge": (operator.ge, sympy.Ge, None, bool),
    "and_": (operator.and_, sympy.And, None, bool),
    "or_": (operator.or_, sympy.Or, None, bool),
    "sym_and": (operator.and_, sympy.And, None, bool),
    "sym_or": (operator.or_, sympy.Or, None, bool),
}


def _install(
    name: str,
    compute: Callable[..., Any],
    symbolic: Callable[..., Any] | None,
    opaque: str | None,
    result: type | None,
) -> None:
    """Give SymNode one operator of the table."""

    def method(self: SymNode, other: SymNode) -> SymNode:
        if opaque is not None and (symbolic is None or float in (self.pytype, other.pytype)):
            return self._call(opaque, other)
        expr = _cached(symbolic, self.expr, other.expr)
        return self.new(expr, result or int, _computed(compute, self, other))

    setattr(SymNode, name, method)


for _name, _row in BINARY.items():
    _install(_name, *_row)
for _name in ("exp", *SYMBOLIC_MATH):
    setattr(SymNode, f"sym_{_name}", functools.partialmethod(SymNode._call, f"Math_{_name}"))
    setattr(SymNode, _name, functools.partialmethod(SymNode._call, f"Math_{_name}"))


def hint_of(n: Any) -> Any:
    """The number that an int or SymInt has in this run."""
    return n.node.hint if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) else n

"""Numbers that are expressions: what stands behind torch.SymInt, SymFloat and SymBool.

In:   a sympy expression over size symbols, its value in this run (the hint; None: only the run will
      know), an environment that decides.
Out:  `SymNode`: torch.SymInt(node) forwards every operator to it, and C++ does the same
      (PythonSymNodeImpl); neither asks for its class.

    >>> n = torch.SymInt(SymNode(env, sympy.Symbol("s0", integer=True, positive=True), int, 5))
    >>> n * 2 + 1, (n * 2 + 1).node.hint            # (s0 * 2 + 1, 11)
    >>> (n * 4) // 8                                # (s0 // 2): FloorDiv and Mod are simplified at construction
    >>> bool(n > 3)                                 # env.decide(s0 > 3)

sympy must not touch integer division and float arithmetic: `FloorDiv`, `Mod` and the float
functions are those of miniinductor/sizes/expressions.py. The environment (`ShapeEnv` in
symbolic_shapes.py) gives `simplify`, `decide`, `specialize`, `prove` and `size_hint`. Mirrors
torch/fx/experimental/sym_node.py (paper section 5).  Left out: nested tensors.
"""

import functools
import operator

import sympy
import torch

from miniinductor.sizes.expressions import FLOAT_FUNCTIONS, FloorDiv, Mod
from miniinductor.sizes.printing import python_code

from .foreign import remembered

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

    def __init__(self, shape_env, expr, pytype, hint):
        self.shape_env, self._expr, self.pytype, self.hint = shape_env, expr, pytype, hint
        self.is_int, self.is_float, self.is_bool = ANSWERS[pytype]

    @property
    def expr(self):
        return self.shape_env.simplify(self._expr)

    def new(self, expr, pytype, hint):
        return SymNode(self.shape_env, expr, pytype, hint)

    is_symbolic = staticmethod(YES)
    is_nested_int = staticmethod(NO)

    def nested_int(self):
        return None

    def nested_int_coeff(self):
        return None

    def is_constant(self):
        return self.constant is not None

    def _value_eq(self, other):
        return self.expr == other.expr and self.pytype is other.pytype

    def _value_hash(self):
        return hash((self.expr, self.pytype))

    def has_hint(self):
        return self.hint is not None

    def clone(self):
        return self

    def str(self):
        return python_code(self.expr)

    __str__ = __repr__ = _graph_repr = str

    @property
    def _hint(self):
        return self.hint

    def require_hint(self, fallback=None):
        return self.hint if self.hint is not None else fallback

    @property
    def constant(self):
        """The number, once the expression depends on no symbol."""
        e = self.expr
        if e in (sympy.true, sympy.false):
            return bool(e)
        return self.pytype(e) if e.is_number else None

    @remembered
    def maybe_as_int(self):
        return self.constant if self.pytype is int else None

    @remembered
    def maybe_as_float(self):
        return self.constant if self.pytype is float else None

    @remembered
    def maybe_as_bool(self):
        return self.constant if self.pytype is bool else None

    def wrap_int(self, n):
        return self.new(sympy.Integer(n), int, n)

    def wrap_float(self, x):
        return self.new(sympy.Float(x), float, x)

    def wrap_bool(self, b):
        return self.new(sympy.true if b else sympy.false, bool, b)

    # decisions
    def guard_bool(self, file="", line=0):
        return self.shape_env.decide(self.expr)

    def guard_int(self, file="", line=0):
        return self.shape_env.specialize(self.expr)

    guard_float = guard_int
    bool_, int_ = guard_bool, guard_int

    def expect_size(self, file="", line=0):
        return True

    def statically_known_true(self, file="", line=0):
        return self.shape_env.prove(self.expr) is True

    def _or(self, default):
        known = self.shape_env.prove(self.expr)
        return (
            known
            if known is not None
            else default
            if self.size_hint() is None
            else self.guard_bool()
        )

    def size_hint(self):
        return self.shape_env.size_hint(self.expr)

    def guard_or_false(self, file="", line=0):
        return self._or(False)

    def guard_or_true(self, file="", line=0):
        return self._or(True)

    def guard_size_oblivious(self, file="", line=0):
        return self._or(False)

    def expect_true(self, file="", line=0):
        return self.guard_bool()

    # unary
    def pos(self):
        return self

    def sym_not(self):
        return self.new(sympy.Not(self.expr), bool, None if self.hint is None else not self.hint)

    def sym_float(self):
        return self if self.pytype is float else self._call("ToFloat")

    def sym_int(self):
        return self.trunc()

    def is_integer(self):
        return (
            self.wrap_bool(True)
            if self.pytype is int
            else self.wrap_bool(float(self.guard_float()).is_integer())
        )

    def _call(self, name, *others):
        function, nodes = FLOAT_FUNCTIONS[name], (self, *others)
        known = all(n.hint is not None for n in nodes)
        return self.new(
            function(*[n.expr for n in nodes]),
            function.result,
            function.compute(*[n.hint for n in nodes]) if known else None,
        )

    def neg(self):
        return self._call("FloatNeg") if self.pytype is float else self.wrap_int(-1).mul(self)

    def abs(self):
        return (
            self._call("FloatAbs")
            if self.pytype is float
            else self.new(sympy.Abs(self.expr), int, None if self.hint is None else abs(self.hint))
        )

    def floor(self):
        return self if self.pytype is int else self._call("Floor")

    def ceil(self):
        return self if self.pytype is int else self._call("Ceil")

    def trunc(self):
        return self if self.pytype is int else self._call("Trunc")

    def round(self, ndigits=None):
        return (
            self
            if self.pytype is int
            else self._call("Round")
            if ndigits is None
            else self._call("RoundTo", self.wrap_int(ndigits))
        )

    def sym_ite(self, a, b):
        return a if self.guard_bool() else b

    def sym_sum(self, nodes):
        return functools.reduce(SymNode.add, nodes, self.wrap_int(0))

    # int operators whose answer sympy cannot write in general
    def floordiv(self, other):
        return self._divide("FloatFloorDiv", FloorDiv, operator.floordiv, other)

    def mod(self, other):
        return self._divide("FloatMod", Mod, operator.mod, other)

    int_floordiv = floordiv

    def _divide(self, opaque, function, compute, other):
        if float in (self.pytype, other.pytype):
            return self._call(opaque, other)
        if other.hint == 0:
            raise ZeroDivisionError("integer division or modulo by zero")
        if not self.shape_env.decide(
            sympy.Gt(other.expr, 0)
        ):  # FloorDiv and Mod are for positive divisors
            self.shape_env.decide(sympy.Lt(other.expr, 0))
            result = self.neg()._divide(opaque, function, compute, other.neg())
            return result if function is FloorDiv else result.neg()
        known = self.hint is not None and other.hint is not None
        return self.new(
            _cached(function, self.expr, other.expr),
            int,
            compute(self.hint, other.hint) if known else None,
        )

    def pow_by_natural(self, other):
        exponent = other.guard_int()
        return self.new(
            self.expr**exponent, int, None if self.hint is None else self.hint**exponent
        )

    def lshift(self, other):
        return self.mul(other.wrap_int(2 ** other.guard_int()))

    def rshift(self, other):
        return self.floordiv(other.wrap_int(2 ** other.guard_int()))

    # layouts: is a tensor of these sizes and strides contiguous in this order of dimensions?
    def _contiguous_in(self, sizes, strides, order):
        expected, answer = self.wrap_int(1), self.wrap_bool(True)
        for d in order:
            answer = answer.sym_and(sizes[d].eq(self.wrap_int(1)).sym_or(strides[d].eq(expected)))
            expected = expected.mul(sizes[d])
        return answer

    def is_contiguous(self, sizes, strides):
        return self._contiguous_in(sizes, strides, range(len(sizes) - 1, -1, -1))

    def is_non_overlapping_and_dense(self, sizes, strides):
        order = sorted(range(len(sizes)), key=lambda d: (strides[d].hint or 0, sizes[d].hint or 0))
        return self._contiguous_in(sizes, strides, order)

    def is_non_overlapping_and_dense_indicator(self, sizes, strides):
        return self.wrap_int(int(self.is_non_overlapping_and_dense(sizes, strides).guard_bool()))

    def _channels_last_strides(self, sizes, strides, order):
        low, answer = self.wrap_int(0), strides[1].ne(self.wrap_int(0))
        for d in order:
            answer = answer.sym_and(sizes[d].ne(self.wrap_int(0))).sym_and(strides[d].ge(low))
            if d == 0:
                answer = answer.sym_and(low.ne(strides[1]))
            low = strides[d].mul(sizes[d].sym_max(self.wrap_int(1)))
        return answer


def _layout(name, rank, order):
    def contiguous(self, sizes, strides):
        return (
            self._contiguous_in(sizes, strides, order)
            if len(sizes) == rank
            else self.wrap_bool(False)
        )

    def strided(self, sizes, strides):
        return (
            self._channels_last_strides(sizes, strides, order)
            if len(sizes) == rank
            else self.wrap_bool(False)
        )

    setattr(SymNode, f"is_channels_last_contiguous_{name}", contiguous)
    setattr(SymNode, f"is_channels_last_strides_{name}", strided)


_layout("2d", 4, (1, 3, 2, 0))
_layout("3d", 5, (1, 4, 3, 2, 0))

_cached = functools.lru_cache(4096)(
    lambda function, *args: function(*args)
)  # tracing asks the same few questions over and over

# method -> (on numbers, on integer expressions or None, on floats: the opaque function or None,
# result type or None: int or float)
BINARY = {
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


def _install(name, compute, symbolic, opaque, result):
    def method(self, other):
        if opaque is not None and (symbolic is None or float in (self.pytype, other.pytype)):
            return self._call(opaque, other)
        known = self.hint is not None and other.hint is not None
        return self.new(
            _cached(symbolic, self.expr, other.expr),
            result or int,
            compute(self.hint, other.hint) if known else None,
        )

    setattr(SymNode, name, method)


for _name, _row in BINARY.items():
    _install(_name, *_row)
for _name in ("exp", *SYMBOLIC_MATH):
    setattr(SymNode, f"sym_{_name}", functools.partialmethod(SymNode._call, f"Math_{_name}"))
    setattr(SymNode, _name, functools.partialmethod(SymNode._call, f"Math_{_name}"))


def hint_of(n):
    """The number that an int or SymInt has in this run."""
    return n.node.hint if isinstance(n, (torch.SymInt, torch.SymFloat, torch.SymBool)) else n

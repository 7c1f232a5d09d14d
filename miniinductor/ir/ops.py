"""The closed vocabulary of the loop IR: `ops`.

In:   nothing.  Out: `ops`, the namespace that loop bodies call, and `OpsHandler`, the list of all
      ops: one method for each.

A loop body is an ordinary Python function over `ops`.  What an op *does* depends on the handler
that is installed: printing, running with torch, collecting memory accesses, inferring dtypes,
writing C++ or Triton.

    >>> def body(i):
    ...     x = ops.load("x", i)
    ...     return ops.mul(ops.add(x, ops.constant(1, torch.float32)), x)
    >>> with set_handler(PrintHandler()) as printer:      # the same body, seen through one handler
    ...     result = body(sympy.Symbol("i"))
    >>> print(*printer.lines, sep="; ")
    tmp0 = load(x, i); tmp1 = constant(1, float32); tmp2 = add(tmp0, tmp1); tmp3 = mul(tmp2, tmp0)

The set is closed: there is no `__getattr__` fallback.  An op that a handler does not write out goes
to its `default`, which raises where a handler has none; a test checks that each has each op.  The
tables `UNARY`, `BINARY`, ... hold families of ops with one shape of rule, so that a handler may
treat a family in one line.

Mirrors torch/_inductor/virtualized.py and ops_handler.py (paper section 4.1, "define-by-run
loop-level IR"). Left out: bucketize, device_assert_async, partial accumulate.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import sympy
import torch

from ..options import Current
from ..sizes.expressions import Position, Size

Dtype = torch.dtype
Value = Any  # of an op: whatever the installed handler computes with
NARROW = (torch.float16, torch.bfloat16)  # in memory; what is computed with is float32


def compute_dtype(dtype: Dtype) -> Dtype:
    """In which values of this dtype are computed with and added up."""
    return torch.float32 if dtype in NARROW else dtype


# --- families -------------------------------------------------------------------------------------
UNARY_FLOAT = tuple(  # float in, float out
    """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh
    cosh tanh asinh acosh atanh erf erfc lgamma sigmoid""".split()
)
TESTS = ("logical_not", "isnan", "isinf", "signbit")  # a truth value of one operand
UNARY = (*UNARY_FLOAT, *"neg abs sign floor ceil trunc round bitwise_not".split(), *TESTS)
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = tuple(f"bitwise_{name}" for name in "and or xor left_shift right_shift".split())
BINARY = (
    *"add sub mul truediv floordiv truncdiv remainder fmod pow maximum minimum".split(),
    *("atan2", "copysign", "hypot", *BITWISE, *LOGICAL),
)
INTEGER_DIVISIONS = ("floordiv", "truncdiv", "remainder", "fmod")  # which may be by zero
COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")
REDUCTIONS = ("sum", "prod", "max", "min", "argmax", "argmin", "any", "m2", "sumexp")


def op(name: str, to: str = "default") -> Callable[..., Value]:
    """The method of an op that a handler does not write out: it calls the handler's `default`."""

    def method(self: "OpsHandler", *args: Any, **kwargs: Any) -> Value:
        return getattr(self, to)(name, *args, **kwargs)

    return method


def documented(signature: Callable) -> Callable[..., Value]:
    return functools.wraps(signature)(op(signature.__name__))


class OpsHandler:
    """One method per op.  A handler subclasses this, and writes each op out, or `default` for the
    others, or `unary` and `binary` for the families (a test looks).

    Values are whatever the handler returns (a string, a tensor, a CSE variable).  `index` is a
    sympy expression in the loop variables, counted in elements.  Arguments of one arithmetic op
    have one dtype: lowerings insert `to_dtype`; no op promotes.
    """

    def default(self, op: str, *args: Any, **kwargs: Any) -> Value:
        raise NotImplementedError(f"{type(self).__name__} has no {op}")

    def unary(self, op: str, a: Value) -> Value:
        return self.default(op, a)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        return self.default(op, a, b)

    # memory
    @documented
    def load(self, name: str, index: sympy.Expr) -> Value:
        """The element of buffer `name` at linear offset `index`."""

    @documented
    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        """Write `value` there.  mode: None, or how it is combined with the element that is there
        already: 'sum' | 'prod' | 'amax' | 'amin' (NaN wins), as of scatter_reduce."""

    @documented
    def reduction(self, dtype: Dtype, src_dtype: Dtype, kind: str, value: Value) -> Value:
        """Reduce `value` over the reduction variables; kind in REDUCTIONS.  max/min propagate NaN;
        argmax/argmin give the *flattened reduction index* (int64) of the first extreme, a NaN
        counting as the extreme.  Triton kernels alone have m2, the sum of squared deviations from
        the mean (Welford's), and sumexp, the sum of exp(value - maximum)."""

    @documented
    def scan(self, dtype: Dtype, kind: str, value: Value) -> Value:
        """Combine `value` with those of all earlier iterations of the reduction variables; kind:
        'sum' | 'prod' | 'logaddexp'.  Every iteration has a result of its own: cumsum."""

    @documented
    def indirect_indexing(
        self, value: Value, size: Size | None, wrap_neg: bool = True
    ) -> sympy.Expr:
        """A runtime integer value -> a sympy symbol usable in an index; negative ones count from
        the end (wrap_neg), one out of range raises.  size: None where it is in range for sure."""

    # leaves and conversions
    @documented
    def constant(self, value: float, dtype: Dtype) -> Value:
        """A Python scalar as `dtype`."""

    @documented
    def index_expr(self, expr: sympy.Expr, dtype: Dtype) -> Value:
        """The value of a sympy expression in loop variables and sizes, as `dtype`."""

    @documented
    def to_dtype(self, x: Value, dtype: Dtype, src_dtype: Dtype | None = None) -> Value:
        """Convert as `Tensor.to` does."""

    # control
    @documented
    def where(self, condition: Value, a: Value, b: Value) -> Value:
        """condition ? a : b; both sides are evaluated."""

    @documented
    def masked(self, mask: Value, body: Callable[[], Value], other: float) -> Value:
        """body() where mask, else `other` (a Python scalar); memory read in `body` is not touched
        where mask is false."""

    @documented
    def rand(self, seed: Value, offset: Value) -> Value:
        """A random float32 in [0, 1): element `offset` (int64) of the stream of numbers that `seed`
        names."""

    # the families, each op by its name: `exp`, `add`
    vars().update({name: op(name, "unary") for name in UNARY})
    vars().update({name: op(name, "binary") for name in BINARY + COMPARISON})


NO_OPS = ("default", "unary", "binary")
OP_NAMES = tuple(n for n in vars(OpsHandler) if not n.startswith("_") and n not in NO_OPS)


def exact_key(value: Any) -> Any:
    """A hashable key of an op's argument, by which equal ops are found.

    Python says that 1 == True == 1.0 and 0.0 == -0.0, but ops compute other things with them: the
    key has a number's type, and a float's text, by which all NaNs are the same, too."""
    if isinstance(value, (list, tuple)):
        return tuple([exact_key(item) for item in value])
    if isinstance(value, dict):
        return tuple([(key, exact_key(item)) for key, item in value.items()])
    if isinstance(value, (float, complex)):
        return type(value), repr(value)
    return type(value), value


# --- what an op costs ----------------------------------------------------------------------------
EXPENSIVE = {*UNARY_FLOAT, "pow", "atan2"} - {"sqrt", "rsqrt", "reciprocal"}
EXPENSIVE_PRICE = 16  # each of them costs like so many others


def price(name: str) -> int:
    """What an op costs, in simple operations."""
    return EXPENSIVE_PRICE if name in EXPENSIVE else 1


# --- loop variables -------------------------------------------------------------------------------
made_variables: set[sympy.Symbol] = set()  # all that were asked for, by any graph


@functools.cache
def loop_variable(prefix: str, number: int) -> sympy.Symbol:
    variable = sympy.Symbol(f"{prefix}{number}", integer=True, nonnegative=True)
    made_variables.add(variable)
    return variable


def is_loop_variable(symbol: sympy.Symbol) -> bool:
    """Does a loop run over it?  A size is none, whatever its name is."""
    return symbol in made_variables


def loop_variables(prefix: str, count: int) -> list[sympy.Symbol]:
    return [loop_variable(prefix, i) for i in range(count)]


def indirect_symbol(count: Iterator[int]) -> sympy.Symbol:
    """A fresh symbol for a position that is data."""
    return Position(f"indirect{next(count)}", integer=True, nonnegative=True)


# --- the switchable namespace ---------------------------------------------------------------------
_handler = Current()
set_handler = _handler.set  # `with set_handler(handler):` installs it for the block, in this thread


class _Ops(OpsHandler):
    """`ops.add(a, b)` calls the installed handler's `add`."""

    def default(self, op: str, *args: Any, **kwargs: Any) -> Value:
        return getattr(_handler.value, op)(*args, **kwargs)


ops: Any = _Ops()  # Any: the families' methods are made from the tables above

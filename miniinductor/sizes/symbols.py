"""Sizes that are not known when kernels are written: their values in this run, what is true for
all of them, and what follows from the ranges of loop variables.

In:   a `torch.SymInt` of a fake tensor, a sympy expression over such symbols and loop variables, or
      an int; how far each loop variable runs.
Out:  ints where constant, else expressions; simpler expressions that are equal for every index in
      range.

    >>> size(fake.shape[0] * 64)          # a sympy expression, as the loop IR and kernels have them
    64*s0
    >>> with size_hints({s0: 12}):
    ...     hint(64 * s0)                   # for heuristics only, never for what is right
    768
    >>> same(s0 * (s1 + 1), s0 + s0 * s1)   # equal for every size.  False means: not known
    True
    >>> fill({"shape": [fake.shape[0], 4]}, ["s0"])(12)
    {'shape': [12, 4]}
    >>> simplify(FloorDiv(8 * i + j, 8 * s0), {i: s0, j: 8})
    0
    >>> reshape_index((4, 8), (32,))([i])               # x.view(32)[i] is x[i // 8, i % 8]
    [FloorDiv(i, 8), Mod(i, 8)]
    >>> reshape_index((4, 8), (2, 2, 8))([i, 1, j])   # no division: only the first dimension is cut
    [2*i + 1, j]

Whoever captured the graph owns the symbols and what was assumed of them (guards); here nothing is
assumed but that they are integers >= 1 where sympy says `positive`.  Comparing two SymInts of a
fake tensor asks that owner, which may add a guard: `same` and `hint` never do.

Mirrors torch/_inductor/sizevars.py.  Left out: sizes that depend on data.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..options import Current
from .expressions import (
    INFINITY,
    Division,
    FloorDiv,
    Mod,
    Size,
    flatten,
    never_negative,
    python_code,
    settled,
)
from .prover import UNKNOWN, Interval, exact_interval, interval

Ranges = Mapping[sympy.Symbol, Size]  # a variable -> how far it runs
SIMPLIFIED = (FloorDiv, Mod, sympy.Abs, sympy.Max, sympy.Min)


# --- bounds and simpler indices -------------------------------------------------------------------
def joined(expression: sympy.Expr) -> sympy.Expr:
    """Writes c*b*(a // b) + c*(a % b) as c*a.  Two dimensions that lie side by side in memory leave
    such a sum behind when they are merged."""
    if not expression.is_Add or not expression.has(Mod):
        return expression
    for term in expression.args:
        remainder = next((f for f in sympy.Mul.make_args(term) if isinstance(f, Mod)), None)
        if remainder is None:
            continue
        a, b = remainder.args
        c = term / remainder
        quotient = c * b * FloorDiv(a, b)
        if quotient in expression.args:
            return joined(sympy.expand(expression - term - quotient + c * a))
    return expression


def bounds(expression: sympy.Expr, ranges: Ranges) -> tuple[int, int] | None:
    """(lowest, highest) value of an expression whose variables v run over [0, ranges[v]); None
    where unknown."""

    def of_part(part: sympy.Expr) -> Interval:
        if not part.is_Symbol:
            return interval(part, of_part)
        end = size(ranges.get(part))
        return (0, end - 1) if isinstance(end, int) else UNKNOWN

    low, high = of_part(expression)
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None


def simplify(expression: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """An expression equal to `expression` while each variable v stays in [0, ranges[v])."""
    expression = sympy.sympify(expression)
    if not expression.has(*SIMPLIFIED):
        return sympy.expand(expression)
    return joined(sympy.expand(Simplifier(ranges).visit(expression)))


def assumed(expr: sympy.Expr) -> Interval:
    """For all values that the symbols' own assumptions allow: `positive` (sizes), `nonnegative`
    (loop variables)."""
    if not expr.is_Symbol:
        return exact_interval(expr, assumed)
    if expr.is_positive:
        return 1, INFINITY
    return (0, INFINITY) if expr.is_nonnegative else UNKNOWN


def is_nonnegative(expr: sympy.Expr) -> bool:
    """Can it be shown that `expr` is >= 0 for all values of its symbols?"""
    return bool(assumed(expr)[0] >= 0)


def lies_in(expression: sympy.Expr, size: Size, ranges: Ranges) -> bool:
    """Is 0 <= expression < size for all indices in range, for sure?"""
    limits = bounds(expression, ranges)
    if limits is not None and isinstance(size, (int, sympy.Integer)):
        return bool(limits[0] >= 0 and limits[1] < size)
    if not rises(expression):
        return False
    highest = expression.replace(Mod, lambda a, b: b - 1).xreplace(
        {v: sympy.sympify(n) - 1 for v, n in ranges.items()}
    )
    return is_nonnegative(expression) and is_nonnegative(size - 1 - highest)


def rises(expression: sympy.Expr) -> bool:
    """Is it highest where its loop variables and remainders are, for sure?  7 - i % 3 is not."""
    plain = expression.replace(Mod, lambda a, b: sympy.Dummy(integer=True, nonnegative=True))
    terms = sympy.Add.make_args(plain)
    moving = [t for t in terms if not all(s.is_positive for s in t.free_symbols)]  # not of sizes
    is_plain = not expression.has(sympy.Abs, sympy.Max, sympy.Min)
    return is_plain and all(map(never_negative, moving))


class Simplifier:
    """Rewrites an expression from its leaves up: each quotient, remainder, maximum, ... takes a
    simpler form where the ranges of the loop variables allow one."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def visit(self, given: sympy.Expr) -> sympy.Expr:
        if not given.args or not given.has(*SIMPLIFIED):
            return given
        e = given.func(*[self.visit(a) for a in given.args])
        if isinstance(e, (sympy.Abs, sympy.Max, sympy.Min)):
            return settled(e, self._nonnegative)
        if isinstance(e, Division):
            return self._division(e)
        # building it again has taken the quotient apart, such as (8*i + j // 2) // 4 into
        # 2*i + j // 8: then its parts have new quotients
        return self.visit(e) if isinstance(given, Division) else e

    def _nonnegative(self, expr: sympy.Expr) -> bool:
        limits = bounds(sympy.expand(expr), self.ranges)
        return limits is not None and limits[0] >= 0

    def _division(self, e: sympy.Expr) -> sympy.Expr:
        """A quotient or remainder whose arguments are simple."""
        if not e.args[1].is_Integer:
            return self.symbolic(e)
        numerator = sympy.expand(e.args[0])
        divisor = int(e.args[1])
        limits = bounds(numerator, self.ranges)
        if limits is None:
            return self.symbolic(e.func(numerator, e.args[1]))
        quotient = limits[0] // divisor
        if quotient == limits[1] // divisor:  # one quotient for all indices
            if isinstance(e, FloorDiv):
                return sympy.Integer(quotient)
            return numerator - quotient * divisor
        simpler = self._without_small_terms(e, numerator, divisor)
        return e.func(numerator, e.args[1]) if simpler is None else self.visit(simpler)

    def _without_small_terms(
        self, e: sympy.Expr, numerator: sympy.Expr, divisor: int
    ) -> sympy.Expr | None:
        """(8*i + j) // 24 is i // 3 for 0 <= j < 8; None where no such terms are found.

        For each factor k that some terms share with the divisor (8 here): are the other terms
        together at least 0 and below k?  Then they never change the quotient by k."""
        terms = [
            (math.gcd(int(term.as_coeff_Mul()[0]), divisor), term)
            for term in sympy.Add.make_args(numerator)
        ]
        for k in sorted({factor for factor, _ in terms if 1 < factor < divisor}, reverse=True):
            small = sympy.Add(*[term for factor, term in terms if factor % k])
            limits = bounds(small, self.ranges)
            if limits is None or limits[0] < 0 or limits[1] >= k:
                continue
            inner = sympy.expand((numerator - small) / k)
            rest = sympy.Integer(divisor // k)
            if isinstance(e, FloorDiv):
                return FloorDiv(inner, rest)
            return k * Mod(inner, rest) + small
        return None

    def symbolic(self, e: sympy.Expr) -> sympy.Expr:
        """A division by a symbol, or one whose bounds depend on a symbol: x // s is 0, and x % s is
        x, for 0 <= x < s."""
        numerator, divisor = e.args
        if lies_in(numerator, divisor, self.ranges):
            return sympy.Integer(0) if isinstance(e, FloorDiv) else numerator
        return e


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def size(n: Any) -> Any:
    """A size, stride or other number as the loop IR has it: a Python number where it is constant,
    else a sympy expression."""
    if isinstance(n, SYMBOLIC):
        n = sympy.sympify(n.node.expr)
    if not isinstance(n, sympy.Basic):
        return n
    if n.is_Integer:
        return int(n)
    if n.is_Float:
        return float(n)
    return bool(n) if n in (sympy.true, sympy.false) else n


def sizes(values: Iterable[Any]) -> tuple[Any, ...]:
    """`size` of each."""
    return tuple(map(size, values))


# --- what sizes are in this run -------------------------------------------------------------------
_hints = Current({})  # symbol -> int, for `hint`
size_hints = _hints.set


def hint(n: Any, unknown: int | None = None) -> Any:
    """The number that `n` was in the run in which the graph was captured, or `unknown` where the
    symbols' values are not known."""
    if isinstance(n, int):
        return n
    if isinstance(n, torch.SymInt):
        return n.node.hint if n.node.hint is not None else unknown
    if n.is_Integer:
        return int(n)
    value = n.xreplace(_hints.value)
    return int(value) if value.is_Integer else unknown


def estimate(sizes: Iterable[Any]) -> int:
    """The product of sizes in that run; one that is not known counts as 512, a middling number."""
    return math.prod(hint(n, 512) for n in sizes)


def value_of(node: Any) -> Any:
    """The fake tensor of a node; None where there is none."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def hints_of(graph: fx.Graph) -> dict[sympy.Symbol, sympy.Integer]:
    """symbol -> hint of the size symbols among an FX graph's placeholders."""
    known = [node for node in symbolic_placeholders(graph) if node.hint is not None]
    return {node.expr: sympy.Integer(node.hint) for node in known if node.expr.is_Symbol}


def symbolic_placeholders(graph: fx.Graph) -> list[Any]:
    """What stands behind each `torch.SymInt` among the graph's placeholders."""
    values = [n.meta.get("val") for n in graph.find_nodes(op="placeholder")]
    return [value.node for value in values if isinstance(value, torch.SymInt)]


# --- what holds for all sizes ---------------------------------------------------------------------
def expand(n: Size) -> Size:
    """The same size in a form that equal sizes share."""
    return n if isinstance(n, int) else size(sympy.expand(n))


def same(a: Any, b: Any) -> bool:
    """Are two sizes equal, whatever the symbols are?  False: not, or not known."""
    a, b = size(a), size(b)
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return a == b or sympy.expand(a - b) == 0


def same_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def quotient(a: Size, b: Size) -> Size | None:
    """a / b where b divides a for all sizes, else None."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    dividend = sympy.expand(a)
    divisor = sympy.sympify(b)
    if divisor == 0 or Mod(dividend, divisor) != 0:
        return None
    return size(FloorDiv(dividend, divisor))


def reshape_index(
    old: Sequence[Size], new: Sequence[Size]
) -> Callable[[Sequence[sympy.Expr]], list[sympy.Expr]]:
    """index into shape `new` -> index into shape `old` (same number of elements), with few
    divisions.

    Dimensions are matched in groups of equal product: within a group the index is made flat, then
    cut again.
    """
    old = sizes(old)
    new = sizes(new)
    groups = _groups_of_equal_product(old, new)

    def reindex(index: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        result = [sympy.Integer(0)] * len(old)
        for old_dims, new_dims in groups:
            rest = flatten([index[k] for k in new_dims], [new[k] for k in new_dims])
            inside = [k for k in old_dims if old[k] != 1]
            for k in reversed(inside[1:]):
                result[k] = Mod(rest, old[k])
                rest = FloorDiv(rest, old[k])
            if inside:
                result[inside[0]] = rest
        return result

    return reindex


def _groups_of_equal_product(
    old: Sequence[Size], new: Sequence[Size]
) -> list[tuple[list[int], list[int]]]:
    """Neighbouring dimensions of both shapes that have as many elements: (4, 8, 3) and (32, 3) are
    ([0, 1], [0]) and ([2], [1])."""
    groups = []
    i = j = 0
    while i < len(old) and j < len(new):
        old_dims, new_dims = [i], [j]
        size_old, size_new = old[i], new[j]
        i, j = i + 1, j + 1
        while not same(size_old, size_new) and (i < len(old) or j < len(new)):
            is_behind = i < len(old) and hint(size_old, 1) < hint(size_new, 1)
            if is_behind or j == len(new):
                old_dims.append(i)
                size_old = size_old * old[i]
                i += 1
            else:
                new_dims.append(j)
                size_new = size_new * new[j]
                j += 1
        groups.append((old_dims, new_dims))
    # dimensions of size 1 at the end
    return [*groups, (list(range(i, len(old))), list(range(j, len(new))))]


def is_dense(shape: Iterable[Any], strides: Iterable[Any]) -> bool:
    """Do the elements of such a tensor fill their memory without gaps or overlap?  False where that
    is not known."""
    expected: Size = 1
    dimensions = zip(sizes(strides), sizes(shape))
    # the innermost dimension first
    for stride, n in sorted(dimensions, key=lambda pair: [hint(n, 1 << 40) for n in pair]):
        if n == 1:
            continue
        if not same(stride, expected):
            return False
        expected = expected * n
    return True


def has_own_places(shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Has each element of such a tensor a place of its own, whatever lies between them?  False
    where that is not known."""
    reach = 0
    pairs = list(zip(strides, shape))
    if not all(type(number) is int for pair in pairs for number in pair):
        return False
    for step, n in sorted(pairs):
        if step <= reach and n > 1:
            return False
        reach += (n - 1) * step
    return True


def is_symbolic(value: Any) -> bool:
    """Is this a symbol, or has it one: a (fake) tensor's sizes and strides, what lists hold?"""
    if isinstance(value, torch.Tensor):
        return torch.SymInt in map(type, (*value.shape, *value.stride()))
    is_list = isinstance(value, (tuple, list))
    return isinstance(value, torch.SymInt) or is_list and any(map(is_symbolic, value))


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do two (fake) tensors have the same dtype, device, shape and strides, whatever the symbols
    are?  False: not, or not known."""
    return (
        a.dtype == b.dtype
        and a.device == b.device
        and same_sizes(a.shape, b.shape)
        and same_sizes(a.stride(), b.stride())
    )


def is_contiguous(tensor: torch.Tensor) -> bool:
    """Are its strides those of a contiguous tensor of its sizes, for all sizes?  False: not, or not
    known."""
    expected: list[Any] = [1]
    for n in tensor.shape[:0:-1]:
        expected.append(expected[-1] * n)
    return same_sizes(tensor.stride()[::-1], expected[: tensor.dim()])


def extent(shape: Iterable[Any], strides: Iterable[Any], offset: Size = 0) -> Size:
    """One past the highest element that such a tensor reaches; 0 where it has none."""
    shape = sizes(shape)
    if 0 in shape:
        return 0
    return size(1 + offset + sum((n - 1) * step for n, step in zip(shape, sizes(strides))))


# --- numbers again, when the graph runs -----------------------------------------------------------
def fill(tree: Any, names: Sequence[str]) -> Callable[..., Any]:
    """A function of the values of the symbols that are called `names`: it gives `tree` with numbers
    in place of its symbolic sizes."""
    leaves, spec = pytree.tree_flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (*SYMBOLIC, sympy.Expr))]
    if not places:
        return lambda *values: tree
    texts = [python_code(sympy.sympify(size(leaves[i]))) for i in places]
    evaluate = eval(f"lambda {', '.join(names)}: ({', '.join(texts)},)", {"math": math})

    def filled(*values: Any) -> Any:
        result = list(leaves)
        for i, number in zip(places, evaluate(*values)):
            result[i] = number
        return pytree.tree_unflatten(result, spec)

    return filled

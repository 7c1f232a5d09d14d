"""Sizes that are not known when kernels are written: symbols, what they are in this run, what is
true for all of them.

In:   a `torch.SymInt` of a fake tensor, a sympy expression over such symbols, or an int.  Out: ints
      where constant, else expressions.

    >>> size(fake.shape[0] * 64)          # a sympy expression, as the loop IR and kernels have them
    64*s0
    >>> with size_hints({s0: 12}):
    ...     hint(64 * s0)                   # for heuristics only, never for what is right
    768
    >>> same(s0 * (s1 + 1), s0 + s0 * s1)   # equal for every size.  False means: not known
    True
    >>> fill({"shape": [fake.shape[0], 4]}, ["s0"])(12)
    {'shape': [12, 4]}

Whoever captured the graph owns the symbols and what was assumed of them (guards); here nothing is
assumed but that they are integers >= 1 where sympy says `positive`.  Comparing two SymInts of a
fake tensor asks that owner, which may add a guard: `same` and `hint` never do.

Mirrors torch/_inductor/sizevars.py.  Left out: sizes that depend on data.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx

from ..options import Current
from .expressions import FloorDiv, Mod, Size
from .printing import python_code

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


def hints_of(graph: fx.Graph) -> dict[sympy.Symbol, sympy.Integer]:
    """symbol -> hint of the size symbols among an FX graph's placeholders."""
    found = {}
    for node in symbolic_placeholders(graph):
        expr = sympy.sympify(node.expr)
        if expr.is_Symbol and node.hint is not None:
            found[expr] = sympy.Integer(node.hint)
    return found


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
    a = a if isinstance(a, int) else size(a)
    b = b if isinstance(b, int) else size(b)
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


def is_dense(shape: Iterable[Any], strides: Iterable[Any]) -> bool:
    """Do the elements of such a tensor fill their memory without gaps or overlap?  False where that
    is not known."""

    def from_the_innermost(pair: tuple[Size, Size]) -> tuple[int, int]:
        n, stride = pair
        return hint(stride, 1 << 40), hint(n, 1 << 40)

    expected: Size = 1
    dimensions = zip(sizes(shape), sizes(strides))
    for n, stride in sorted(dimensions, key=from_the_innermost):
        if n == 1:
            continue
        if not same(stride, expected):
            return False
        expected = expected * n
    return True


def is_symbolic(value: object) -> bool:
    """Has this (fake) tensor, or tuple of tensors, a size or stride that is not constant?"""
    if isinstance(value, torch.Tensor):
        return torch.SymInt in map(type, (*value.shape, *value.stride()))
    return isinstance(value, (tuple, list)) and any(map(is_symbolic, value))


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


def extent(size: Sequence[Size], stride: Sequence[Size], offset: Size = 0) -> int | None:
    """One past the highest element that a view reaches, or None where sizes are symbolic."""
    if any(n == 0 for n in size):
        return 0
    parts = [offset, *size, *stride]
    if not all(isinstance(p, int) or getattr(p, "is_Integer", False) for p in parts):
        return None
    return 1 + int(offset) + sum((int(n) - 1) * int(s) for n, s in zip(size, stride))


def maximum(a: Any, b: Any) -> Any:
    """The larger of two sizes."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    return size(sympy.Max(a, b))


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

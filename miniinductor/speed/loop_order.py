"""Loops in the order of memory: quotients become loops of their own, and loops are sorted.

In:   a loop body (dependencies.py) over the loops of the program.  Out: the same over others.

    out[x0 + 64*x1] = ...               # x1, x0: the innermost loop takes the smallest steps
    out[8*x0 + x1] = in[x1//4]          # x0, x1, x2 with x2 < 4: in[x1]

Without this file loops stand as in the program: fewer of them merge and fuse, and a transposed
tensor is written in large steps.  Mirrors torch/_inductor/ir.py (`simplify_and_reorder`).
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import sympy

from ..dependencies import Access, LoopBody, in_order_of_memory, stride_of
from ..replaceable import replaceable
from ..sizes.expressions import FloorDiv, Mod
from ..sizes.symbols import Size, hint, quotient
from ..sizes.symbols import size as as_size


@in_order_of_memory.replaced
def sorted_loops(body: LoopBody) -> LoopBody:
    body = split_divisions(body)
    return body.with_loops(stride_order(body, "x") + stride_order(body, "r"))


def split_divisions(body: LoopBody) -> LoopBody:
    """x//k and x%k, where k divides the size of x, become plain variables: x is split into
    (size/k, k)."""
    for _ in range(8):  # more such loops stay as they are
        cut = next(divisors(body), None)
        if cut is None:
            break
        sizes: dict[sympy.Symbol, list] = {v: [n] for v, n in body.ranges().items()}
        sizes.update([cut])
        outer = [n for v in body.x for n in sizes[v]]
        body = body.split_to(outer, [n for v in body.r for n in sizes[v]])
    return body


def divisors(body: LoopBody) -> Iterator[tuple[sympy.Symbol, list[Size]]]:
    """(loop variable, the sizes into which a quotient or remainder divides its loop)"""
    sizes = body.ranges()
    for index in body.indices:
        for division in index.atoms(FloorDiv, Mod) if index.has(FloorDiv, Mod) else ():
            variable, divisor = division.args[0], as_size(division.args[1])
            size = sizes.get(variable, 0)
            count = None if size in (0, divisor) else quotient(size, divisor)
            if count is not None:
                yield variable, [count, divisor]


@replaceable
def stride_order(body: LoopBody, prefix: str) -> list[sympy.Symbol]:
    """Loops sorted so that the innermost steps through memory by the smallest stride.

    The first access that tells two loops apart decides.  Stores are asked before loads.
    (speed/columns.py asks the loads first where columns are reduced.)"""
    # a scan, and argmax, take the elements in their own order
    in_order = body.has_scan() or any(k.startswith("arg") for k in body.reduction_kinds())
    if prefix == "r" and in_order:
        return body.r
    accesses = body.writes() + body.reads() if prefix == "x" else body.reads()
    return loops_by_stride(body, prefix, accesses, compare_strides)


def loops_by_stride(
    body: LoopBody,
    prefix: str,
    accesses: Sequence[Access],
    compare: Callable[[int | None, int | None], int],
) -> list[sympy.Symbol]:
    """The variables of the loops, outermost first."""

    def before(first: sympy.Symbol, second: sympy.Symbol) -> int:
        for access in accesses:
            strides = [stride_of(access.index, v) for v in (first, second)]
            known = [None if stride is None else hint(stride) for stride in strides]
            decided = compare(*known)
            if decided:
                return decided
        return 0

    loops = body.x if prefix == "x" else body.r
    return sorted(loops, key=functools.cmp_to_key(before))


def compare_strides(a: int | None, b: int | None) -> int:
    """-1: a loop of stride `a` belongs outside of one of stride `b`; 1: inside; 0: this access does
    not tell.  The larger stride is outside.  A stride of None is no constant."""
    if a is None or b is None or a == b or 0 in (a, b):
        return 0
    return -1 if abs(a) > abs(b) else 1

"""The axes of a tile: which loops are flattened into which, and how an index is written over them.

In:   the loop bodies of a kernel.  Out: its `Axis`es, each with the lines that name its loop
      variables; whether memory runs along one axis or another.

    loops x0 < 64, x1 < 37, x2 < 129, all on axis x     xindex = tl.program_id(0) * XBLOCK + ...
                                                        x2 = xindex % 129
    in0 at 129*x1 + x2                                  in0 + xindex % 4773

A kernel has one axis x, or x and r (rows, and the elements of a row).  A pointwise kernel whose
reads run along another loop than its writes has y and x (tile_plan.py).

Mirrors the ranges and index simplification of torch/_inductor/codegen/simd.py.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Sequence

import sympy

from ...ir.dependencies import LoopBody, int_or_none, loop_variables, stride_of
from ...sizes.expressions import index_text, is_indirect
from ...sizes.symbols import Size, expand, hint
from ...sizes.symbols import size as as_size
from .kernel_text import Line, noted, plain

LEAST_SIDE = 8  # of a tile of two axes
SHORT_STEPS = range(1, 5)  # elements: neighbours so far apart share a cache line
WIDEST = 16  # elements that a thread reads at once, at most


class Axis:
    """One dimension of the tile: the loops that are flattened into it."""

    def __init__(
        self, name: str, variables: Sequence[sympy.Symbol], sizes: Sequence[Size], slice_text: str
    ):
        self.name, self.slice = name, slice_text
        self.block = name.upper() + "BLOCK"
        self.loops = [(v, as_size(n)) for v, n in zip(variables, sizes)]
        self.numel: Size = math.prod(n for _, n in self.loops)
        self.mask: str | None = None  # the name of the mask, where the last tile is not full
        self.flat = str(self.loops[0][0]) if len(self.loops) == 1 else f"{name}index"

    def lines(self, start: str) -> list[Line]:
        """Names of the loop variables, from the flat index that begins at `start`."""
        index = f"{start}{' + ' if start else ''}tl.arange(0, {self.block}){self.slice}"
        texts = [noted(f"{self.flat} = {index}", f"{self.name}: {self.numel}")]
        if self.mask:
            texts.append(f"{self.mask} = {self.flat} < {size_text(self.numel)}")
        if len(self.loops) != 1:
            texts += [self.variable_line(position) for position in range(len(self.loops))]
        return plain(texts, "indices of the loops, and which of them exist")

    def variable_line(self, position: int) -> str:
        """One of several loop variables, from the flat index."""
        variable, size = self.loops[position]
        below = size_text(math.prod(n for _, n in self.loops[position + 1 :]))
        text = self.flat if below == "1" else f"{self.flat} // {below}"
        if position:
            text = text if below == "1" else f"({text})"
            text = f"{text} % {size_text(size)}"
        return noted(f"{variable} = {text}", f"< {size_text(size)}")

    def over_flat(self, expr: sympy.Expr) -> sympy.Expr:
        """`expr` by the flat index, where its last loops follow each other in memory as they do
        here: 129*x1 + x2 is xindex, or xindex % 4773 if x0 stands before them.

        Triton does not see that 129*x1 + x2 goes by steps of one, where x1 and x2 are a quotient
        and a remainder by 129: neighbouring threads would then be given another axis."""
        step = stride_of(expr, self.loops[-1][0]) if self.loops else None
        if not step:
            return expr
        joined, length = run_of_loops(expr, self.loops, step)
        whole = len(joined) == len(self.loops)
        is_seen = not whole and self.loops[-1][1] % WIDEST == 0
        if len(joined) < 2 or is_seen:
            return expr
        flat = self.flat if whole else f"{self.flat} % {size_text(length)}"
        others = expr.xreplace(dict.fromkeys(joined, sympy.Integer(0)))
        if not whole and (others or step != 1):
            flat = f"({flat})"
        return others + step * sympy.Symbol(flat, integer=True, nonnegative=True)


def run_of_loops(
    index: sympy.Expr, loops: Sequence[tuple[sympy.Symbol, Size]], step: Size
) -> tuple[list[sympy.Symbol], Size]:
    """(variables, number of elements) of the last of these loops, if the index goes by this step
    along it, and of those before it, as far as one step of each is as long as all of the next."""
    joined: list[sympy.Symbol] = []
    length: Size = 1
    for variable, size in reversed(loops):
        if stride_of(index, variable) != expand(step * length):
            break
        joined.append(variable)
        length = expand(length * size)
    return joined, length


def size_text(n: Size) -> str:
    """A number of elements, in brackets where it is an expression."""
    text = index_text(n, "triton")
    return text if text.isalnum() else f"({text})"


# --- which axes a kernel has, and along which memory runs -----------------------------------------
def pointwise_axes(outer: Sequence[Size], bodies: Sequence[LoopBody]) -> tuple[str, list[Axis]]:
    """("pointwise", one axis); or ("tile", two axes) where reads run along another loop than
    writes, or are those of an outer product."""
    x = loop_variables("x", len(outer))
    indices = {access.index for body in bodies for access in body.reads()}
    cut = transposed_at(outer, indices) or outer_product_at(outer, indices)
    if cut is None:
        return "pointwise", [Axis("x", x, outer, "")]
    return "tile", [
        Axis("y", x[:cut], outer[:cut], "[:, None]"),
        Axis("x", x[cut:], outer[cut:], "[None, :]"),
    ]


def transposed_at(outer: Sequence[Size], indices: Iterable[sympy.Expr]) -> int | None:
    """Number of loops that belong to y, if some read goes by shorter steps along an earlier loop
    than along the last one: by SHORT_STEPS."""
    loops = [*zip(loop_variables("x", len(outer)), outer)]
    for step, cut in itertools.product(SHORT_STEPS, range(1, len(loops))):
        for index in indices:
            if abs(step_inside(index, *loops[-1]) or 0) > step:
                _, length = run_of_loops(index, loops[:cut], step)
                if min(hint(length, 0), hint(outer[-1], 0)) >= LEAST_SIDE:
                    return cut
    return None


def outer_product_at(outer: Sequence[Size], indices: Collection[sympy.Expr]) -> int | None:
    """Number of loops that belong to y, if each read varies along these alone or along the others
    alone: then a tile of two axes reads few elements."""
    if any(map(is_indirect, indices)):
        return None
    x = loop_variables("x", len(outer))
    met = {frozenset(index.free_symbols.intersection(x)) for index in indices} - {frozenset()}
    for cut in range(1, len(x)):
        y, sides = set(x[:cut]), (outer[:cut], outer[cut:])
        along_y = [loops for loops in met if loops <= y]
        others = [loops for loops in met if loops.isdisjoint(y)]
        is_product = along_y and others and len(along_y) + len(others) == len(met)
        if is_product and min(hint(math.prod(n), 0) for n in sides) >= LEAST_SIDE:
            return cut
    return None


def has_strided_reads(bodies: Iterable[LoopBody]) -> bool:
    """Does some read of a pointwise kernel go through memory by other steps than one, or by
    positions that are data?"""
    return any(
        is_indirect(access.index) or body.x and stride_of(access.index, body.x[-1]) not in (0, 1)
        for body in bodies
        for access in body.reads()
    )


def step_inside(index: sympy.Expr, variable: sympy.Symbol, length: Size) -> int | None:
    """By how much an index steps along a loop: in the middle, if it turns round at the ends, as
    that of a reflected image does."""
    step = stride_of(index, variable)
    if step is None and isinstance(length, int):
        start = dict.fromkeys(index.free_symbols, sympy.Integer(0))
        at = [start | {variable: sympy.Integer(length // 2 + k)} for k in (0, 1)]
        step = index.xreplace(at[1]) - index.xreplace(at[0])
    return int_or_none(step)


def reads_along_outputs(
    bodies: Iterable[LoopBody], x: Sequence[sympy.Symbol], r: Sequence[sympy.Symbol]
) -> bool:
    """Do more of the reductions' reads go through memory one by one along the last outer loop than
    along the last reduced one?  Only reads that vary along both count, and gathers of rows."""
    reads = [access.index for body in bodies if body.inner for access in body.reads()]
    balance = 0
    for index in dict.fromkeys(reads if x else ()):
        if is_indirect(index) or all(not index.free_symbols.isdisjoint(loops) for loops in (x, r)):
            balance += (stride_of(index, x[-1]) == 1) - (stride_of(index, r[-1]) == 1)
    return balance > 0

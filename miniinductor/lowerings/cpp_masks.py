"""Bodies under a condition, in C++: a branch; and what gcc must not do with loops around it.

    float tmp4 = 0.0f;
    if (tmp3) {
        const float tmp5 = in0[r0];
        tmp4 = tmp5;
    }

In:   a mask, and a body whose memory must not be touched where the mask is false.  Out: the name of
      the value.
"""

from collections.abc import Callable

from ..codegen.code import code, named
from ..codegen.common import Value
from ..codegen.cpp import CppKernelWriter
from ..codegen.cpp_expressions import CppExpressions, CppScope, compute_type, constant_text
from ..codegen.cpp_reductions import Sums
from ..codegen.tree import Bound, Branch, Definition, Line, Loop, Statement, Statements, walk
from ..replaceable import replaceable


@replaceable
def lane_mask(writer: CppExpressions, mask: Value) -> Value:
    """The mask of a branch, as the compiler likes it.  (speed/lane_masks.py)"""
    return mask


def masked(
    self: CppExpressions, mask: Value, body: Callable[[], Value], other: bool | int | float
) -> Value:
    outside = self.scope
    inside = CppScope(outside, is_mask=True)
    self.scope = inside
    value = body()
    self.scope = outside
    if mask.text == "false":
        return self.constant(other, value.dtype)
    inner, name = bool(self.inner_variables), outside.fresh("tmp")
    mask = lane_mask(self, mask)
    start = constant_text(other, value.dtype)
    outside.lines.append(Definition.of(compute_type(value.dtype), name, start, varies=True))
    inside.add(code("{} = {};", named(name), value))
    outside.lines.append(Branch(mask.text, inside.lines))
    return Value(named(name), value.dtype, inner)


setattr(CppExpressions, "masked", masked)


# --- loops around branches ------------------------------------------------------------------------
UNROLLED = 32  # iterations up to which gcc may unroll a loop wholly: 16, unless flags say otherwise
BARRIER = Line('asm volatile("");', origin="keeps the compiler from making vectors of the loop")


def fence(lines: Statements, count: int | None = None) -> list[Line]:
    """What stands before a marked loop (`omp simd`) over `lines`, so that no loop around is
    vectorised.

    gcc 12 vectorises this loop wrongly (wrong elements, taken from memory that nobody wrote):

        for (x = 0; x < 20; x++) {                  two elements of one array in each iteration,
            float a = 0, b = 0;                     both loaded under the same condition
            if (2 <= x && x < 18) a = in[2*x];
            out[2*x] = a;
            if (2 <= x && x < 18) b = in[2*x + 1];
            out[2*x + 1] = b;
        }

    What must hold of a loop that is vectorised: an iteration writes at most one element through
    each pointer, or loads nothing under a condition.  It holds of the lanes that we mark, but of no
    loop around short lanes: unrolled, they are the loop above.  A loop with an empty `asm` in it is
    never vectorised, and costs nothing.  (-fno-tree-loop-vectorize would stop the marked loops,
    too.)  count: how many lanes, where that is known."""
    is_short = count is None or count <= UNROLLED
    return [BARRIER] if is_short and has_branch(lines) else []


def has_branch(statements: Statements) -> bool:
    return any(isinstance(s, Branch) for s in walk(statements))


def lanes_of(start: Bound, end: Bound) -> int | None:
    """How many iterations from one to the other, or None."""
    return end - start if isinstance(start, int) and isinstance(end, int) else None


plain_innermost = CppKernelWriter.plain_innermost


def fenced_innermost(
    self: CppKernelWriter, body: Statements, accumulators: Sums, start: Bound, end: Bound
) -> list[Statement]:
    """The plain loop over the lanes, with a fence right before it."""
    result = plain_innermost(self, body, accumulators, start, end)
    place = next(n for n, statement in enumerate(result) if isinstance(statement, Loop))
    barrier = fence(result[place].body, lanes_of(start, end))  # type: ignore[union-attr]
    return [*result[:place], *barrier, *result[place:]]


setattr(CppKernelWriter, "plain_innermost", fenced_innermost)

"""float16 in reductions along rows: runs of columns, which stay in registers.

    int64_t x0_run = x0_block;
    for (; x0_run + 64 <= x0_end; x0_run += 64) {
        float half0[64];
        mini::convert(in0 + 33411*r0 + x0_run, half0, 64);
        #pragma omp simd
        for (int64_t k = 0; k < 64; k++) {
            const int64_t x0 = x0_run + k;
            acc0[x0 - x0_block] = acc0[x0 - x0_block] + half0[x0 - x0_run];
        }
    }

In:   what the columns of some rows do (rows.py), and which elements of float16 they read and write.
Out:  the loop over the columns, in runs of a length that the compiler knows, and what is left.

Roundings between operations are loops of their own (rounding_steps.py).  What is left is computed
in whole vectors, where that touches nothing but arrays that have room for them, as accumulators
have.  half_blocks.py does the same where the lanes run along the reduction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

from ..codegen.tree import Block, Bound, Branch, Line, Loop, Pragma, Statement, Statements, nest
from ..lowerings.cpp_masks import fence
from .arrays import VECTOR, room
from .half_blocks import BLOCK, counted, touches_only_arrays
from .halves import RUNS
from .rounding_steps import Steps

# (where elements begin in memory, are they written?) -> (the array of their floats, instruction)
HalfArrays: TypeAlias = dict[tuple[str, bool], tuple[str, Any]]


@dataclass(frozen=True)
class Column:
    """What one column does: lines, then updates of accumulators, which take these names of them.
    spare: what else these lines read that goes on to the end of a vector, and is of floats."""

    lines: Statements
    updates: Sequence[Line]
    taken: Sequence[str]
    spare: Sequence[str] = ()


def in_runs(
    writer: Any, columns: tuple[sympy.Symbol, Bound, Bound], arrays: HalfArrays, column: Column
) -> list[Statement]:
    """`column` for all columns.  columns: the variable, its start and its end."""
    variable, start, end = columns
    run = f"{variable}_run"
    whole = one_run(writer, variable, (run, f"{run} + {BLOCK}"), BLOCK, arrays, column)
    if isinstance(start, int) and isinstance(end, int):
        done = start + (end - start) // BLOCK * BLOCK
        lines: list[Statement] = [Loop(run, start, done, whole, BLOCK)] if done > start else []
        if end > done:
            first = Line(f"const int64_t {run} = {done};", origin=RUNS)
            left = one_run(writer, variable, (run, end), end - done, arrays, column)
            lines.append(Block([first, *left]))
        return lines
    left = one_run(writer, variable, (run, end), f"{end} - {run}", arrays, column)
    first = Line(f"int64_t {run} = {start};", origin=RUNS)
    loop = Loop(run, None, end, whole, BLOCK, condition=f"{run} + {BLOCK} <= {end}")
    return [Block([first, loop, Branch(f"{run} < {end}", left)])]


def one_run(
    writer: Any,
    variable: sympy.Symbol,
    part: tuple[Bound, Bound],
    count: Bound,
    arrays: HalfArrays,
    column: Column,
) -> list[Statement]:
    """`count` columns: what they read, converted; the lanes; what they write.  part: from where to
    where."""
    before: list[Statement] = []
    after: list[Statement] = []
    for (place, written), (array, instruction) in arrays.items():
        before.append(Line(f"float {array}[{BLOCK}];", origin=instruction))
        given, wanted = (array, place) if written else (place, array)
        convert = Line(f"mini::convert({given}, {wanted}, {count});", origin=instruction)
        (after if written else before).append(convert)
    names = [*column.spare, *[array for array, _ in arrays.values()]]
    if touches_only_arrays(column.lines, str(variable), names):
        if isinstance(count, int):
            count = room(count)
        else:
            part = (part[0], f"{part[0]} + ({count} + {VECTOR - 1})/{VECTOR}*{VECTOR}")
    body = column.lines
    read = [array for (_, written), (array, _) in arrays.items() if not written]
    steps = Steps(writer, body, column.taken, read)
    if steps.are_many:
        before += steps.loops(str(variable), part, BLOCK, count)
        body = steps.last_lines
    lanes = nest([*body, *column.updates], [(variable, *part)], Pragma(simd=True))
    known = count if isinstance(count, int) else None
    lines = [*before, *fence(body, known), *lanes, *after]
    return lines if known is None else counted(lines, str(variable), known)

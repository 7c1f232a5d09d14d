"""What a short reduction reads line by line, for many outputs, is copied first: by columns.

In:   a Reduction that is about to be written out (short_reductions.py).  Out: the copies, and the
      same reduction, which reads them.

    (a[:, None] - b[None]).abs().sum(-1), a and b: [2048, 32]
    ->  columns[32, 2048] = b.T;  sum over k of abs(a[i, k] - columns[k, j])

Neighbouring threads compute neighbouring outputs j.  Each would read a line b[j] of its own: 32
cache lines at once for 32 numbers, again for each k.  Of columns they read one line together; the
copy is read for so many outputs that it costs next to nothing.  PyTorch: reads the lines.
"""

import math
from dataclasses import replace

import sympy

from ..dependencies import LoopBody, int_or_none, stride_of
from ..ir import (
    Buffer,
    ComputedBuffer,
    Graph,
    Index,
    Layout,
    Pointwise,
    Reduction,
    contiguous_strides,
)
from ..ops import Value, ops
from .elsewhere import Place, read_elsewhere

LEAST = 8  # elements of a line: fewer lie in one sector of a cache line
LEAST_LINES = 64  # neighbouring outputs


def with_columns(
    buffer: ComputedBuffer, body: LoopBody, graph: Graph
) -> tuple[list[ComputedBuffer], Reduction]:
    """(the copies that are not there yet, the reduction that reads them)."""
    made: list[ComputedBuffer] = []
    places: dict[str, Place] = {}
    for name in sorted(read_by_lines(body, graph)):
        copy = f"{name}_columns{body.inner[0]}"
        if copy not in graph.buffers:
            made.append(columns_of(name, copy, int(body.inner[0]), graph))
            graph.buffers[copy] = made[-1]
        places[name] = place_in(graph.buffers[copy])
    data = buffer.data
    if not places:
        return [], data

    def inner_fn(index: Index, rindex: Index) -> Value:
        with read_elsewhere(places):
            return data.inner_fn(index, rindex)

    return made, replace(data, inner_fn=inner_fn)


def read_by_lines(body: LoopBody, graph: Graph) -> set[str]:
    """Buffers of whole lines, as long as the reduction, of which each neighbour reads another;
    none of them is read in another way, too."""
    if len(body.inner) != 1 or not body.outer or not isinstance(body.inner[0], int):
        return set()
    count, neighbours = body.inner[0], int_or_none(body.outer[-1])
    if count < LEAST or neighbours is None or neighbours < LEAST_LINES:
        return set()
    found: set[str] = set()
    others: set[str] = set()
    for name, index in {(access.name, access.index) for access in body.reads()}:
        steps = [int_or_none(stride_of(index, v)) for v in (body.x[-1], body.r[0])]
        is_by_lines = steps == [count, 1] and in_columns(index - body.r[0], count, 1) is not None
        (found if is_by_lines and is_of_lines(name, count, graph) else others).add(name)
    return found - others


def is_of_lines(name: str, count: int, graph: Graph) -> bool:
    """Do its elements lie in memory as lines of so many, without gaps?"""
    layout = graph.buffers[name].layout
    numbers = [int_or_none(n) for n in (*layout.size, *layout.stride, layout.offset)]
    if None in numbers or layout.offset != 0:
        return False
    strides = contiguous_strides(list(layout.size))
    return list(layout.stride) == list(strides) and math.prod(layout.size) % count == 0


def columns_of(name: str, copy: str, count: int, graph: Graph) -> ComputedBuffer:
    layout = graph.buffers[name].layout
    size = [count, math.prod(layout.size) // count]
    made = Layout(layout.device, layout.dtype, tuple(size), contiguous_strides(size))
    data = Pointwise(
        layout.device, layout.dtype, size, lambda index: ops.load(name, index[1] * count + index[0])
    )
    return ComputedBuffer(copy, made, frozenset(), data=data)


def place_in(columns: Buffer) -> Place:
    """Where the copy has an element."""
    count, lines = (int(n) for n in columns.layout.size)

    def place(index: sympy.Expr) -> tuple[str, sympy.Expr] | None:
        found = in_columns(index, count, lines)
        return None if found is None else (columns.name, found)

    return place


def in_columns(index: sympy.Expr, count: int, lines: int) -> sympy.Expr | None:
    """Where the element at `index` lies, if `lines` lines of `count` lie by columns; None where
    that is not seen."""
    terms = sympy.expand(index).as_coefficients_dict()
    place = int(terms.pop(sympy.S.One, 0))
    if any(int_or_none(factor) is None or factor % count for factor in terms.values()):
        return None
    line = sum((term * (factor // count) for term, factor in terms.items()), sympy.Integer(0))
    return (place % count) * lines + line + place // count

"""Reductions over a few elements become pointwise: a tile has no side of three elements.

In:   an `ir.Graph` for a GPU.  Out: the same graph, in which such a Reduction is a `Pointwise`
      that combines its elements itself, and fuses as one.

    sum over 3 of x[i, j + k]    ->  0 + x[i, j] + x[i, j + 1] + x[i, j + 2]
    embedding(indices).sum(1), 4 rows each; (a[:, None] - b[None]).square().sum(-1) of points

How many are few?  More where many outputs share what is read, as in distances between all points:
memory is not what such a kernel waits for.

A reduction stays where its kernel would fall into two: where other kernels read its result once
per element, or where it reads elements that are stored.  Mirrors `Reduction.create` in
torch/_inductor/ir.py (`unroll_reductions_threshold`).
"""

import math
from collections.abc import Sequence

from ..dependencies import trace
from ..ir import Buffer, ComputedBuffer, Graph, Reduction
from ..records import CompileRecord
from ..sizes.expressions import is_indirect
from ..speed.few_rows import SHORT, elements_of_each, iterations, write_out
from .shared_lines import with_columns

SHORT_OF_SHARED = 32  # elements, where many outputs share each element that is read
SHARED_BY = 8  # outputs for each element that is read, at least


def unroll_short_reductions(graph: Graph, record: CompileRecord) -> None:
    """Rewrite the graph's operations in place; each change is noted in the record."""

    def prepare(
        buffer: ComputedBuffer, readers: list[ComputedBuffer]
    ) -> tuple[Sequence[ComputedBuffer], Reduction]:
        is_long = iterations(buffer.data.reduction_ranges) >= SHORT
        if is_long and any(isinstance(reader.data, Reduction) for reader in readers):
            graph.apart.add(buffer.name)  # the reader's own loop would hold all of it
        return with_columns(buffer, trace(buffer), graph)

    write_out(graph, record, is_short, prepare)


def is_short(buffer: Buffer) -> bool:
    """Is it a reduction of few elements, many times?"""
    count = elements_of_each(buffer)
    if not 0 < count <= SHORT_OF_SHARED:
        return False
    assert isinstance(buffer, ComputedBuffer)
    return count < SHORT or is_shared(buffer, iterations(buffer.data.ranges))


def is_shared(buffer: ComputedBuffer, outputs: int) -> bool:
    """Does each element that is read count for many outputs, as in distances between all points?"""
    body = trace(buffer)
    sizes = {variable: int(n) for variable, n in body.ranges().items()}
    for index in (access.index for access in body.reads()):
        elements = math.prod(n for v, n in sizes.items() if v in index.free_symbols)
        if is_indirect(index) or elements * SHARED_BY > outputs:
            return False
    return True

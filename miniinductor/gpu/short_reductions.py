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

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..dependencies import int_or_none, trace
from ..ir import Buffer, ComputedBuffer, Graph, Index, Pointwise, Reduction
from ..ops import Value, ops
from ..records import CompileRecord
from ..sizes.expressions import is_indirect
from .shared_lines import with_columns

SHORT = 8  # elements: fewer are written out
SHORT_OF_SHARED = 32  # the same where many outputs share each element that is read
SHARED_BY = 8  # outputs for each element that is read, at least
LEAST_OUTPUTS = 1024
COMBINE: Mapping[str, Callable[[Value, Value], Value]] = {
    "sum": lambda a, b: ops.add(a, b),
    "prod": lambda a, b: ops.mul(a, b),
    "max": lambda a, b: ops.maximum(a, b),
    "min": lambda a, b: ops.minimum(a, b),
}


def unroll_short_reductions(graph: Graph, record: CompileRecord) -> None:
    """Rewrite the graph's operations in place; each change is noted in the record."""
    short = [buffer for buffer in graph.operations if is_short(buffer)]
    if not short:
        return
    loops = {b.name: b for b in graph.operations if isinstance(b, ComputedBuffer)}
    reads = {name: {access.name for access in trace(b).reads()} for name, b in loops.items()}
    for buffer in short:
        readers = [loops[name] for name, found in reads.items() if buffer.name in found]
        made = [loops[name] for name in reads[buffer.name] if name in loops]
        if stays_one_kernel(buffer, readers, made):
            is_long = iterations(buffer.data.reduction_ranges) >= SHORT
            if is_long and any(isinstance(reader.data, Reduction) for reader in readers):
                graph.apart.add(buffer.name)  # the reader's own loop would hold all of it
            place = graph.operations.index(buffer)
            graph.operations[place:place], data = with_columns(buffer, trace(buffer), graph)
            buffer.data = written_out(data)
            count = math.prod(int(n) for n in buffer.data.ranges)
            record.notes.append(
                f"{buffer.name}: {count} reductions of few elements are written out"
            )


def is_short(buffer: Buffer) -> bool:
    """Is it a reduction of few elements, many times?"""
    data = getattr(buffer, "data", None)
    if not isinstance(buffer, ComputedBuffer) or not isinstance(data, Reduction):
        return False
    if data.kind not in COMBINE:
        return False
    sizes = [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]
    if None in sizes:
        return False
    outputs, count = iterations(data.ranges), iterations(data.reduction_ranges)
    if outputs < LEAST_OUTPUTS or not 1 < count <= SHORT_OF_SHARED:
        return False
    return count < SHORT or is_shared(buffer, outputs)


def is_shared(buffer: ComputedBuffer, outputs: int) -> bool:
    """Does each element that is read count for many outputs, as in distances between all points?"""
    body = trace(buffer)
    sizes = {variable: int(n) for variable, n in body.ranges().items()}
    for index in (access.index for access in body.reads()):
        elements = math.prod(n for v, n in sizes.items() if v in index.free_symbols)
        if is_indirect(index) or elements * SHARED_BY > outputs:
            return False
    return True


def iterations(sizes: Iterable[Any]) -> int:
    """How many; 0 where a size is a symbol."""
    return math.prod([int_or_none(n) or 0 for n in sizes])


def stays_one_kernel(
    buffer: ComputedBuffer, readers: list[ComputedBuffer], made: list[ComputedBuffer]
) -> bool:
    """Do all that read it run over its outputs alone, and does it read nothing that was made over
    its elements?"""
    outputs = iterations(buffer.data.ranges)
    elements = outputs * iterations(buffer.data.reduction_ranges)
    for reader in readers:
        data = reader.data
        if not isinstance(data, (Pointwise, Reduction)):
            return False
        if iterations(data.ranges) * iterations(data.reduction_ranges) != outputs:
            return False
    return all(int_or_none(one.layout.numel) not in (elements, None) for one in made)


def written_out(data: Reduction) -> Pointwise:
    """The same value, made of all its elements."""
    places = list(itertools.product(*[range(int(n)) for n in data.reduction_ranges]))
    combine = COMBINE[data.kind]

    def element(index: Index, place: tuple[int, ...]) -> Value:
        value = data.inner_fn(index, list(place))
        return value if data.src_dtype == data.dtype else ops.to_dtype(value, data.dtype)

    def body(index: Index) -> Value:
        first = element(index, places[0])
        if data.kind == "sum" and data.dtype.is_floating_point:
            first = ops.add(first, ops.constant(0.0, data.dtype))  # no sum is -0.0
        # each element is added where it is made: a thread cannot hold many of them
        return functools.reduce(combine, (element(index, place) for place in places[1:]), first)

    return Pointwise(data.device, data.dtype, list(data.ranges), body, origins=data.origins)

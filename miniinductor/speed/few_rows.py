"""Sums of a few rows become pointwise: no column waits in an array for the next row.

    acc0[x1] = acc0[x1] + in0[x1 + 56*x0 + r0]   for r0 in 0, 1, 2
 -> out0[x1] = 0 + in0[x1 + 56*x0] + in0[x1 + 56*x0 + 1] + in0[x1 + 56*x0 + 2]

In:   an `ir.Graph` for a CPU.  Out: the same graph, in which such a Reduction is a `Pointwise` that
      combines its elements itself, and fuses as one.

Rows: memory runs along the outputs, as it does in windows, or in a sum of heads.  A reduction along
memory, of three numbers for each point, stays: its lanes read memory in its order.  And one stays
where its kernel would fall into two: where other kernels read its result once per element, or where
it reads elements that are stored.  gpu/split_reductions.py decides for GPUs.  Mirrors
`Reduction.create` in torch/_inductor/ir.py (`unroll_reductions_threshold`).
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sympy

from .. import config
from ..dependencies import Access, int_or_none, stride_of, trace
from ..kernels import CPP
from ..ir import Buffer, ComputedBuffer, Graph, Index, Pointwise, Reduction
from ..ops import Value, ops
from ..records import CompileRecord
from ..sizes.expressions import is_indirect

SHORT = 8  # elements: GPUs write out fewer
MOST_ROWS = 4  # sums of more windows would be slower than by rows.py, which adds four at a time
LEAST_OUTPUTS = 1024
FEWEST_COLUMNS = 32
COMBINE: Mapping[str, Callable[[Value, Value], Value]] = {
    "sum": lambda a, b: ops.add(a, b),
    "prod": lambda a, b: ops.mul(a, b),
    "max": lambda a, b: ops.maximum(a, b),
    "min": lambda a, b: ops.minimum(a, b),
}


def few_rows(graph: Graph, record: CompileRecord) -> None:
    if config.row_reductions:
        write_out(graph, record, is_of_few_rows)


CPP.rewrites.append(few_rows)


def write_out(graph: Graph, record: CompileRecord, is_wanted: Callable[[Buffer], bool]) -> None:
    """Rewrite the graph's operations in place; each change is noted in the record."""
    short = [buffer for buffer in graph.operations if is_wanted(buffer)]
    if not short:
        return
    loops = {b.name: b for b in graph.operations if isinstance(b, ComputedBuffer)}
    reads = {name: {access.name for access in trace(b).reads()} for name, b in loops.items()}
    for buffer in short:
        readers = [loops[name] for name, found in reads.items() if buffer.name in found]
        made = [loops[name] for name in reads[buffer.name] if name in loops]
        if stays_one_kernel(buffer, readers, made):
            buffer.data = written_out(buffer.data)
            count = math.prod(int(n) for n in buffer.data.ranges)
            record.notes.append(
                f"{buffer.name}: {count} reductions of few elements are written out"
            )


def elements_of_each(buffer: Buffer) -> int:
    """How many elements each of the many outputs of a reduction has; 0: it is no such reduction."""
    data = getattr(buffer, "data", None)
    if not isinstance(buffer, ComputedBuffer) or not isinstance(data, Reduction):
        return 0
    sizes = [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]
    if data.kind not in COMBINE or None in sizes or iterations(data.ranges) < LEAST_OUTPUTS:
        return 0
    count = iterations(data.reduction_ranges)
    return count if count > 1 else 0


def is_of_few_rows(buffer: Buffer) -> bool:
    """Does memory run along the same loop in all that a short reduction reads and writes?  Rows of
    16 bits stay: what they add up is converted in vectors."""
    if not 0 < elements_of_each(buffer) <= MOST_ROWS or buffer.data.kind != "sum":
        return False
    body = trace(buffer)
    sizes = body.ranges()
    [written, *others] = body.writes()
    along = [v for v in body.x if steps(written, [v]) == [1] and int(sizes[v]) >= FEWEST_COLUMNS]
    if others or len(along) != 1 or buffer.layout.dtype.itemsize < 4:
        return False
    for access in body.reads():
        if is_indirect(access.index) or steps(access, along) not in ([0], [1]):
            return False
    types = [t for i in body.walk() if i.op == "to_dtype" for t in i.args[1:] if t is not None]
    return all(t.itemsize >= 4 for t in types)


def steps(access: Access, variables: Iterable[sympy.Symbol]) -> list[int | None]:
    """Of an access, for a step of each of these."""
    return [int_or_none(stride_of(access.index, v)) for v in variables]


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

"""Positions of largest and smallest elements of few, long rows: found in chunks.

In:   an `ir.Graph` for a GPU.  Out: the same graph, in which such a Reduction is three buffers:

    argmax of 2^24 elements  ->  chunks[1024]: where in its 16384 elements each has its largest;
                                 chunk: which of those 1024 elements is the largest;
                                 chunk * 16384 + chunks[chunk]

The first of equals wins, and a NaN, in each step as in the whole.  PyTorch: leaves such rows to one
program each (argmax of 2^24 float32 on an H100: 1.9 ms; to read them takes 24 us).
"""

import math
from dataclasses import replace

import torch

from ..dependencies import int_or_none
from ..ir import ComputedBuffer, Graph, Index, Layout, Pointwise, Reduction, contiguous_strides
from ..ops import Value, ops
from ..records import CompileRecord
from ..lowerings.chunks import nearest_divisor
from .split_reductions import LEAST_ELEMENTS, neutral, runs_along_outputs, unflatten, wanted_chunks


def split_arg_reductions(graph: Graph, record: CompileRecord) -> None:
    """Rewrite the graph's operations in place; each split is noted in the record."""
    operations = []
    for buffer in graph.operations:
        parts = in_chunks(buffer, record) if isinstance(buffer, ComputedBuffer) else None
        graph.buffers.update({part.name: part for part in parts or []})
        operations += parts or [buffer]
    graph.operations[:] = operations


def in_chunks(buffer: ComputedBuffer, record: CompileRecord) -> list[ComputedBuffer] | None:
    """[places in chunks, the best chunk, the place], or None where one kernel is enough."""
    data = buffer.data
    if not isinstance(data, Reduction) or not data.kind.startswith("arg"):
        return None
    sizes = [int_or_none(n) for n in (*data.ranges, *data.reduction_ranges)]
    if None in sizes:
        return None
    ranges = [int(n) for n in data.ranges]
    outputs, count = math.prod(ranges), math.prod(int(n) for n in data.reduction_ranges)
    if outputs * count < LEAST_ELEMENTS:
        return None
    chunks = wanted_chunks(outputs, count, runs_along_outputs(buffer))
    if chunks < 2:
        return None
    chunk = -(-count // nearest_divisor(count, chunks))
    record.notes.append(
        f"{buffer.name}: {outputs} outputs of {count} elements each are too few: found in "
        f"{-(-count // chunk)} chunks"
    )
    return chunked(buffer, ranges, -(-count // chunk), chunk, count)


def chunked(
    buffer: ComputedBuffer, ranges: list[int], chunks: int, chunk: int, count: int
) -> list[ComputedBuffer]:
    data = buffer.data
    # where memory runs along the outputs, they stay the last dimension
    last = runs_along_outputs(buffer)
    names = f"{buffer.name}_chunks", f"{buffer.name}_chunk"
    size = [chunks, *ranges] if last else [*ranges, chunks]
    layouts = [
        Layout(data.device, torch.int64, tuple(n), contiguous_strides(n)) for n in (size, ranges)
    ]

    def of_chunk(index: Index, number: object) -> Index:
        return [number, *index] if last else [*index, number]

    def element(index: Index, number: object, place: object, limits: dict) -> Value:
        """Element `place` of a chunk."""
        flat = number * chunk + place  # type: ignore[operator]
        at = unflatten(flat, [int(n) for n in data.reduction_ranges], limits)
        if chunks * chunk == count:
            return data.inner_fn(index, at)
        inside = ops.lt(ops.index_expr(flat, torch.int64), ops.constant(count, torch.int64))
        return ops.masked(
            inside, lambda: data.inner_fn(index, at), neutral(data.kind, data.src_dtype)
        )

    def in_chunk(index: Index, rindex: Index) -> Value:
        number, outer = (index[0], index[1:]) if last else (index[-1], index[:-1])
        return element(list(outer), number, rindex[0], {number: chunks, rindex[0]: chunk})

    def best(index: Index, number: object) -> Value:
        return ops.load(names[0], layouts[0].indexer(of_chunk(index, number)))

    def of_best(index: Index, rindex: Index) -> Value:
        place = ops.indirect_indexing(best(index, rindex[0]), chunk, wrap_neg=False)
        return element(index, rindex[0], place, {rindex[0]: chunks, place: chunk})

    def whole(index: Index) -> Value:
        number = ops.load(names[1], layouts[1].indexer(index))
        position = ops.indirect_indexing(number, chunks, wrap_neg=False)
        start = ops.mul(number, ops.constant(chunk, torch.int64))
        return ops.add(start, best(index, position))

    first = replace(data, ranges=size, inner_fn=in_chunk, reduction_ranges=[chunk])
    second = replace(data, inner_fn=of_best, reduction_ranges=[chunks])
    third = Pointwise(data.device, torch.int64, list(ranges), whole, origins=data.origins)
    return [
        ComputedBuffer(names[0], layouts[0], buffer.origins, data=first),
        ComputedBuffer(names[1], layouts[1], buffer.origins, data=second),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=third),
    ]

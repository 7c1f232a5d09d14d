"""Reductions of the loop IR in two steps, before anything is scheduled: for GPUs.

In:   an `ir.Graph` for a GPU.  Out: the same graph, rewritten in place, each change noted in the
      record.

    few outputs of many elements: one kernel would have few programs, which read much
        sum over 2^26 elements            ->  partial[1024] = sums of 65536 each;  sum of partial
        sum over dim 0 of [16384, 4096]   ->  partial[64, 4096];  sum of partial over dim 0

Positions of extremes (argmax) stay as they are: one program for each output.  Symbolic sizes: as
many chunks as the sizes of the first call ask for, of a symbolic length.  Mirrors
`Reduction.create`, `num_splits` and `create_multilayer` in torch/_inductor/ir.py.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from ... import config
from ...ir.dependencies import loop_variables
from ...ir.loops import ComputedBuffer, Graph, Index, Layout, Reduction, contiguous_strides
from ...ir.ops import Value, ops
from ...ir.recording import trace
from ...records import CompileRecord
from ...sizes.expressions import FloorDiv, Mod
from ...sizes.symbols import Size, hint, simplify, size
from .block_sizes import PROCESSORS
from .tile_plan import reads_along

PROGRAMS = PROCESSORS * 8  # enough work for every processor
# with so many rows, one program each keeps reductions that need one another in one kernel
ENOUGH_ROWS = 64
LEAST_ROWS = 128  # rows that a program should at least add up where columns are reduced
MOST_CHUNKS = 1024  # which one more kernel, of few programs, puts together
LEAST_CHUNK = 4096  # elements, where rows are
LEAST_ELEMENTS = 1 << 17  # below this a second kernel costs more than it saves
NEUTRAL = {"sum": 0, "prod": 1, "any": False}


def rewrite_reductions(graph: Graph, record: CompileRecord) -> None:
    operations: list[Any] = []
    for buffer in graph.operations:
        is_reduction = isinstance(buffer, ComputedBuffer) and isinstance(buffer.data, Reduction)
        if is_reduction and config.split_reductions:
            operations += split(buffer, graph, record)
        else:
            operations.append(buffer)
    graph.operations[:] = operations


def split(buffer: ComputedBuffer, graph: Graph, record: CompileRecord) -> list[ComputedBuffer]:
    """The reduction in two steps where one kernel would have few programs, else as it is."""
    data = buffer.data
    count = math.prod(size(n) for n in data.reduction_ranges)
    outputs, elements = hint(math.prod(size(n) for n in data.ranges), 0), hint(count, 0)
    if outputs * elements < LEAST_ELEMENTS or data.kind.startswith("arg"):
        return [buffer]
    columns = runs_along_outputs(buffer)
    if columns:
        wanted = min(PROGRAMS * 4 // -(-outputs // 64), MOST_CHUNKS, elements // LEAST_ROWS)
    else:
        wanted = min(PROGRAMS // outputs, elements // LEAST_CHUNK)
    if wanted < 2 or not columns and outputs >= ENOUGH_ROWS:
        return [buffer]
    chunks = 1 << wanted.bit_length() - 1  # a power of two often leaves whole chunks
    record.notes.append(
        f"{buffer.name}: {math.prod(data.ranges)} outputs of {count} elements each are too few: "
        f"reduced in {chunks} chunks"
    )
    # columns: neighbouring programs write neighbouring outputs, so the chunk is the slower
    # dimension
    parts = in_two_steps(buffer, 0 if columns else len(data.ranges), chunks, count)
    graph.buffers.update({part.name: part for part in parts})
    return parts


def runs_along_outputs(buffer: ComputedBuffer) -> bool:
    """Do the reads step by one along the last output dimension, rather than along the reduced
    ones?"""
    body = trace(buffer).simplify_loops()
    if not body.outer or not body.inner:
        return False
    x, r = (
        list(zip(loop_variables(name, len(sizes)), sizes))
        for name, sizes in (("x", body.outer), ("r", body.inner))
    )
    return reads_along(body.reads(), x, r)


def in_two_steps(
    buffer: ComputedBuffer, place: int, chunks: int, count: Size
) -> list[ComputedBuffer]:
    """[the results of `chunks` parts of a reduction of `count` elements, the result of those].  The
    parts are dimension `place` of the partial results."""
    data, name = buffer.data, f"{buffer.name}_chunks"
    ranges, reduced = [size(n) for n in data.ranges], [size(n) for n in data.reduction_ranges]
    chunk = size(FloorDiv(count + chunks - 1, chunks))
    sizes = [*ranges[:place], chunks, *ranges[place:]]
    layout = Layout(data.device, data.dtype, tuple(sizes), contiguous_strides(sizes))

    def element(index: Index, rindex: Index) -> Value:
        """An element of a chunk; after the last element the reduction's neutral number."""
        outer = [*index[:place], *index[place + 1 :]]
        flat = index[place] * chunk + rindex[0]
        at = unflatten(flat, reduced, {**dict(zip(index, sizes)), rindex[0]: chunk})
        if chunks * chunk == count:
            return data.inner_fn(outer, at)
        end = ops.index_expr(count, torch.int64)
        inside = ops.lt(ops.index_expr(flat, torch.int64), end)
        other = neutral(data.kind, data.src_dtype)
        return ops.masked(inside, lambda: data.inner_fn(outer, at), other)

    def partial(index: Index, rindex: Index) -> Value:
        return ops.load(name, layout.indexer([*index[:place], rindex[0], *index[place:]]))

    first = replace(data, ranges=sizes, inner_fn=element, reduction_ranges=[chunk])
    second = replace(data, inner_fn=partial, reduction_ranges=[chunks], src_dtype=data.dtype)
    return [
        ComputedBuffer(name, layout, buffer.origins, data=first),
        ComputedBuffer(buffer.name, buffer.layout, buffer.origins, data=second),
    ]


def unflatten(
    flat: sympy.Expr, sizes: Sequence[Size], ranges: Mapping[sympy.Symbol, Size]
) -> list[sympy.Expr]:
    """The multi-dimensional index of element `flat`."""
    index = []
    for position, n in enumerate(sizes):
        at = FloorDiv(flat, sympy.sympify(math.prod(sizes[position + 1 :])))
        if position:
            at = Mod(at, sympy.sympify(n))
        index.append(simplify(sympy.expand(at), ranges))
    return index


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """What a reduction of nothing is."""
    if kind in NEUTRAL:
        return NEUTRAL[kind]
    lowest = kind.endswith("max")
    if dtype.is_floating_point:
        return -math.inf if lowest else math.inf
    if dtype is torch.bool:
        return 0 if lowest else 1
    about = torch.iinfo(dtype)
    return about.min if lowest else about.max

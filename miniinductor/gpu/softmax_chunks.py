"""Long rows of a softmax are read once less: each chunk has its own maximum and its sum to that.

In:   the halves of a sum of exp(v - max) that is cut into chunks (split_reductions.py), whose
      maximum was cut so before.  Out: the same with the chunks' maxima, or as they were.

    partial[c] = sum over chunk c of exp(v - max)            (a kernel after the one of max)
    ->  partial[c] = sum over chunk c of exp(v - max[c])     (in the loop that finds max[c])
        sum = sum over c of partial[c] * exp(max[c] - max)

A chunk of -inf alone gives NaN, which counts for nothing where another chunk has more.  Mirrors the
online softmax of torch/_inductor/fx_passes/post_grad.py (prepare_softmax), which cuts no rows.
"""

import math
from dataclasses import replace

import torch

from ..dependencies import Instruction, LoopBody, Ref, int_or_none, trace
from ..ir import ComputedBuffer, Graph, Index
from ..ops import Value, ops
from ..sizes.symbols import size
from .elsewhere import read_elsewhere
from .tile_plan import LONG_ROW, NEIGHBOURS


def with_own_maxima(
    halves: tuple[ComputedBuffer, ComputedBuffer], buffer: ComputedBuffer, graph: Graph
) -> tuple[ComputedBuffer, ComputedBuffer]:
    """(partial, final); rows alone, whose chunks are the last dimension."""
    first, second = halves
    name = shifted_by(trace(buffer)) if buffer.data.kind == "sum" else None
    top = graph.buffers.get(name or "")
    tops = graph.buffers.get(f"{name}_chunks")
    if not isinstance(top, ComputedBuffer) or not isinstance(tops, ComputedBuffer):
        return halves
    floats = {one.layout.dtype for one in (top, tops, first, second)}
    if tops.layout.size != first.layout.size or floats != {torch.float32}:
        return halves
    if getattr(tops.data, "kind", "") != "max" or top.data.ranges != buffer.data.ranges:
        return halves
    if not is_read_in_groups(first, buffer):
        return halves

    def partial(index: Index, rindex: Index) -> Value:
        place = tops.name, tops.layout.indexer(index)
        with read_elsewhere({top.name: lambda _: place}):
            return first.data.inner_fn(index, rindex)

    def final(index: Index, rindex: Index) -> Value:
        of_chunk = ops.load(tops.name, tops.layout.indexer([*index, *rindex]))
        of_row = ops.load(top.name, top.layout.indexer(index))
        lowest, zero = (ops.constant(n, torch.float32) for n in (-math.inf, 0.0))
        is_empty = ops.logical_and(ops.eq(of_chunk, lowest), ops.ne(of_row, lowest))
        share = ops.mul(second.data.inner_fn(index, rindex), ops.exp(ops.sub(of_chunk, of_row)))
        return ops.where(is_empty, zero, share)

    return (
        replace(first, data=replace(first.data, inner_fn=partial)),
        replace(second, data=replace(second.data, inner_fn=final)),
    )


def is_read_in_groups(partial: ComputedBuffer, buffer: ComputedBuffer) -> bool:
    """Is a chunk one tile, or does each of its groups of neighbours begin where a group may?  Of
    elements that a thread does not read together the loop would move each group first (16 rows of
    1,600,048 in chunks of 100,003 took 633 us instead of 118 on an H200)."""
    numbers = [*partial.layout.size, *partial.data.reduction_ranges, *buffer.data.ranges]
    count = math.prod(size(n) for n in buffer.data.reduction_ranges)
    if not all(isinstance(n, int) for n in (*map(int_or_none, numbers), int_or_none(count))):
        return False
    [chunk] = map(int, partial.data.reduction_ranges)
    return chunk <= LONG_ROW or (chunk % NEIGHBOURS == 0 and int(count) % chunk == 0)


def shifted_by(body: LoopBody) -> str | None:
    """The buffer of maxima, where a body reduces exp(v - maximum) and reads that once."""
    made: dict[object, Instruction] = {i.result: i for i in body.walk()}

    def maker(of: Instruction | None, op: str, place: int = 0) -> Instruction | None:
        argument = of.args[place] if of is not None else None
        found = made.get(argument) if isinstance(argument, Ref) else None
        return found if found is not None and found.op == op else None

    reduction = next((i for i in body.instructions if i.op == "reduction"), None)
    maximum = maker(maker(maker(reduction, "exp", 3), "sub"), "load", 1)
    names = [access.name for access in body.reads()]
    if maximum is None or names.count(maximum.args[0]) != 1:
        return None
    return maximum.args[0]

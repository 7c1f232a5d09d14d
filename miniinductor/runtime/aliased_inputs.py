"""Two inputs of a graph that writes may overlap in memory: each call looks.

In:   a compiled graph that writes to its inputs.  Out: the same, which runs the captured graph
      eagerly in a call in which two of its tensors may share a byte.

    def f(x, y):
        x.add_(1)               # f(a, a[:2]): y is written, too
        return y * 2

# PyTorch: compiles such a call for itself, over the memory that the inputs share.

Tensors that lie in one memory, and share no byte of it: a graph may write to them.

In:   the tensors of a call of a graph that writes, of which some have one storage.
Out:  True, where no two of them overlap, and the compiled graph is right; else the graph runs
      eagerly in this call.

    >>> flat = torch.zeros(100)  # parameters in one piece
    >>> are_apart([flat[:50], flat[50:]])
    True

Columns of one matrix are apart as well, though the bytes between the first and the last element of
each overlap: within a row, which both step over alike, they do not.  Where gradients are recorded
for one of the tensors the answer is no: a write to a view gives the whole memory, and so all other
views of it, another history.
Mirrors torch/_functorch/_aot_autograd/input_output_analysis.py (`compute_overlapping_inputs`).
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx

from ..eager_graphs import runnable
from ..records import CompileRecord


def guard_shared_memory(run: Callable, gm: fx.GraphModule, record: CompileRecord) -> Callable:
    """`run`, the function of a graph that writes to its inputs, which is right only if no two of
    its tensors overlap in memory: each call looks, and runs the FX graph eagerly if two may."""
    record.notes.append(
        "writes to tensors: each call first checks that no two of the graph's tensors share memory"
    )
    held = [*gm.parameters(), *gm.buffers()]  # each tensor once

    def checked(*inputs: object) -> object:
        tensors = [*[t for t in inputs if isinstance(t, torch.Tensor)], *held]
        if len({t.untyped_storage()._cdata for t in tensors}) == len(tensors):
            return run(*inputs)
        return run(*inputs) if are_apart(tensors) else runnable(gm)(*inputs)

    return checked


# --- which share no byte --------------------------------------------------------------------------
class Piece(NamedTuple):
    """What a tensor takes of its memory, in bytes."""

    storage: int
    start: Any
    end: Any  # behind its last element
    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    width: int  # of an element


def piece_of(tensor: torch.Tensor) -> Piece:
    width, sizes = tensor.element_size(), tuple(tensor.shape)
    steps = tuple([step * width for step in tensor.stride()])
    start = tensor.storage_offset() * width
    length = sum([(n - 1) * step for n, step in zip(sizes, steps)]) + width
    storage = tensor.untyped_storage()._cdata
    return Piece(storage, start, start + length, sizes, steps, width)


def are_apart(tensors: Sequence[torch.Tensor]) -> bool:
    """Does no byte belong to two of the tensors, and does autograd not mind?"""
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return False
    pieces = sorted(piece_of(tensor) for tensor in tensors if tensor.numel())
    reached: list[Piece] = []  # those before that may reach to the next one
    for piece in pieces:
        reached = [p for p in reached if p.storage == piece.storage and p.end > piece.start]
        if any(not in_columns(before, piece) for before in reached):
            return False
        reached.append(piece)
    return True


def in_columns(one: Piece, other: Piece) -> bool:
    """Do both step over rows of one length, and take other columns of them?"""
    row = max(steps_of(one), default=0)
    if row == 0 or row != max(steps_of(other), default=0):
        return False
    first, second = columns(one, row), columns(other, row)
    if max(first[1], second[1]) > row:  # one of them reaches into the next row
        return False
    return first[1] <= second[0] or second[1] <= first[0]


def steps_of(piece: Piece) -> list[int]:
    return [step for n, step in zip(piece.sizes, piece.steps) if n > 1]


def columns(piece: Piece, row: int) -> tuple[int, int]:
    """(first, behind the last) byte within a row of this length, from the memory's start."""
    within = [(n - 1) * step for n, step in zip(piece.sizes, piece.steps) if n > 1 and step < row]
    first = piece.start % row
    return first, first + sum(within) + piece.width

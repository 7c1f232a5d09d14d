"""Lowerings of rarer views, and of copies that only rearrange.

In:   unfold, as_strided, flip, roll, pad ...  Out: `View`s, and copies of them.

    flip:       index i of the result is index n - 1 - i of the base
    unfold:     index [i, k] of windows of 3, 2 apart, is index 2 * i + k of the base

Mirrors torch/_inductor/lowering.py (`as_strided`, `rev`, `constant_pad_nd`).
"""

import functools
from collections.abc import Sequence
from typing import Any

import sympy

from ..exceptions import CannotLower
from ..sizes.symbols import extent
from ..ir import Buffer, Index, Layout, TensorBox, same_layout
from ..lowering.registry import Call, aten, lower, made, normalize_dim, number, view
from ..lowering.views import along, reshape_index
from ..ops import Value, ops
from ..sizes.expressions import Mod, Size
from ..sizes.prover import is_nonnegative
from ..sizes.symbols import is_symbolic, same, same_sizes, sizes
from .joined import between


@lower(aten.unfold.default)
def unfold(call: Call, x: TensorBox, dim: int, size: int, step: int) -> TensorBox:
    """Windows along one dimension, which come last in the result."""
    rank = len(x.get_size())
    if not rank:
        return view(call, x, call.value.size, lambda index: [])
    dim = normalize_dim(dim, rank)

    def reindex(index: Index) -> Index:
        return along(index[:-1], dim, lambda i: i * step + index[-1])

    return view(call, x, call.value.size, reindex)


@lower(aten.as_strided.default)
def as_strided(
    call: Call,
    x: TensorBox,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> TensorBox:
    """Another view of x's memory; x must lie there as eager has it."""
    node: Any = call.node.args[0]
    fake = node.meta["val"]
    if (storage_offset is None or same(storage_offset, fake.storage_offset())) and (
        same_sizes(size, fake.shape) and same_layout(size, stride, sizes(fake.stride()))
    ):
        return view(call, x, size, lambda index: index)
    numbers = (*size, *stride, storage_offset)
    if x.eager is None or is_symbolic(fake) or any(isinstance(n, sympy.Expr) for n in numbers):
        raise CannotLower("as_strided of a value that eager does not have, or with symbolic sizes")
    at = x.as_buffer_view(x.eager.stride if x.eager.is_dense else None)
    if not same_layout(at.size, at.stride, x.eager.stride):
        raise CannotLower("as_strided of a tensor that does not lie in memory as eager has it")
    buffer = call.lowerer.lowered.buffers[at.name]
    start = fake.storage_offset() - int(at.offset)  # where the buffer begins in eager's storage
    offset = (fake.storage_offset() if storage_offset is None else storage_offset) - start
    last = offset + sum((n - 1) * s for n, s in zip(size, stride))
    held = extent(buffer.layout.size, buffer.layout.stride) or 0
    if offset < 0 or 0 not in size and last >= held:
        raise CannotLower("as_strided reaches beyond the tensor it is given")
    layout = Layout(x.device, x.dtype, tuple(size), tuple(stride), offset)
    return TensorBox(Buffer(at.name, layout, call.origins | x.origins))


def copied_view(*args: Any) -> TensorBox:
    """Index maths like a view, but memory of its own where it is stored: what eager copies."""
    return view(*args).copy()


@lower(aten.flip.default)
def flip(call: Call, x: TensorBox, dims: Sequence[int]) -> TensorBox:
    size = x.get_size()
    flipped = {normalize_dim(d, len(size)) for d in dims}

    def reindex(index: Index) -> Index:
        return [size[k] - 1 - i if k in flipped else i for k, i in enumerate(index)]

    return copied_view(call, x, size, reindex)


@lower(aten.repeat.default)
def repeat(call: Call, x: TensorBox, repeats: Sequence[Size]) -> TensorBox:
    own = x.get_size()
    skip = len(repeats) - len(own)

    def reindex(index: Index) -> Index:
        return [Mod(i, n) if n != 0 else i for n, i in zip(own, index[skip:])]

    return copied_view(call, x, call.value.size, reindex)


@lower(aten.roll.default)
def roll(call: Call, x: TensorBox, shifts: Sequence[Size], dims: Sequence[int] = ()) -> TensorBox:
    size = x.get_size()
    if not dims:  # of the flattened tensor
        count = sympy.prod(size)
        if not count:
            return x.copy()
        flat = view(call, x, [count], reshape_index(size, [count]))
        rolled = roll(call, flat, shifts, [0])
        return copied_view(call, rolled, size, reshape_index([count], size))
    by: dict[int, Size] = {}
    for dim, shift in zip(dims, shifts):
        dim = normalize_dim(dim, len(size))
        by[dim] = by.get(dim, 0) + shift

    def reindex(index: Index) -> Index:
        return [
            Mod(i + Mod(-by[k], size[k]), size[k]) if k in by and size[k] else i
            for k, i in enumerate(index)
        ]

    return copied_view(call, x, size, reindex)


@lower(aten.constant_pad_nd.default)
def constant_pad(call: Call, x: TensorBox, pad: Sequence[Size], value: float = 0) -> TensorBox:
    size = x.get_size()
    ends = [*zip(pad[::2], pad[1::2])][::-1]  # (before, after), of the last dimension first
    ends = [(0, 0)] * (len(size) - len(ends)) + ends
    load = x.make_loader()

    def reaches(n: Size) -> bool:
        """Out of x, perhaps?"""
        return not is_nonnegative(sympy.sympify(-n))

    def body(index: Index) -> Value:
        inside = [i - before for i, (before, _) in zip(index, ends)]
        tests = [
            between(i, 0 if reaches(before) else None, n if reaches(after) else None)
            for i, (before, after), n in zip(inside, ends, size)
            if reaches(before) or reaches(after)
        ]
        if not tests:
            return load(inside)
        is_inside = functools.reduce(ops.logical_and, tests)
        if not isinstance(value, sympy.Expr):
            return ops.masked(is_inside, lambda: load(inside), value)
        element = ops.masked(is_inside, lambda: load(inside), 0)
        return ops.where(is_inside, element, number(value, x.dtype))

    return made(call, body, x)

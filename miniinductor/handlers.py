"""A loop body is run: its closure is called on whatever handler is installed.

In:   a buffer whose body is a function over `ops`.  Out: the calls of `ops`, the last a `store`.

    >>> with set_handler(handler):                  # one that counts, records, prints, writes C++
    ...     run_body(buffer, *loop_indices(buffer.data))

extras/ has three handlers that look at a body without compiling it: its text (printed_ir.py), its
dtypes (verify.py), its values (interpreter.py).  Mirrors torch/_inductor/ops_handler.py.
"""

import functools
from collections.abc import Iterator

import sympy

from .ir import AnyLoops, ComputedBuffer, Index, Reduction, Scan, Scatter
from .ops import ops
from .sizes.expressions import Size


def loop_indices(data: AnyLoops) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
    """Loop variables of a body: i0, i1, ... and r0, r1, ... for the reduced ones."""
    return loop_variables("i", len(data.ranges)), loop_variables("r", len(data.reduction_ranges))


def loops(data: AnyLoops) -> dict[sympy.Symbol, Size]:
    """Loop variable -> how far it runs."""
    index, reduction_index = loop_indices(data)
    return dict(zip(index + reduction_index, [*data.ranges, *data.reduction_ranges]))


@functools.cache
def loop_variable(prefix: str, number: int) -> sympy.Symbol:
    return sympy.Symbol(f"{prefix}{number}", integer=True, nonnegative=True)


def loop_variables(prefix: str, count: int) -> list[sympy.Symbol]:
    return [loop_variable(prefix, i) for i in range(count)]


def run_body(buffer: ComputedBuffer, index: Index, reduction_index: Index) -> None:
    """Call the buffer's body, its reduction and its store, on the installed handler."""
    data = buffer.data
    place = index
    if isinstance(data, Reduction):
        value = data.inner_fn(index, reduction_index)
        value = ops.reduction(data.dtype, data.src_dtype, data.kind, value)
    elif isinstance(data, Scan):
        value = ops.scan(data.src_dtype, data.kind, data.inner_fn(index, reduction_index))
        if data.dtype != data.src_dtype:
            value = ops.to_dtype(value, data.dtype, data.src_dtype)
        place = data.output_index(index, reduction_index)
    else:
        value = data.inner_fn(index)
        if isinstance(data, Scatter):
            place = data.output_index(index)
    ops.store(buffer.name, buffer.layout.indexer(place), value, getattr(data, "mode", None))


def indirect_symbol(count: Iterator[int]) -> sympy.Symbol:
    """A fresh symbol for a position that is data."""
    return sympy.Symbol(f"indirect{next(count)}", integer=True, nonnegative=True)

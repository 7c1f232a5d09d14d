"""The symbols over which a body is run that is only looked at: printed, checked, interpreted.

In:   the data of a buffer.  Out: its loop variables, and how far each runs.

    run_body(buffer, *loop_indices(buffer.data))     # with a handler installed: i0, i1
"""

from collections.abc import Iterator
from typing import Any

import sympy

from ..handlers import loop_variables
from ..sizes.expressions import Position, Size


def loop_indices(data: Any) -> tuple[list[sympy.Symbol], list[sympy.Symbol]]:
    """Loop variables of a body: i0, i1, ... and r0, r1, ... for the reduced ones."""
    return loop_variables("i", len(data.ranges)), loop_variables("r", len(data.reduction_ranges))


def loops(data: Any) -> dict[sympy.Symbol, Size]:
    """Loop variable -> how far it runs."""
    index, reduction_index = loop_indices(data)
    return dict(zip(index + reduction_index, [*data.ranges, *data.reduction_ranges]))


def indirect_symbol(count: Iterator[int]) -> sympy.Symbol:
    """A fresh symbol for a position that is data."""
    return Position(f"indirect{next(count)}", integer=True, nonnegative=True)

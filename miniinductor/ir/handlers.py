"""A loop body is run: its closure is called on whatever handler is installed.

In:   a buffer whose body is a function over `ops`.  Out: the calls of `ops`, the last a `store`.

    >>> with set_handler(handler):                  # one that counts, records, prints, writes C++
    ...     run_body(buffer, loop_variables("i", len(buffer.data.ranges)), [])

`Recorder` (recording.py) and the writers of kernels (codegen/) are handlers.  Three look at a
body without compiling it: its text (extras/printed_ir.py), its dtypes (verify.py), its values
(extras/interpreter.py).  Mirrors torch/_inductor/ops_handler.py.
"""

import functools
from collections.abc import Iterator
from typing import Any

import sympy

from ..sizes.expressions import Position, Size
from .loops import ComputedBuffer, Index
from .ops import ops

made_variables: set[sympy.Symbol] = set()  # all that were asked for, by any graph


@functools.cache
def loop_variable(prefix: str, number: int) -> sympy.Symbol:
    variable = sympy.Symbol(f"{prefix}{number}", integer=True, nonnegative=True)
    made_variables.add(variable)
    return variable


def is_loop_variable(symbol: sympy.Symbol) -> bool:
    """Does a loop run over it?  A size is none, whatever its name is."""
    return symbol in made_variables


def loop_variables(prefix: str, count: int) -> list[sympy.Symbol]:
    return [loop_variable(prefix, i) for i in range(count)]


# --- of a body that is only looked at: printed, checked, interpreted ------------------------------
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


def run_body(buffer: ComputedBuffer, index: Index, reduction_index: Index) -> None:
    """Call the buffer's body, its reduction and its store, on the installed handler."""
    value, place = buffer.data.element(index, reduction_index)
    mode = getattr(buffer.data, "mode", None)
    ops.store(buffer.name, buffer.layout.indexer(place), value, mode)

"""What the writer of a C++ kernel asks its strategies: every question, and what an answer means.

In:   what the writer knows where it asks.  Out: the answer of a strategy, or None, which leaves the
      question to the next strategy, at the end to the plain writer.

    class Tables(Strategy):                     # (codegen/strategy.py)
        def element(self, name, index, dtype, found):
            return f"table_{name}[{index}]"

A strategy has methods for those questions alone that it answers.  Nobody inherits this class: it is
where one reads what each method is given.  *Lanes* are the iterations of the innermost loop, which
the compiler puts into vector registers.
"""

from typing import Protocol

import sympy
import torch

from ..codegen.code import Code
from ..codegen.common import Value
from ..codegen.cpp_reductions import Sums
from ..codegen.plan import KernelPlan
from ..codegen.strategy import Found
from ..codegen.tree import Bound, Statements
from ..dependencies import LoopBody


class Questions(Protocol):
    # -- before anything is written ----------------------------------------------------------------
    def longer_lanes(self, bodies: list[LoopBody]) -> list[LoopBody] | None:
        """The bodies of a pointwise kernel over other loops, whose last one is longer.  Asked
        before `applies`."""
        ...

    # -- parts of the kernel -----------------------------------------------------------------------
    def kernel_body(self) -> Found:
        """All that the outer loops run."""
        ...

    def loop_nest(self, body: Statements) -> Found:
        """The kernel's outer loops around `body`."""
        ...

    def pieces(self) -> list[KernelPlan] | None:
        """The lanes cut into parts: a plan for each, which becomes a loop of its own."""
        ...

    def begins_again(self, body: Statements) -> bool | None:
        """Must `body`, which is complete now, be written once more, with what this learned?"""
        ...

    def first_in_lanes(self, body: Statements) -> Found:
        """What stands before `body` in the loop over the lanes."""
        ...

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        """A stage's loops over r0, r1, ... around `body`, and the accumulators' declarations."""
        ...

    def reduced_rows(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """The same where several loops reduce; r0 goes from `start` to `end`."""
        ...

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        """How many elements `innermost` may add up in floats."""
        ...

    def innermost(self, body: Statements, accumulators: Sums, start: Bound, end: Bound) -> Found:
        """The loop over the lanes, from `start` to `end`."""
        ...

    # -- parts of a statement ----------------------------------------------------------------------
    def name_above(self, expression: Code, c_type: str, inner: bool) -> str | None:
        """The name of `expression`, if this computes it in a loop further out."""
        ...

    def error_lines(self, condition: Value) -> Found:
        """The statements to which a check of `condition` is added."""
        ...

    def place_of(self, name: str, index: sympy.Expr) -> sympy.Expr | None:
        """The index of an element that is read, in another form that is cheaper to compute."""
        ...

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, found: Code) -> Code | None:
        """What is read in place of the element `found`: a copy of it in a small array."""
        ...

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> Code | None:
        """What is read or written in place of an element: a copy of it; of 16 bits, as a float."""
        ...

    def stored_place(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        """What is written in place of an element of memory: a copy of it, of the same type."""
        ...

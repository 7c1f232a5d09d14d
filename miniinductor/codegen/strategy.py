"""Where faster forms of a C++ kernel come in: what the plain writer asks, and who may answer.

In:   what the writer knows where it asks.  Out: what is written in place of the plain form, or
      None, which leaves it to the next strategy, at the end to the plain writer.

    class Spread(Strategy):
        def applies(self) -> bool: ...
        def inner_loop(self, body, accumulators): ...

The strategies lie in miniinductor/speed/; speed/strategies.py has the list, in the order in which
they are asked.  Without them every kernel is still written, and right: loops over threads, and
loops over *lanes* (the iterations of the innermost loop, which the compiler puts into vector
registers).  PyTorch: decides this by subclasses of its C++ kernel (vector, tile2d) and by flags.
"""

from typing import TYPE_CHECKING, TypeAlias

import sympy
import torch

from .code import Code
from .common import Value
from .tree import Statement, Statements

if TYPE_CHECKING:
    from ..dependencies import LoopBody
    from .cpp import CppKernelWriter
    from .cpp_reductions import Sums

Found: TypeAlias = list[Statement] | None


class Strategy:
    """One way to make kernels faster; one object for each kernel.  Every method but the first three
    is a question: `self.ask("inner_loop", body, accumulators)` of the writer."""

    writes_alone = False  # no other strategy is asked
    keeps_stack = True  # values that cross stages may wait on the stack of one thread

    def __init__(self, writer: "CppKernelWriter"):
        self.writer = writer

    def applies(self) -> bool:
        """Has this kernel a use for it?  Asked once, when loops and threads are decided."""
        return True

    def begin_lanes(self) -> None:
        """Told, not asked: the body of a loop over lanes is written from here on."""

    # -- before anything is written ----------------------------------------------------------------
    def longer_lanes(self, bodies: "list[LoopBody]") -> "list[LoopBody] | None":
        """The bodies of a pointwise kernel over other loops, whose last one is longer.  Asked
        before `applies`."""
        return None

    # -- parts of the kernel -----------------------------------------------------------------------
    def kernel_body(self) -> Found:
        """All that the outer loops run."""
        return None

    def loop_nest(self, body: Statements) -> Found:
        """The kernel's outer loops around `body`."""
        return None

    def first_in_lanes(self, body: Statements) -> Found:
        """What stands before `body` in the loop over the lanes."""
        return None

    def inner_loop(self, body: Statements, accumulators: "Sums") -> Found:
        """A stage's loops over r0, r1, ... around `body`, and the accumulators' declarations."""
        return None

    # -- parts of a statement ----------------------------------------------------------------------
    def name_above(self, expression: Code, c_type: str, inner: bool) -> str | None:
        """The name of `expression`, if this computes it in a loop further out."""
        return None

    def error_lines(self, condition: Value) -> Found:
        """The statements to which a check of `condition` is added."""
        return None

    def place_of(self, name: str, index: sympy.Expr) -> sympy.Expr | None:
        """The index of an element that is read, in another form that is cheaper to compute."""
        return None

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype) -> Code | None:
        """What is read in place of an element: a copy of it in an array."""
        return None


STRATEGIES: list[type[Strategy]] = []  # in the order in which they are asked


def applicable(candidates: list[Strategy]) -> list[Strategy]:
    """Those that apply to their kernel."""
    found: list[Strategy] = []
    for one in candidates:
        if one.applies():
            if one.writes_alone:
                return [one]
            found.append(one)
    return found

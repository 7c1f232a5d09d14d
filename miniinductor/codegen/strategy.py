"""Where faster forms of a C++ kernel come in: what the plain writer asks, and who may answer.

In:   a strategy class, registered with its place in the order.  Out: statements of the kernel's
      tree, or None, which leaves it to the next strategy and at the end to the plain writer.

    @strategy(order=40)
    class Spread(Strategy):
        def applies(self) -> bool: ...
        def inner_loop(self, body): ...

The strategies lie in miniinductor/speed/.  Without them every kernel is still written, and right:
loops over threads, loops over vector lanes (`omp simd`), and sums of chunks.  PyTorch: decides this
by subclasses of its C++ kernel (vector, tile2d) and by flags.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy
import torch

from .tree import Statement, Statements

if TYPE_CHECKING:
    from .cpp import CppKernelWriter
    from .cpp_reductions import Accumulator


class Strategy:
    """One way to make kernels faster; one object for each kernel.  Each method is a question, asked
    of those that apply, in their order; what is not None is taken."""

    def __init__(self, writer: "CppKernelWriter"):
        self.writer = writer

    def applies(self) -> bool:
        """Has this kernel a use for it?  Asked once, when loops and threads are decided."""
        return True

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, element: str) -> str | None:
        """Where an element that is read lies, if not in `element` itself."""
        return None

    def loop_nest(self, body: Statements) -> list[Statement] | None:
        """The kernel's outer loops around `body`."""
        return None

    def inner_loop(
        self, body: Statements, accumulators: "list[Accumulator]"
    ) -> list[Statement] | None:
        """A stage's loops over r0, r1, ... around `body`, and the accumulators' declarations."""
        return None

    def reduced_rows(
        self, body: Statements, accumulators: "list[Accumulator]", start: str, end: str
    ) -> list[Statement] | None:
        """The same where several loops reduce; r0 goes from `start` to `end`."""
        return None

    def longest_run(self, body: Statements, accumulators: "list[Accumulator]") -> int | None:
        """How many elements `innermost` may add up in floats."""
        return None

    def innermost(
        self, body: Statements, accumulators: "list[Accumulator]", start: str, end: str
    ) -> list[Statement] | None:
        """The loop over the lanes, from `start` to `end`."""
        return None


STRATEGIES: dict[int, type[Strategy]] = {}  # by their place in the order


def strategy(order: int) -> Callable[[type[Strategy]], type[Strategy]]:
    def register(cls: type[Strategy]) -> type[Strategy]:
        assert order not in STRATEGIES, f"{STRATEGIES[order].__name__} has order {order}, too"
        STRATEGIES[order] = cls
        return cls

    return register


def strategies_for(writer: "CppKernelWriter") -> list[Strategy]:
    """Those that apply to a kernel, in their order."""
    asked = [STRATEGIES[order](writer) for order in sorted(STRATEGIES)]
    return [one for one in asked if one.applies()]

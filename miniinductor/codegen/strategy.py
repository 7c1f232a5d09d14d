"""Where faster forms of a C++ kernel come in: what the plain writer asks, and who may answer.

In:   a strategy class, registered with its place in the order.  Out: what is written in place of
      the plain form, or None, which leaves it to the next strategy, at the end to the plain writer.

    @strategy(order=50)
    class Spread(Strategy):
        def applies(self) -> bool: ...
        def inner_loop(self, body, accumulators): ...

The strategies lie in miniinductor/speed/.  Without them every kernel is still written, and right:
loops over threads, loops over vector lanes (`omp simd`), and sums of chunks.  PyTorch: decides this
by subclasses of its C++ kernel (vector, tile2d) and by flags.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import sympy
import torch

from ..dependencies import LoopBody
from .cpp_reductions import Sums
from .tree import Statement, Statements

if TYPE_CHECKING:
    from .common import Value
    from .cpp import CppKernelWriter
    from .plan import KernelPlan

Found: TypeAlias = list[Statement] | None


class Strategy:
    """One way to make kernels faster; one object for each kernel.  Each method is a question to the
    strategies that apply; the first answer that is not None is taken.  *Lanes* are the iterations
    of the innermost loop, which the compiler puts into vector registers."""

    writes_alone = False  # no other strategy is asked
    keeps_stack = True  # values that cross stages may wait on the stack of one thread
    answered: frozenset[str] = frozenset()  # the questions that a subclass has an answer to

    def __init_subclass__(cls) -> None:
        own = cls.__mro__[: cls.__mro__.index(Strategy)]
        cls.answered = frozenset(name for one in own for name in vars(one))

    def __init__(self, writer: "CppKernelWriter"):
        self.writer = writer

    # -- before anything is written ----------------------------------------------------------------
    def longer_lanes(self, bodies: list[LoopBody]) -> list[LoopBody] | None:
        """The bodies of a pointwise kernel over other loops, whose last one is longer.  Asked
        before `applies`."""
        return None

    def applies(self) -> bool:
        """Has this kernel a use for it?  Asked once, when loops and threads are decided."""
        return True

    # -- parts of the kernel -----------------------------------------------------------------------
    def kernel_body(self) -> Found:
        """All that the outer loops run."""
        return None

    def loop_nest(self, body: Statements) -> Found:
        """The kernel's outer loops around `body`."""
        return None

    def pieces(self) -> "list[KernelPlan] | None":
        """The lanes cut into parts: a plan for each, which becomes a loop of its own."""
        return None

    def begin_lanes(self) -> None:
        """Told, not asked: the body of a loop over lanes is written from here on."""

    def begins_again(self, body: Statements) -> bool | None:
        """Must `body`, which is complete now, be written once more, with what this learned?"""
        return None

    def first_in_lanes(self, body: Statements) -> Found:
        """What stands before `body` in the loop over the lanes."""
        return None

    def inner_loop(self, body: Statements, accumulators: Sums) -> Found:
        """A stage's loops over r0, r1, ... around `body`, and the accumulators' declarations."""
        return None

    def reduced_rows(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        """The same where several loops reduce; r0 goes from `start` to `end`."""
        return None

    def longest_run(self, body: Statements, accumulators: Sums) -> int | None:
        """How many elements `innermost` may add up in floats."""
        return None

    def innermost(self, body: Statements, accumulators: Sums, start: str, end: str) -> Found:
        """The loop over the lanes, from `start` to `end`."""
        return None

    # -- parts of a statement ----------------------------------------------------------------------
    def name_above(self, expression: str, c_type: str, inner: bool) -> str | None:
        """The name of `expression`, if this computes it in a loop further out."""
        return None

    def error_lines(self, condition: "Value") -> Found:
        """The statements to which a check of `condition` is added."""
        return None

    def place_of(self, name: str, index: sympy.Expr) -> sympy.Expr | None:
        """The index of an element that is read, in another form that is cheaper to compute."""
        return None

    def element(self, name: str, index: sympy.Expr, dtype: torch.dtype, element: str) -> str | None:
        """What is read in place of `element`: a copy of it in a small array."""
        return None

    def float_place(
        self, name: str, index: sympy.Expr, dtype: torch.dtype, written: bool
    ) -> str | None:
        """What is read or written in place of an element: a copy of it; of 16 bits, as a float."""
        return None


STRATEGIES: dict[int, type[Strategy]] = {}  # by their place in the order


def strategy(order: int) -> Callable[[type[Strategy]], type[Strategy]]:
    def register(cls: type[Strategy]) -> type[Strategy]:
        assert order not in STRATEGIES, f"{STRATEGIES[order].__name__} has order {order}, too"
        STRATEGIES[order] = cls
        return cls

    return register


def strategies_for(writer: "CppKernelWriter") -> list[Strategy]:
    """One of each kind, in their order."""
    return [STRATEGIES[order](writer) for order in sorted(STRATEGIES)]


def applicable(candidates: list[Strategy]) -> list[Strategy]:
    """Those that apply to their kernel."""
    found: list[Strategy] = []
    for one in candidates:
        if one.applies():
            if one.writes_alone:
                return [one]
            found.append(one)
    return found

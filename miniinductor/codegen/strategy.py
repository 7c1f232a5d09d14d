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

from .tree import Statement

if TYPE_CHECKING:
    from .cpp import CppKernelWriter

Found: TypeAlias = list[Statement] | None


class Strategy:
    """One way to make kernels faster; one object for each kernel.

    The writer asks questions of the strategies that apply: `self.ask("inner_loop", body,
    accumulators)`.  A strategy has a method for each question that it answers, and the first answer
    that is not None is taken.  speed/questions.py lists all of them."""

    writes_alone = False  # no other strategy is asked
    keeps_stack = True  # values that cross stages may wait on the stack of one thread

    def __init__(self, writer: "CppKernelWriter"):
        self.writer = writer

    def applies(self) -> bool:
        """Has this kernel a use for it?  Asked once, when loops and threads are decided."""
        return True

    def begin_lanes(self) -> None:
        """Told, not asked: the body of a loop over lanes is written from here on."""


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

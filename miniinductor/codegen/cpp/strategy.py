"""Where faster forms of a C++ kernel come in: what the plain writer asks, and who may answer.

In:   what the writer knows where it asks.  Out: what is written in place of the plain form, or
      None, which leaves it to the next strategy, at the end to the plain writer.

    class Spread(Strategy):
        def applies(self) -> bool: ...
        def inner_loop(self, body, accumulators): ...

cpp.py has the list, in the order in which they are asked.  Without them every kernel is still
written, and right: loops over threads, and loops over *lanes* (the iterations of the innermost
loop, which the compiler puts into vector registers).  The questions, each a method:

    longer_lanes(bodies)            the bodies of a pointwise kernel over other loops, whose last
                                    one is longer; asked before `applies`
    kernel_body()                   all that the outer loops run
    loop_nest(body)                 the kernel's outer loops around `body`
    first_in_lanes(body)            what stands before `body` in the loop over the lanes
    inner_loop(body, accumulators)  a stage's loops over r0, r1, ... around `body`, and the
                                    accumulators' declarations
    name_above(expression, c_type, inner)   the name of `expression`, if this computes it in a loop
                                    further out
    error_lines(condition)          the statements to which a check of `condition` is added
    place_of(name, index)           the index of an element that is read, in a cheaper form
    element(name, index, dtype)     what is read in place of an element: a copy of it in an array

PyTorch: decides this by subclasses of its C++ kernel (vector, tile2d) and by flags.
"""

from typing import TYPE_CHECKING, TypeAlias

from ..tree import Statement

if TYPE_CHECKING:
    from .kernel_writer import CppKernelWriter

Found: TypeAlias = list[Statement] | None


class Strategy:
    """One way to make kernels faster; one object for each kernel."""

    writes_alone = False  # no other strategy is asked
    keeps_stack = True  # values that cross stages may wait on the stack of one thread

    def __init__(self, writer: "CppKernelWriter"):
        self.writer = writer

    def applies(self) -> bool:
        """Has this kernel a use for it?  Asked once, when loops and threads are decided."""
        raise NotImplementedError

    def begin_lanes(self) -> None:
        """Told, not asked: the body of a loop over lanes is written from here on."""

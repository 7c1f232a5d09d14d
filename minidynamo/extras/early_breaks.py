"""A value that cannot be rebuilt behind the graph (a generator that has started): the graph ends in
front of where it was made, and plain Python makes it.

In:   the `Break` that rebuilding raised, which knows that place as its `step`.
Out:  one more step at which the next attempt is split.

    rows = iter_rows(x)         # the graph ends here
    first = next(rows)
    print(first)                # ... because here the program breaks it, and `rows` lives on

Without this file such a frame runs as plain Python.
"""

from .extending import extends
from ..conversion import Conversion
from ..exceptions import Break, SkipFrame
from ..symbolic_eval.evaluator import RootFrame


@extends(Conversion)
def split_before(conversion: Conversion, broken: Break, frame: RootFrame | None) -> None:
    if broken.step is None or broken.step in conversion.forced:
        raise SkipFrame(str(broken)) from broken
    if frame is not None and frame.split is not None:
        found = frame.split[1]
        broken.reason = f"{broken.reason}: {found.reason}"
        broken.hint = found.hint or broken.hint
    conversion.forced[broken.step] = broken.with_traceback(None)

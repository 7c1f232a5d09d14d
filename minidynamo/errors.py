"""The exceptions of capture: what the user sees, and the signals that the evaluator uses inside.

Unsupported        for the user, under fullgraph=True: a graph break with its line
SpecializationError  for the user: `mark_dynamic` could not be kept, with the line
BackendError       for the user: the backend that they gave has raised
Break              the evaluator met something it cannot trace: the root frame is split there
Restart            analysis starts over, knowing more: where it must split, what is an input
SkipFrame          this frame cannot be split: run it as plain Python
ObservedException  the *traced program* raised; handlers of the traced program see it
"""

from typing import Any


class Unsupported(RuntimeError):
    """A graph break where none was allowed (fullgraph=True)."""


class SpecializationError(Unsupported):
    """A size that was marked dynamic had to be taken as a number."""


class BackendError(RuntimeError):
    """A backend of the user's has raised: `__cause__` is what it raised."""


class Break(Exception):
    """`kind` groups breaks in the counters, `reason` is a sentence, `hint` says how to remove the
    break.

    Where it was met, or where a value was made that cannot be rebuilt: `stack` is [(file, line,
    function), ...], the outermost frame first; `step` counts the instructions of the frame that is
    compiled (`evaluator.RootFrame`).
    """

    def __init__(
        self, kind: str, reason: str, hint: str = "", stack: Any = None, step: Any = None
    ) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.hint = hint
        self.stack = stack
        self.step = step


class Restart(Exception):
    """Trace again from the start: something was learned by which this attempt cannot go on."""


class SkipFrame(Exception):
    """Run the frame as it is; `reason` is recorded, and the user warned once."""


class NoTensors(SkipFrame):
    """The frame has nothing to compile: no warning for it."""


class ObservedException(Exception):
    """`var` is the symbolic exception object that the traced program raised."""

    def __init__(self, var: Any) -> None:
        super().__init__(var)
        self.var = var

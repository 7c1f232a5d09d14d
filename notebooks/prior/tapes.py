"""Two inputs, two tapes, drawn beside the program that made them.

In:   a function and two inputs.   Out: a picture with three columns and the lines between them.
"""

import sys
import types
from collections.abc import Callable
from typing import Any

from minidynamo.explain.draw_code import Columns, runs, source_lines

from .recording import Recording


class _LineRecording(Recording):
    """A recording that notes which line of `code` each entry came from."""

    def __init__(self, code: types.CodeType) -> None:
        super().__init__()
        self.code = code
        self.lines: list[int] = []

    def __torch_function__(
        self,
        operation: Callable,
        types: Any,
        args: tuple = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        length = len(self.tape)
        frame: types.FrameType | None = sys._getframe(1)
        result = super().__torch_function__(operation, types, args, kwargs)
        while frame is not None and frame.f_code is not self.code:
            frame = frame.f_back
        self.lines += [frame.f_lineno if frame else 0] * (len(self.tape) - length)
        return result


def draw_tapes(function: Callable, first_input: Any, second_input: Any) -> Columns:
    """The tape of one input | the program | the tape of another one: a tape is one way through the
    program."""
    lines, first = source_lines(function.__code__)
    tapes = []
    for x in (first_input, second_input):
        tape = _LineRecording(function.__code__)
        tape.slot(x)
        with tape:
            tape.result = tape.encode(function(x))
        tapes.append(
            (
                repr(tape).replace("torch.Tensor.", "").replace("torch.", "").splitlines()[:-1],
                [n - first for n in tape.lines],
            )
        )
    (left, left_lines), (right, right_lines) = tapes
    links = [(0, a, b, line, line) for line, a, b in runs(left_lines)] + [
        (1, line, line, a, b) for line, a, b in runs(right_lines)
    ]
    branches = {
        n for n, line in enumerate(lines) if line.lstrip().startswith(("if ", "elif ", "while "))
    }
    return Columns(
        f"{function.__name__}: two inputs, two tapes",
        [
            ("tape of the first input", left),
            ("the program", lines),
            ("tape of the second input", right),
        ],
        links,
        {(1, n): "the choice is on no tape" for n in branches},
    )

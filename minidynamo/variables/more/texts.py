"""f-strings with symbolic numbers: put together when the program runs.

In:   a formatted value.   Out: a TextVar, which pins its numbers only if the text is looked at.

    >>> TextVar(["size ", (SymVar(n), "")])         # f"size {n}"
"""

import functools
import re
from typing import Any

from ..base import Codegen, Frame, Variable
from ..symbolic import SymVar, Unpinned

PLAIN = re.compile(r"[<>^=]?[ +-]?#?\d*[,_]?d?")  # specifications that format every int


class TextVar(Unpinned):
    """An f-string: `parts` are texts and (SymVar, format specification), and it is put together
    when the program runs."""

    cls = str
    parts: list

    def as_constant(self) -> Any:
        number = lambda value, how: format(value.as_constant(), how)  # noqa: E731
        return "".join(part if type(part) is str else number(*part) for part in self.parts)

    def truth(self, tx: Frame) -> bool:
        return bool(self.as_constant())

    def identity(self) -> Any:
        return self.as_constant()

    def argument(self, part: Any) -> Any:
        return self.as_constant()

    def reconstruct(self, cg: Codegen) -> None:
        texts = [
            part.replace("{", "{{").replace("}", "}}") if type(part) is str else f"{{:{part[1]}}}"
            for part in self.parts
        ]
        numbers = [part[0] for part in self.parts if type(part) is not str]
        pushed = [functools.partial(number.reconstruct, cg) for number in numbers]
        cg.call_object("".join(texts).format, *pushed)


def parts_of(value: Variable, specification: str = "") -> list | None:
    """The parts of a formatted value, or None: nothing is symbolic, or formatting may raise."""
    if type(value) is TextVar and not specification:
        return value.parts
    if type(value) is not SymVar or value.python_type() is not int:
        return None
    return [(value, specification)] if PLAIN.fullmatch(specification) else None

"""Texts of stages whose lines know what they show: provenance of kernels, loop IR and wrappers.

In:   whoever writes a line says what it computes (`Marked.of`), while it writes it: texts are never
      parsed.  Out: `Listing`s, whose `about` explain follows from a kernel to the source.

    >>> line = Marked.of("const float tmp1 = tmp0 + 1;", marks=["buf0.2"])
    >>> Listing.of(["int64_t n = 3;", *indent([line])]).about
    [('', (), '', ''), ('', ('buf0.2',), '', '')]

Names.  "mul_3" is an FX node, "buf0" a buffer, "buf0.2" the value that instruction 2 of its body
makes, "buf0:2" line 2 of it before fusion, "group:buf0+buf1" what becomes one kernel.
Mirrors torch/_inductor/debug.py (inductor provenance tracking), which finds it out afterwards.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Self, TypeAlias

About: TypeAlias = tuple[str, tuple[str, ...], str, str]  # name, marks, reason, op
NOTHING: About = ("", (), "", "")


class Text(str):
    """A text of a stage, or a part of one, and what is known `about` it."""

    about: Any

    def written(self, text: str) -> Self:
        """The same in other words, such as indented."""
        changed = type(self)(text)
        changed.about = self.about
        return changed


class Marked(Text):
    """A line of a stage's text, and what it shows.

    name: the object that it defines ("buf0.3", statement 3 of buf0), or "".  marks: the names of
    what it came from: an FX node, statements, buffers.  reason: why it came from nothing.  op: what
    is computed."""

    about: About

    @staticmethod
    def of(
        text: str, name: str = "", marks: Sequence[str] = (), reason: str = "", op: str = ""
    ) -> "Marked":
        line = Marked(text)
        line.about = name, tuple(marks), reason, op
        return line


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines, further to the right; marks stay."""
    space = "    " * depth

    def moved(line: str) -> str:
        if isinstance(line, Marked):
            return line.written(space + line)
        return space + line if line else line

    return [moved(line) for line in lines]


class Listing(Text):
    """A stage's whole text; `about`: for each line its name, marks, reason and op."""

    about: list[About]

    @staticmethod
    def of(lines: Iterable[str]) -> "Listing":
        parts = list(lines)
        text = Listing("\n".join(parts))
        text.about = [getattr(line, "about", NOTHING) for line in parts]
        return text


@functools.singledispatch
def lines_of(stage: Any) -> list[str]:
    """A stage of the compiler, or a part of one, as text.  (extras/printed_ir.py knows how.)"""
    return [object.__repr__(stage)]


def listing_of(stage: Any) -> Listing:
    return Listing.of(lines_of(stage))

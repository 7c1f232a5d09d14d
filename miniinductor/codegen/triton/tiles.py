"""Tiles under computation: values that know along which axes they vary, and lines that know what
they read and make.

    >>> scope = TileScope()
    >>> scope.name("in0 * 2", frozenset()), scope.name("in0 * 2", frozenset())      # once
    ('tmp0', 'tmp0')
    >>> scope.code
    [Line(text='tmp0 = in0 * 2', makes='tmp0', reads=frozenset(), is_early=False, is_comment=False)]

A line is never parsed again: what it reads is said when it is made.  From that follows which lines
nobody needs (`without_dead_lines`), and which loads may stand first (`loads_first`).

Values that are made of indices and constants alone: how large they can be.

In:   what a body computes of `index_expr`s and numbers.  Out: `Bounded` tiles.  An integer of them
      is computed in 32 bits, and as a position it needs no check where it is always in range.

    (arange(224) + 0.5) * 0.5 - 0.5, at least 0, as an integer:  0 to 111, one of 112 rows

So it is with resampling, where eight positions of each element would be checked, all of 64 bits
(on an H100 those made a bilinear resampling three times slower than torch.compile's).  Nothing that
is read from memory is bounded: a float with bounds is never a NaN, an integer never wraps.

Mirrors torch/_inductor/bounds.py (`ValueRangeAnalysis`) and the choice of `tl.int32` in
torch/_inductor/optimize_indexing.py.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from ...ir.loops import playing
from ...records import Marked, indent
from ..common import Scope, marked

Axes: TypeAlias = frozenset[str]
NO_AXES: Axes = frozenset()


@dataclass(frozen=True)
class Tile:
    """A value: a name in the kernel, or a literal."""

    text: str
    dtype: torch.dtype
    axes: Axes = NO_AXES  # along which it varies: "x", "r", ...
    is_literal: bool = False  # a Python number, which has no dtype

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Line:
    text: str
    makes: str = ""  # the temporary that it names
    reads: frozenset[str] = frozenset()  # names of others
    is_early: bool = False  # a load that waits for nothing
    is_comment: bool = False
    # as that of codegen/cpp/statements.py's Line
    origin: Any = field(default_factory=lambda: playing.value, compare=False, repr=False)

    def marked(self) -> Marked:
        return marked(self.text, self.origin)


@dataclass
class Loop:
    header: str
    body: list[Line]


Code: TypeAlias = Line | Loop


def noted(line: str, comment: str) -> str:
    return f"{line:66}  # {comment}" if comment else line


def plain(texts: Iterable[str], origin: Any) -> list[Line]:
    """Lines that neither make nor read temporaries."""
    return [Line(text, origin=origin) for text in texts]


class TileScope(Scope):
    """The lines of one nesting level."""

    def __init__(self, parent: "TileScope | None" = None):
        super().__init__(parent)
        self.code: list[Code] = []

    def name(
        self, expression: str, reads: frozenset[str], comment: str = "", is_early: bool = False
    ) -> str:
        """The name of a value; an expression is computed once."""
        name = self.lookup(expression)
        if name is None:
            name = self.known[expression] = self.fresh("tmp")
            text = noted(f"{name} = {expression}", comment)
            self.makers[name] = [playing.value]
            self.code.append(Line(text, name, reads, is_early, origin=self.makers[name]))
        return name

    def snapshot(self) -> tuple[list[Code], dict[object, str]]:
        return list(self.code), dict(self.known)

    def restore(self, before: tuple[list[Code], dict[object, str]]) -> None:
        self.code, self.known = before


# --- a kernel's body ------------------------------------------------------------------------------
def all_lines(code: Iterable[Code]) -> list[Line]:
    found: list[Line] = []
    for piece in code:
        found += piece.body if isinstance(piece, Loop) else [piece]
    return found


def without_dead_lines(code: Sequence[Code]) -> list[Code]:
    """Without temporaries that nobody reads: the wide copy of a value that is only stored."""
    while True:
        lines = all_lines(code)
        read = frozenset().union(*[line.reads for line in lines])
        dead = {line for line in lines if line.makes and line.makes not in read}
        if not dead:
            return list(code)
        code = [
            without(piece, dead)
            for piece in code
            if not isinstance(piece, Line) or piece not in dead
        ]


def without(piece: Code, dead: set[Line]) -> Code:
    if isinstance(piece, Line):
        return piece
    return Loop(piece.header, [line for line in piece.body if line not in dead])


def loads_first(block: Sequence[Line], most: int) -> list[Line]:
    """Loads that wait for nothing stand before all computation, up to `most` of them, so that they
    are under way together."""
    first = next((n for n, line in enumerate(block) if line.makes), len(block))
    if first > 0 and block[first - 1].is_comment:
        first -= 1
    after = list(block[first:])
    early = [line for line in after if line.is_early][:most]
    without_comments = [line for line in after if not line.is_comment]
    if without_comments[: len(early)] == early:
        return list(block)
    return [*block[:first], *early, *[line for line in after if line not in early]]


def texts(code: Sequence[Code], most: int) -> list[str]:
    """The body as text; most: loads that may wait in registers until they are used."""
    found: list[str] = []
    block: list[Line] = []
    for piece in code:
        if isinstance(piece, Line):
            block.append(piece)
            continue
        block.append(Line(piece.header, origin="a loop"))
        found += [line.marked() for line in loads_first(block, most)]
        found += indent([line.marked() for line in loads_first(piece.body, most)])
        block = []
    return found + [line.marked() for line in loads_first(block, most)]

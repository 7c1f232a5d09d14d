"""(coverage) A wrapper's long lines are broken at commas, for whoever reads it.

In:   the lines of a wrapper.  Out: lines of at most about 108 columns that do the same.

    >>> wrapped("buf0 = f(" + "argument, " * 14 + "last)")[1]
    '         argument, argument, argument, argument, last)'
"""

import textwrap

from ..hooks import extends
from ..listings import Marked
from ..wrapper import WrapperWriter


@extends(WrapperWriter)
class LaidOutWriter(WrapperWriter):
    def with_workspace(self, lines: list[str]) -> list[str]:
        return [piece for line in super().with_workspace(lines) for piece in wrapped(line)]


def wrapped(line: str, width: int = 108) -> list[str]:
    """A long call or tuple over several lines, broken at commas, aligned after its opening
    bracket."""
    has_string = "'" in line or '"' in line  # never cut one
    if len(line) <= width or "(" not in line or ")" not in line or has_string:
        return [line]
    # a line can only be cut between brackets: up to the one that closes the first
    column, depth = line.index("(") + 1, 0
    for end in range(column - 1, len(line)):
        depth += (line[end] == "(") - (line[end] == ")")
        if not depth:
            break
    pieces = textwrap.wrap(
        line[column:end], max(40, width - column), break_long_words=False, break_on_hyphens=False
    )
    pieces = pieces or [""]
    pieces[-1] += line[end:]
    cut = [line[:column] + pieces[0], *[" " * column + piece for piece in pieces[1:]]]
    return [line.written(piece) for piece in cut] if isinstance(line, Marked) else cut

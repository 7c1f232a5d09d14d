"""What lines of a kernel are made of: the names that they read, and what they use of the prelude.

In:   statements of a kernel's tree.  Out: names.

    >>> body = [Line(code("{}[{}] = {};", named("out0"), named("r0"), named("tmp0")))]
    >>> names_in(body)
    ['out0', 'r0', 'tmp0']

Strategies that move lines, or ask what they cost, ask here; no text is searched (codegen/code.py).
"""

from collections.abc import Iterator

from ..codegen.code import Code
from ..codegen.tree import Block, Comment, Line, Loop, Statements, walk


def names_in(statements: Statements) -> list[str]:
    """What lines and conditions read, and write to, as often as it stands there."""
    return [name for text in codes(statements) for name in text.reads]


def uses_of(statements: Statements) -> frozenset[str]:
    """What they use of the prelude, and divisions."""
    return frozenset().union(*[text.uses for text in codes(statements)])


def codes(statements: Statements) -> Iterator[Code]:
    """The code of lines and of conditions.  TypeError where one is a plain text."""
    for one in walk(statements):
        if isinstance(one, Comment | Loop | Block):
            continue
        text = one.text if isinstance(one, Line) else one.condition
        if not isinstance(text, Code):
            raise TypeError(f"nobody knows what this line reads: {text}")
        yield text

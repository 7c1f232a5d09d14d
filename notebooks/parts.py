"""A few lines of the real compiler for a chapter: what it is about, the rest as "...".

In:   a function or class, and how its first and last shown lines begin.  Out: a `Code`.

    part(Scheduler.check_accesses, "for writer, reader", "raise Refused")

The lines are looked up in the source: a chapter whose lines have gone fails to build.
"""

import inspect
import textwrap
from typing import Any

from minidynamo.explain import Code, excerpt

MOST = 12  # lines: more of a real file does not teach


def part(thing: Any, first: str, last: str) -> Code:
    """The head of the function, and its lines from the one that begins with `first` to the next one
    that begins with `last`."""
    lines = textwrap.dedent(inspect.getsource(thing)).rstrip().splitlines()
    begins = [line.strip() for line in lines]
    head = next(n for n, text in enumerate(begins) if text.startswith(("def ", "class ")))
    start = next(n for n, text in enumerate(begins) if n > head and text.startswith(first))
    stop = next(n for n, text in enumerate(begins) if n >= start and text.startswith(last))
    signature = lines[head] if lines[head].endswith(":") else lines[head] + "...):"
    shown = [signature]
    if start > head + 1:
        shown.append("    ...")
    shown += lines[start : stop + 1]
    if stop + 1 < len(lines):
        shown.append("    ...")
    assert len(shown) <= MOST, f"{len(shown)} lines of {thing.__qualname__}"
    return Code("\n".join(shown), "python", excerpt(thing).title)

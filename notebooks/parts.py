"""A few lines of the real compiler for a chapter, the others as "...".

In:   a function or class; how each shown line begins, or a pair: how the first and the last line of
      a range begin.  Out: a `Code`.

    part(InterpreterHandler.load, "flat, where", "return flat[where]")
    part(Scheduler.check_accesses, ("for writer, reader", ")"))

The lines are looked up in the source: a chapter whose lines have gone fails to build.
"""

import inspect
import textwrap
from typing import Any

from minidynamo.explain import Code, excerpt

MOST = 12  # lines: more of a real file does not teach


def part(thing: Any, *ranges: str | tuple[str, str]) -> Code:
    """The head of the function, and the ranges of its lines in their order."""
    lines = textwrap.dedent(inspect.getsource(thing)).rstrip().splitlines()
    begins = [line.strip() for line in lines]
    head = next(n for n, text in enumerate(begins) if text.startswith(("def ", "class ")))
    shown = [lines[head] if lines[head].endswith(":") else lines[head] + "...):"]
    done = head
    for wanted in ranges:
        first, last = (wanted, wanted) if isinstance(wanted, str) else wanted
        start = next(n for n in range(done + 1, len(lines)) if begins[n].startswith(first))
        stop = next(n for n in range(start, len(lines)) if begins[n].startswith(last))
        indent = len(lines[start]) - len(begins[start]) if done > head else 4
        gap = " " * indent + "..." if any(begins[done + 1 : start]) else ""
        shown += [gap] * (start > done + 1) + lines[start : stop + 1]
        done = stop
    shown += ["    ..."] * (done + 1 < len(lines))
    assert len(shown) <= MOST, f"{len(shown)} lines of {thing.__qualname__}"
    return Code("\n".join(shown), "python", excerpt(thing).title)

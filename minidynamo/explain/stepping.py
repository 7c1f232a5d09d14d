"""The symbolic stack beside each instruction of a frame, for the bytecode stepper of the page.

In:   frames, while the symbolic evaluator runs them within `watching()`.
Out:  the `walk` of each frame's record: for each instruction the stack before it, and how many
      calls the graph had then.

    >>> e = minidynamo.explain(lambda x: x.sin() + 1)(x)
    >>> stacks = [stack for stack, calls in e.main.record.walk.values()]
    >>> stacks[-2:]
    [['sin', 'constant 1'], ['add']]

Nothing of the evaluator knows of it: a frame that is watched gets a table of operations whose
handlers note the stack, and then do what they always do.  A frame is traced again when something
was learned; the last attempt counts.  An instruction in a loop shows its first round.
"""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import fx

from miniinductor.options import Current, listen

from ..graph.output_graph import OutputGraph
from ..variables.base import Lazy, peek

MOST = 12  # values of a stack that are kept, from its top
LETTERS = 60


# byte at which an instruction ends -> (texts of the stack before it, calls in the graph so far)
Walk = dict[int, tuple[list[str], int]]
WATCHING = Current(False)


def watching() -> AbstractContextManager[Any]:
    return WATCHING.set(True)


def watch(what: str, record: Any, root: Any) -> None:
    """Before a frame is evaluated."""
    if what != "evaluate":
        return
    walk: Walk = {}
    record.walk = walk
    if WATCHING.value:
        root.info = info = copy.copy(root.info)
        info.ops = [
            (noting(walk, operation.instruction.end, handler, root.output), *rest)
            for operation, (handler, *rest) in zip(info.operations, info.ops)
        ]


def noting(walk: Walk, end: int, handler: Callable, output: OutputGraph) -> Callable:
    """The handler of an operation, which first notes the stack."""

    def noted(frame: Any, argument: Any) -> Any:
        if end not in walk:
            walk[end] = [described(value) for value in frame.stack[-MOST:]], output.calls
        return handler(frame, argument)

    return noted


def described(value: Any) -> str:
    """A value of the symbolic stack in a few words: a node of the graph by its name."""
    value = peek(value)
    node = getattr(value, "node", None)
    text = node.name if isinstance(node, fx.Node) else str(value)
    if isinstance(value, Lazy):  # nobody has looked at it yet
        text = value.source.name()
    return text if len(text) <= LETTERS else text[: LETTERS - 3] + "..."


listen(watch)

"""The symbolic stack beside each instruction of a frame, for the bytecode stepper of the page.

In:   frames, while the symbolic evaluator runs them within `watching()`.
Out:  for each captured graph a `Walk`: for each instruction of its frame the stack before it, and
      how many calls the graph had then.

    >>> e = minidynamo.explain(lambda x: x.sin() + 1)(x)
    >>> stacks = [stack for stack, calls in walk_of(e.main.record.graph).values()]
    >>> stacks[-2:]
    [['sin', 'constant 1'], ['add']]

Nothing of the evaluator knows of it: a frame that is watched gets a table of operations whose
handlers note the stack, and then do what they always do.  A frame is traced again when something
was learned; the last attempt counts.  An instruction in a loop shows its first round.
"""

import contextlib
import copy
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import fx

from .. import records
from ..graph.output_graph import OutputGraph
from ..variables.base import Lazy, peek

MOST = 12  # values of a stack that are kept, from its top
LETTERS = 60


# byte at which an instruction ends -> (texts of the stack before it, calls in the graph so far)
Walk = dict[int, tuple[list[str], int]]
WATCHING = [False]
LAST: list[Walk] = [{}]  # of the frame that is being traced
WALKS: dict[int, Walk] = {}  # id of a captured graph -> how its frame was walked, while it lives


def walk_of(graph: fx.GraphModule | None) -> Walk:
    return WALKS.get(id(graph), {})


@contextlib.contextmanager
def watching() -> Iterator[None]:
    before, WATCHING[0] = WATCHING[0], True
    try:
        yield
    finally:
        WATCHING[0] = before


@contextlib.contextmanager
def watched(output: OutputGraph) -> Iterator[None]:
    """What `hooks.TRACING` enters around the evaluation of a frame."""
    LAST[0] = walk = {}
    if WATCHING[0]:
        root: Any = output.root
        root.info = info = copy.copy(root.info)
        info.ops = [
            (noting(walk, operation.instruction.end, handler, output), *rest)
            for operation, (handler, *rest) in zip(info.operations, info.ops)
        ]
    yield


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


def remember(_: object, graph: fx.GraphModule) -> None:
    """What `hooks.GRAPH_MODULES` calls with the graph of the frame that was traced last."""
    if LAST[0]:
        WALKS[id(graph)] = LAST[0]
        weakref.finalize(graph, WALKS.pop, id(graph), None).atexit = False


records.TRACING.append(watched)
records.GRAPH_MODULES.append(remember)

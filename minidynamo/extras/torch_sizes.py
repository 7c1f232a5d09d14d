"""Sizes that cross the border between this compiler and torch's own, in both directions.

In:   a graph whose sizes are symbols of one owner.   Out: the same graph over symbols of the other
      owner, and afterwards, what the second compiler assumed of them as guards of the first.

Each side has symbols, an algebra and guards of its own, and knows nothing of the other's.  What
crosses is text: an expression of one side is written as Python, and computed with the other side's
`torch.SymInt`s, of which either owner writes down what is asked of them.

    >>> border = Border({"s77": ours})          # torch's s77 is what our owner calls s0
    >>> border.number(theirs)                   # s77 * 2 + 1  ->  s0 * 2 + 1
    >>> border.assume("s77 > 4", {"s77"})       # a guard of torch's is one of ours from now on

What has no text on the other side (a function that only one of the two knows) becomes numbers: the
sizes in it are those of this run from then on, with guards, as `int(size)` would make them.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils._sympy.printers import PythonPrinter

from miniinductor.sizes.printing import python_code

from ..foreign import ours
from ..symbolic_numbers import SymNode
from ..symbolic_shapes import fake_like

# What the texts call.  `max` and `min` of Python's would compare, and each comparison is a guard.
FUNCTIONS = {
    "__builtins__": {"abs": abs, "int": int, "float": float, "round": round},
    "math": math,
    "max": lambda *numbers: functools.reduce(torch.sym_max, numbers),
    "min": lambda *numbers: functools.reduce(torch.sym_min, numbers),
}


class NoWay(RuntimeError):
    """This graph cannot cross the border."""


def text_of(number: Any) -> str:
    """A symbolic number of either side as Python over its symbols.  Raises NotImplementedError
    where it has no text."""
    expression = number.node.expr
    if isinstance(number.node, SymNode):
        return python_code(expression)
    return PythonPrinter().doprint(expression)


@dataclass
class Border:
    """here: name of a symbol of the one side -> the number that stands for it on the other."""

    here: dict[str, Any] = field(default_factory=dict)

    def compute(self, text: str) -> Any:
        return eval(text, dict(FUNCTIONS), self.here)

    def number(self, value: Any) -> Any:
        """The same number on the other side.  Raises NoWay."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return value
        try:
            return self.compute(text_of(value))
        except ours(NotImplementedError, NameError, TypeError) as error:
            raise NoWay(f"the size {value} cannot be said on the other side: {error}") from error

    def sizes(self, values: Iterable[Any]) -> list[Any]:
        return [self.number(value) for value in values]

    def assume(self, text: str, symbols: Iterable[str]) -> None:
        """`text` holds in this run and was assumed: the other side guards it.  Raises NoWay where
        it has symbols that the other side does not know."""
        try:
            holds = bool(self.compute(text))
        except NameError as error:
            raise NoWay(f"it was assumed that {text}: {error}") from error
        except ours(TypeError, AttributeError, NotImplementedError):
            self.pin(symbols)  # a function that the other side does not know
            return
        if not holds:
            raise NoWay(f"it was assumed that {text}, which does not hold in this run")

    def pin(self, symbols: Iterable[str]) -> None:
        """These sizes are the numbers that they are in this run."""
        for name in symbols:
            int(self.here[name])

    def fake(self, mode: Any, tensor: torch.Tensor, like: torch.Tensor | None = None) -> Any:
        """A fake tensor of the other side with the sizes and strides of `tensor`; the rest as
        `like` has it."""
        sizes, strides = self.sizes(tensor.shape), self.sizes(tensor.stride())
        return fake_like(mode, tensor if like is None else like, sizes, strides)


def copied(
    gm: fx.GraphModule,
    beginning: Callable[[fx.Graph], Mapping[fx.Node, Any]],
    number: Callable[[Any], Any],
) -> fx.GraphModule:
    """The graph with other inputs.

    beginning: makes the placeholders of the new graph, and says what stands in it for nodes of the
      old one: for each placeholder, and for what else is not to be copied.
    number: of a symbolic number among the arguments, its other side.
    """
    graph = fx.Graph()
    made = dict(beginning(graph))
    for node in gm.graph.nodes:
        if node in made:
            continue
        args, kwargs = (translated(part, made, number) for part in (node.args, node.kwargs))
        new = graph.create_node(
            node.op, node.target, args, kwargs, name=node.name, type_expr=node.type
        )
        # what the nodes gave were fake tensors of the other side
        new.meta = {key: value for key, value in node.meta.items() if key != "example_value"}
        made[node] = new
    return fx.GraphModule(gm, graph, type(gm).__name__)


def translated(value: Any, made: Mapping[fx.Node, Any], number: Callable[[Any], Any]) -> Any:
    def leaf(part: Any) -> Any:
        return made[part] if isinstance(part, fx.Node) else number(part)

    return fx.node.map_aggregate(value, leaf)

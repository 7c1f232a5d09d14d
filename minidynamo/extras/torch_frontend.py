"""miniinductor as a backend of torch.compile.

In:   the graph that torch.compile has captured, and its example inputs.
Out:  what runs it: miniinductor's kernels.

    >>> torch.compile(f, backend="miniinductor")       # found by the name, once this is installed

The package's entry point in the group `torch_dynamo_backends` names the function below; torch
imports it when somebody asks for the name.  Nothing of torch's compiler is imported here: it calls.

A graph over symbolic sizes is written anew over symbols of ours (torch_sizes.py): first the
symbols, then the tensors.  What our compiler assumes of a size becomes a guard of torch's at once,
while torch is still collecting them.
"""

import contextlib
import functools
import logging
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from miniinductor import config
from miniinductor.autograd import runtime
from miniinductor.compile import compile_fx
from miniinductor.eager_graphs import runnable
from miniinductor.fake_mode import FakeMode
from miniinductor.sizes.printing import python_code

from ..symbolic_shapes import ShapeEnv, can_be_symbolic
from .torch_sizes import Border, NoWay, copied

LOG = logging.getLogger("minidynamo")
ARITHMETIC = {getattr(home, name) for home in (operator, torch) for name in ("add", "sub", "mul")}
ARITHMETIC |= {operator.truediv, torch.true_divide}


def miniinductor(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend.  mode: as in `minidynamo.compile`.  options: of `miniinductor.config`, for this
    graph.  Raises AttributeError for an option that there is not."""
    with config.patch(**(options or {})), backward_unwatched():
        if not has_symbols(gm, example_inputs):
            return ready(compile_fx(gm, example_inputs, mode=mode))
        try:
            return Crossing(gm, example_inputs).compiled(mode)
        except NoWay as reason:
            LOG.warning("backend miniinductor: a graph of torch.compile runs eagerly: %s", reason)
            return runnable(gm)


def value_of(node: fx.Node) -> Any:
    """The fake value of a node of torch's."""
    return node.meta.get("example_value")


def has_symbols(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Are there numbers in the graph that are symbols of torch's?"""
    found = [*example_inputs, *map(value_of, gm.graph.nodes)]
    return any(isinstance(value, (torch.SymInt, torch.SymFloat)) for value in found)


def keeps_dtype(user: fx.Node, number: fx.Node) -> bool:
    """Is it the sum, difference, product or quotient of `number` and a tensor of floats?  Such a
    tensor keeps its dtype, whether it meets a number or a tensor without dimensions."""
    others = [value_of(arg) for arg in user.args if isinstance(arg, fx.Node) and arg is not number]
    return (
        user.target in ARITHMETIC
        and not user.kwargs
        and len(others) == 1
        and isinstance(others[0], torch.Tensor)
        and others[0].is_floating_point()
    )


def ready(compiled: Any) -> Callable[..., Any]:
    """What torch calls: it has guards, so the look at the inputs is left out.  `record`, as of all
    compiled graphs, is an attribute of it."""
    for note in compiled.record.notes:
        level = logging.WARNING if note.startswith("runs eagerly") else logging.DEBUG
        LOG.log(level, "backend miniinductor: %s", note)
    run: Any = functools.partial(compiled.function)
    run.record = compiled.record
    return run


@contextlib.contextmanager
def backward_unwatched() -> Iterator[None]:
    """A backward half that is made here runs without torch.compile looking into its frames: the
    program may call `backward()` in a frame that torch.compile watches."""
    before = runtime.undisturbed
    runtime.undisturbed = lambda function: torchs_own("disable")(before(function))
    try:
        yield
    finally:
        runtime.undisturbed = before


def torchs_own(name: str) -> Any:
    """A function of the compiler that has called us."""
    return getattr(sys.modules["torch._dynamo"], name)


class Crossing:
    """One graph of torch.compile with symbolic sizes, on its way to ours.

    env: the owner of our symbols.  ours: torch's symbols -> our numbers.  theirs: the way back.
    """

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        self.gm, self.inputs = gm, example_inputs
        self.env, self.mode = ShapeEnv(), FakeMode(static_shapes=True)
        self.mode.cache_enabled = False  # its keys are made of torch's own symbols
        self.ours, self.theirs = Border(), Border()
        self.old = gm.graph.find_nodes(op="placeholder")
        # of each placeholder of the new graph: the position of its value in torch's calls, and the
        # example
        self.positions: list[int] = []
        self.examples: list[Any] = []

    def compiled(self, mode: str | None) -> Callable[..., Any]:
        """Raises NoWay."""
        graph = copied(self.gm, self.beginning, self.ours.number)
        compiled = compile_fx(graph, self.examples, mode=mode)
        self.guard()
        run, positions = compiled.function, self.positions

        def call(*inputs: Any) -> Any:
            return run(*[inputs[n] for n in positions])

        compiled.function = call
        return ready(compiled)

    # ---- the new graph
    def beginning(self, graph: fx.Graph) -> dict[fx.Node, Any]:
        numbers = [n for n, value in enumerate(self.inputs) if not isinstance(value, torch.Tensor)]
        symbols = [n for n in numbers if self.is_new_symbol(n, graph)]
        made: dict[fx.Node, Any] = dict(zip([self.old[n] for n in symbols], graph.nodes))
        for n in numbers:
            if n not in symbols:  # a size that is computed of others, or known to be one of them
                made[self.old[n]] = self.ours.number(self.inputs[n])
        for n, value in enumerate(self.inputs):
            if isinstance(value, torch.Tensor):
                made[self.old[n]] = self.placeholder(graph, self.old[n].target, n, self.like(n))
        for node in self.gm.graph.find_nodes(op="call_method", target="item"):
            if isinstance(value_of(node), torch.SymFloat) and node.args[0] in made:
                made[node] = self.number_or_tensor(node, made[node.args[0]])
        return made

    def number_or_tensor(self, item: fx.Node, tensor: fx.Node) -> Any:
        """What stands for a float of the program's that changes from call to call.  torch passes it
        as a tensor of its own and takes the number out.  Where the number is only combined with
        tensors of floats the tensor serves as well; elsewhere it is this number, with a guard."""
        value = value_of(item)
        if value.node.expr.is_number or not all(keeps_dtype(user, item) for user in item.users):
            return float(value)
        return tensor

    def placeholder(self, graph: fx.Graph, name: str, position: int, example: Any) -> fx.Node:
        node = graph.placeholder(name)
        node.meta["example_value"] = example
        self.positions.append(position)
        self.examples.append(example)
        return node

    def is_new_symbol(self, position: int, graph: fx.Graph) -> bool:
        """Make a symbol of ours, and its placeholder, for an input that is a symbol of torch's."""
        value = self.inputs[position]
        if not isinstance(value, torch.SymInt):
            raise NoWay(f"an input of the graph is a {type(value).__name__}")
        expression = value.node.expr
        if not expression.is_Symbol or str(expression) in self.ours.here:
            return False
        if not value.node.has_hint():
            raise NoWay(f"the size {value} is known only when the graph runs")
        number = int(value.node.hint)
        own = self.env.create_symbol(number, str(expression), duck=False)
        if isinstance(own, int):  # 0, 1 and what is negative are never symbols here
            own = int(value)
        self.ours.here[str(expression)] = own
        if isinstance(own, int):
            return False
        name = str(own.node.expr)
        self.theirs.here[name] = value
        self.placeholder(graph, name, position, own)
        return True

    def like(self, position: int) -> torch.Tensor:
        """The example of a tensor: itself, or a fake one over our symbols."""
        real, fake = self.inputs[position], value_of(self.old[position])
        if not can_be_symbolic(real):
            return real
        return self.ours.fake(self.mode, real if fake is None else fake, real)

    # ---- the guards
    def guard(self) -> None:
        """What was assumed of our symbols holds of torch's, too, and torch guards it."""
        for name in self.theirs.here:
            self.theirs.assume(f"{name} >= 2", [name])
        for decision in self.env.decisions:
            if not decision.proved:
                names = [str(symbol) for symbol in decision.fact.free_symbols]
                self.theirs.assume(python_code(decision.fact), names)

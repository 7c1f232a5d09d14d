"""Backends of torch's own, to which the user hands a graph of ours.

In:   a backend that the user has looked up, and a graph over our symbols.
Out:  the graph over symbols of torch's, as such a backend wants it; guards for what it assumed.

    >>> from torch._dynamo.backends.registry import lookup_backend      # the user's line, not ours
    >>> minidynamo.compile(f, backend=lookup_backend("inductor"), dynamic=True)

A graph without symbols is handed over as it is.  Else torch's backends need a ShapeEnv of torch's
behind each size.  This package has none and imports none: a backend of torch's has brought the
module along, in which it is found.  A backend of the user's own gets our symbols, unless the user
says that it ends in torch's compiler:

    >>> @minidynamo.torch_backend
    ... def timed(gm, example_inputs):
    ...     return torch._inductor.compile(gm, example_inputs)

Torch's compilers look which inputs share memory, compile for that, and have torch.compile guard it.
Here they are told that none do.  Where a graph writes to a tensor, each call looks, and runs the
graph as it is if two share memory after all: `f(x[:4], x[2:])`.
"""

import functools
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._sympy.printers import PythonPrinter

from miniinductor.extras.pieces import runs_apart

from .. import hooks
from ..conversion import Conversion
from ..graph_capture import OutputGraph
from ..symbolic_shapes import can_be_symbolic
from .torch_sizes import Border, NoWay, copied

LOG = logging.getLogger("minidynamo")
SYMBOLS = "torch.fx.experimental.symbolic_shapes"  # the module of torch's ShapeEnv
TORCHS = ("torch._dynamo.", "torch._inductor.", "torch._functorch.")  # where its backends lie


@dataclass
class Handed:
    """What a backend of torch's has made of a graph."""

    gm: fx.GraphModule
    run: Callable[..., Any]

    def __call__(self, *inputs: Any) -> Any:
        return self.run(*inputs)

    def checked(self) -> Callable[..., Any]:
        """The same for a graph that writes: right, too, where tensors share memory."""
        held = [*self.gm.parameters(), *self.gm.buffers()]  # each tensor once

        def run(*inputs: Any) -> Any:
            return (self.run if are_apart([*inputs, *held]) else self.gm.forward)(*inputs)

        return run


def are_apart(values: Iterable[Any]) -> bool:
    """Do no two of the tensors among the values share memory?"""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return len({tensor.untyped_storage()._cdata for tensor in tensors}) == len(tensors)


def apart(values: Sequence[Any]) -> list[Any]:
    """The example inputs; where some share memory, others like them, which torch would else compile
    for."""
    return list(values) if are_apart(values) else [*map(alone, values)]


def alone(value: Any) -> Any:
    """A tensor like the example in memory of its own.  Nobody looks at what is in it."""
    if type(value) is not torch.Tensor or value.layout is not torch.strided:
        return value
    if value.is_neg() or value.is_conj():
        return value
    about = (value.shape, value.stride())
    with torch.inference_mode(value.is_inference()), torch.enable_grad():
        made = torch.empty_strided(*about, dtype=value.dtype, device=value.device)
        made.requires_grad_(value.requires_grad)
        return made if value.is_leaf else made.clone()


def look_at_memory(compiled: Any, output: OutputGraph, results: Any) -> Any:
    """What is called of a graph that went to a backend of torch's."""
    if not isinstance(compiled, Handed):
        return compiled
    return compiled.checked() if output.written else compiled.run


hooks.ADAPTERS.insert(0, look_at_memory)  # the others call what comes of this


class TorchBackend:
    """A backend that wants sizes to be torch's symbols.  Called like the backend itself."""

    __name__ = "of torch's"  # its own, where it has one

    def __init__(self, backend: Callable[..., Any]) -> None:
        functools.update_wrapper(self, backend, updated=())
        self.backend = backend

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        if any(map(runs_apart, gm.graph.nodes)):
            LOG.warning("backend %s: a graph with torch.cond runs eagerly", self.__name__)
            return gm.forward
        if not any(isinstance(value, torch.SymInt) for value in example_inputs):
            run = self.backend(gm, apart(example_inputs), **options)
            return Handed(gm, run) if callable(run) else run
        try:
            run = Crossing(gm, example_inputs).compiled(self.backend, options)
        except NoWay as reason:
            LOG.warning("backend %s: a graph runs eagerly: %s", self.__name__, reason)
            return gm.forward
        return Handed(gm, run) if callable(run) else run

    def __reduce__(self) -> str:
        return vars(self)["__qualname__"]  # pickle finds it by its name, as it does functions


def torch_backend(backend: Callable[..., Any]) -> Callable[..., Any]:
    """`backend`, which hands its graphs to torch's own compiler: it gets sizes that are symbols of
    torch's.  Also a decorator.  Backends that lie in torch need it not."""
    return TorchBackend(backend)


def is_torchs(backend: Any) -> bool:
    """Is it one that torch brings?"""
    while isinstance(backend, functools.partial):
        backend = backend.func
    home = getattr(backend, "__module__", None) or type(backend).__module__
    return f"{home}.".startswith(TORCHS)


@hooks.BACKENDS.append
def prepared(conversion: Conversion, backend: Any) -> Any:
    return TorchBackend(backend) if is_torchs(backend) else backend


class Crossing:
    """One graph of ours with symbolic sizes, on its way to torch's compiler.

    theirs: our symbols -> torch's numbers.  ours: the way back.
    """

    def __init__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> None:
        if SYMBOLS not in sys.modules:
            raise NoWay(f"the backend of torch's has not imported {SYMBOLS}")
        self.gm, self.inputs = gm, example_inputs
        # each of our symbols is one of torch's: two that are equal in this run stay two
        self.env = sys.modules[SYMBOLS].ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        self.ours, self.theirs = Border(), Border()

    def compiled(self, backend: Callable[..., Any], options: dict[str, Any]) -> Any:
        """Raises NoWay, and what the backend raises."""
        for value in self.inputs:
            if isinstance(value, torch.SymInt):
                self.add(value)
        examples = [self.example(value) for value in self.inputs]
        graph = copied(self.gm, functools.partial(self.beginning, examples), self.theirs.number)
        compiled = backend(graph, examples, **options)
        self.guard()
        # a backward half that is compiled later may assume nothing more
        self.env.freeze()
        return compiled

    def add(self, symbol: torch.SymInt) -> None:
        """A symbol of torch's for one of ours: the size of a tensor that has so many elements."""
        name, number = str(symbol.node.expr), symbol.node.hint
        if not symbol.node.expr.is_Symbol or number is None:
            raise NoWay(f"an input of the graph is {name}")
        if number in (0, 1):  # no symbol of torch's: ours is that number from now on
            self.theirs.here[name] = int(symbol)
            return
        with torch.device("meta"):
            sized = self.mode.from_tensor(torch.empty(number, dtype=torch.bool))
        made: Any = sized.shape[0]
        self.theirs.here[name] = made
        self.ours.here[str(made.node.expr)] = symbol

    def example(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return self.theirs.number(value)
        if not can_be_symbolic(value) and not hasattr(value, "fake_mode"):
            raise NoWay("an input of the graph is no plain tensor")
        return self.theirs.fake(self.mode, value)

    def beginning(self, examples: Sequence[Any], graph: fx.Graph) -> dict[fx.Node, Any]:
        made = {}
        for node, example in zip(self.gm.graph.find_nodes(op="placeholder"), examples):
            made[node] = graph.placeholder(node.target)
            made[node].meta["example_value"] = example
        return made

    def guard(self) -> None:
        """What torch assumed of its symbols holds of ours, too, and is guarded."""
        for fact in self.env.guards:
            names = map(str, fact.expr.free_symbols)
            self.ours.assume(PythonPrinter().doprint(fact.expr), names)

"""Symbolic trace: run the function once on objects that stand for tensors.

In:   a function.  Out: an `fx.Graph`, one node per operation on a stand-in.

    >>> print(symbolic_trace(lambda x: torch.relu(x) + 1))
    graph():
        %x : [num_users=1] = placeholder[target=x]
        ...

Mirrors torch.fx.symbolic_trace (torch/fx/_symbolic_trace.py).  A stand-in has no value: `if x.sum()
> 0` cannot be decided, and the trace stops with `CannotTrace`.  The classes here are also what
lazy.py and staging.py build on.
"""

import inspect
import operator
from collections.abc import Callable
from typing import Any, Never

import torch


class CannotTrace(Exception):
    """Python asked a stand-in for a value."""


class StandIn:
    """An object that Python code takes for a tensor.  Each operation is reported to
    `tracer.call(function, args, kwargs)`."""

    node: torch.fx.Node  # of a GraphTracer's stand-in
    abstract: torch.Tensor  # of an AbstractTracer's: shape and dtype, no values

    def __init__(self, tracer: Any) -> None:
        self.tracer = tracer

    @classmethod
    def __torch_function__(
        cls, function: Callable, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        (tracer, *_) = [a.tracer for a in flat(args) if isinstance(a, StandIn)]
        return tracer.call(function, args, kwargs or {})

    def __getattr__(self, name: str) -> Callable:
        function = getattr(torch.Tensor, name)
        if not callable(function):
            raise CannotTrace(f"the attribute .{name} of a stand-in is not known")
        return lambda *args, **kwargs: self.tracer.call(function, (self, *args), kwargs)

    def __bool__(self) -> bool:
        raise CannotTrace("Python asked whether a stand-in is true: the branch depends on the data")

    def __iter__(self) -> Never:
        raise CannotTrace("Python wanted to loop over a stand-in")


def install_operators(cls: type) -> None:
    """x + y, 2 * x, -x, x > 0, x[0]: each is one call of an `operator` function."""
    for name in (
        "add",
        "sub",
        "mul",
        "truediv",
        "matmul",
        "pow",
        "gt",
        "lt",
        "ge",
        "le",
        "eq",
        "neg",
        "getitem",
    ):
        function = getattr(operator, name)
        setattr(
            cls,
            f"__{name}__",
            lambda self, *args, f=function: self.tracer.call(f, (self, *args), {}),
        )
    for name in ("add", "sub", "mul", "truediv", "pow"):
        function = getattr(operator, name)
        setattr(
            cls,
            f"__r{name}__",
            lambda self, other, f=function: self.tracer.call(f, (other, self), {}),
        )


install_operators(StandIn)


def flat(value: Any) -> list:
    return (
        [leaf for item in value for leaf in flat(item)]
        if isinstance(value, (tuple, list))
        else [value]
    )


class GraphTracer:
    """Writes each operation into an fx.Graph."""

    def __init__(self) -> None:
        self.graph = torch.fx.Graph()

    def wrap(self, node: torch.fx.Node) -> StandIn:
        stand_in = StandIn(self)
        stand_in.node = node
        return stand_in

    def unwrap(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.unwrap, value))
        return value.node if isinstance(value, StandIn) else value

    def call(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> StandIn:
        kwargs = {name: self.unwrap(value) for name, value in kwargs.items()}
        return self.wrap(self.graph.call_function(function, self.unwrap(args), kwargs))


def symbolic_trace(function: Callable) -> torch.fx.Graph:
    """The fx.Graph of `function`; raises CannotTrace where Python needs a value."""
    tracer = GraphTracer()
    result = function(
        *[
            tracer.wrap(tracer.graph.placeholder(name))
            for name in inspect.signature(function).parameters
        ]
    )
    tracer.graph.output(tracer.unwrap(result))
    return tracer.graph

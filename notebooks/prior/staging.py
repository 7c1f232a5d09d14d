"""Staging: trace a *pure* function on abstract values, once per combination of shapes and dtypes.

In:   a pure function.  Out: a function with a cache of traced programs.

    >>> f = stage(lambda x: torch.sin(x) * 2)
    >>> f(torch.ones(3))         # traced and run
    >>> f(torch.ones(3))         # run from the cache: Python is not entered
    >>> print(f.programs)

Mirrors JAX's jit (jax/_src/pjit.py, "autodidax").  It is fast and simple because of a promise that
the *user* makes: no side effects, no use of values in Python.  A print happens while tracing and
never again; a write to a list is lost on the second call.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from .symbolic import GraphTracer, StandIn


class AbstractTracer(GraphTracer):
    """A graph tracer whose stand-ins know shape and dtype, because each operation also runs on meta
    tensors."""

    def input(self, name: str, tensor: torch.Tensor) -> StandIn:
        stand_in = self.wrap(self.graph.placeholder(name))
        stand_in.abstract = torch.empty_like(tensor, device="meta")
        return stand_in

    def call(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> StandIn:
        result = super().call(function, args, kwargs)
        result.abstract = function(
            *[a.abstract if isinstance(a, StandIn) else a for a in args], **kwargs
        )
        return result


class Staged:
    def __init__(self, function: Callable) -> None:
        self.function = function
        self.programs: dict[tuple, torch.fx.GraphModule] = {}

    def __call__(self, *inputs: torch.Tensor) -> Any:
        key = tuple((tuple(x.shape), x.dtype) for x in inputs)
        if key not in self.programs:
            tracer = AbstractTracer()
            names = list(inspect.signature(self.function).parameters)
            result = self.function(
                *[tracer.input(name, x) for name, x in zip(names, inputs, strict=True)]
            )
            tracer.graph.output(tracer.unwrap(result))
            self.programs[key] = torch.fx.GraphModule({}, tracer.graph)
        return self.programs[key](*inputs)


def stage(function: Callable) -> Staged:
    """`function`, traced at the first call with each combination of shapes and dtypes."""
    return Staged(function)

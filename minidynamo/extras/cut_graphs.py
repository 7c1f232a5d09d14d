"""Graphs that read a number, for backends of the user's that cannot.

In:   a backend of the user's, and a graph with `item = number.item()`, which the user has not asked
      for: a float of the program's that changes (variables/more/read_floats.py).
Out:  the graph cut at what takes such numbers; the backend gets the pieces between.

    >>> minidynamo.compile(f, backend=mine)

A backend of the user's gets the whole graph first: one that calls `gm.forward` can run it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from miniinductor.compile import CompiledGraph
from miniinductor.extras.data_dependent import compile_pieces, runs_apart
from miniinductor.records import CompileRecord

from .. import hooks
from ..conversion import Conversion
from ..foreign import ours

Backend = Callable[..., Any]


def reads_floats(gm: fx.GraphModule) -> bool:
    return any(node.meta.get("reads_float") or runs_apart(node) for node in gm.graph.nodes)


@hooks.BACKENDS.append
def cutting(conversion: Conversion, backend: Backend) -> Backend:
    """The backend, which gets graphs that read numbers in pieces if it cannot take them whole."""
    if conversion.compiler.registered:
        return backend

    def ask(gm: fx.GraphModule, example_inputs: Sequence[Any], **options: Any) -> Any:
        if not reads_floats(gm):
            return backend(gm, example_inputs, **options)
        try:
            return backend(gm, example_inputs, **options)
        except ours(Exception):
            return in_pieces(backend, gm)

    return ask


def in_pieces(backend: Backend, gm: fx.GraphModule) -> Callable[..., Any]:
    """The graph as a callable that runs what `backend` makes of its pieces."""

    def compile_piece(piece: fx.GraphModule, examples: list[Any]) -> CompiledGraph:
        run = backend(piece, list(map(example, examples)))
        return CompiledGraph(run, CompileRecord())

    run = compile_pieces(gm, compile_piece, CompileRecord())
    return gm.forward if run is None else run


def example(value: Any) -> Any:
    """A tensor like a fake one that has numbers as sizes: nobody looks at what is in it."""
    if not isinstance(value, FakeTensor) or not all(type(n) is int for n in value.shape):
        return value
    with torch.inference_mode(value.is_inference()):
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=value.device
        )
        return made.requires_grad_(value.requires_grad)

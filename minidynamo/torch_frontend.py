"""miniinductor as a backend of torch.compile.

In:   the graph that torch.compile has captured, and its example inputs.
Out:  what runs it: miniinductor's kernels.

    >>> torch.compile(f, backend="miniinductor")       # found by the name, once this is installed

The package's entry point in the group `torch_dynamo_backends` names the function below; torch
imports it when somebody asks for the name.  Nothing of torch's compiler is imported here: it calls.

Symbols of torch's for sizes and floats become the numbers of this call, which torch guards.
"""

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import fx

from miniinductor import config
from miniinductor.autograd import runtime
from miniinductor.autograd.eager_graphs import runnable
from miniinductor.compile import compile_fx
from miniinductor.errors import ours

LOG = logging.getLogger("minidynamo")
SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


def miniinductor(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend.  mode: as in `minidynamo.compile`.  options: of `miniinductor.config`, for this
    graph.  Raises AttributeError for an option that there is not."""
    tensors = [n for n, value in enumerate(example_inputs) if isinstance(value, torch.Tensor)]
    with config.patch(**(options or {})), backward_unwatched():
        try:
            graph = with_numbers(gm)
        except ours(RuntimeError) as reason:  # a size that only the run knows
            LOG.warning("backend miniinductor: a graph of torch.compile runs eagerly: %s", reason)
            return runnable(gm)
        compiled = compile_fx(graph, [example_inputs[n] for n in tensors], mode=mode)
    for note in compiled.record.notes:
        level = logging.WARNING if note.startswith("runs eagerly") else logging.DEBUG
        LOG.log(level, "backend miniinductor: %s", note)
    function = compiled.function  # torch has guards: without the look at the inputs

    def run(*inputs: Any) -> Any:
        return function(*[inputs[n] for n in tensors])

    setattr(run, "record", compiled.record)
    return run


def with_numbers(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph of tensors alone.  torch hands over a size, or a float that changes, as an input of
    its own; it is the number of this call.  Raises RuntimeError where that is not known yet."""
    graph, made = fx.Graph(), {}
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, SYMBOLS):
            made[node] = number_of(value)
            continue
        made[node] = graph.node_copy(node, lambda n: made[n])
        # the values are fake tensors over torch's symbols
        made[node].meta = {k: v for k, v in node.meta.items() if k != "example_value"}
    for node in graph.nodes:
        node.args, node.kwargs = fx.node.map_aggregate((node.args, node.kwargs), number_of)
    return fx.GraphModule(gm, graph, type(gm).__name__)


def number_of(value: Any) -> Any:
    """A symbol as a number: torch adds the guard."""
    for kind, plain in zip(SYMBOLS, (int, float, bool)):
        if isinstance(value, kind):
            return plain(value)
    return value


@contextlib.contextmanager
def backward_unwatched() -> Iterator[None]:
    """A backward half that is made here runs without torch.compile looking into its frames: the
    program may call `backward()` in a frame that torch.compile watches."""
    before = runtime.undisturbed
    disable = sys.modules["torch._dynamo"].disable if "torch._dynamo" in sys.modules else None
    if disable is not None:
        runtime.undisturbed = lambda function: disable(before(function))
    try:
        yield
    finally:
        runtime.undisturbed = before

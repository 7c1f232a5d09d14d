"""LSTM, GRU and RNN: on a GPU one call of cuDNN; with dropout layer by layer, for torch's Python
rules for several layers never drop anything.

In:   a call of torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu, as the arguments stand in a
      captured graph.
Out:  the same results, from the op `miniinductor::recurrent` (a GPU, no gradients), or from calls
      of one layer each with eager's dropout between them.

    lstm(x, hx, params, layers=2, dropout=0.5)
    =   y = lstm(x, hx of layer 0, params of layer 0, layers=1)
        y = dropout(y, 0.5)
        y = lstm(y, hx of layer 1, params of layer 1, layers=1)

The draws are eager's very numbers: its kernels for the CPU drop elements of each layer's result
with time as the first dimension, too.  cuDNN draws inside of one kernel; such a call is not split.

torch's rules take a step of time after another, which is hundreds of kernels.  On a CPU eager does
so, too, and fused kernels are faster; on a GPU one kernel of cuDNN's is twice as fast as they are.
"""

from collections.abc import Callable
from typing import Any

import torch

from ..exceptions import CannotTrace
from ..autograd.rules import call_rule
from ..lowering.extern import EXTERN

FUNCTIONS = (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
PADDED = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()
PACKED = "data batch_sizes hx params has_biases num_layers dropout train bidirectional".split()


@call_rule(*FUNCTIONS)
def traced(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """A call under the tracer."""
    given = arguments(args, kwargs)
    if drops(given):
        if on_gpu(args[0]):
            raise CannotTrace("cuDNN draws a recurrent network's dropout in its own order")
        return layer_by_layer(target, given)
    if learns(given):
        return call_whole(target, given)
    if on_gpu(args[0]):
        return tuple(interpreter.plain_call(RECURRENT, operands(target, given), {}))
    return interpreter.plain_call(target, args, kwargs)


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def arguments(args: tuple, kwargs: dict) -> dict:
    """Name -> value of the call's arguments."""
    packed = "data" in kwargs or len(args) > 3 and isinstance(args[3], (list, tuple))
    names = PACKED if packed else PADDED
    values = dict(zip(names, args)) | kwargs
    return {name: values[name] for name in names}


def drops(given: dict) -> bool:
    """Does the call drop elements between its layers?"""
    return bool(given["train"]) and given["dropout"] > 0 and given["num_layers"] > 1


def learns(given: dict) -> bool:
    """Will gradients flow into the call's arguments?"""
    tensors = [*given["params"], *given["hx"], given.get("input", given.get("data"))]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def call_whole(function: Callable, given: dict) -> tuple:
    """The call as it stands.

    torch's rule for an LSTM asks the input alone whether there will be gradients: where only the
    parameters need some, it would take oneDNN's kernel for inference.
    """
    enabled = torch._C._get_mkldnn_enabled()
    if learns(given):
        torch._C._set_mkldnn_enabled(False)
    try:
        return function(*given.values())
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def layer_by_layer(function: Callable, given: dict) -> tuple:
    """What `function` gives for these arguments: (result, last state), an LSTM (result, last state,
    last cell)."""
    layers, has_cell = given["num_layers"], function is torch._VF.lstm
    states = given["hx"] if has_cell else [given["hx"]]
    rows = 2 if given["bidirectional"] else 1  # of the states, for each layer
    weights = len(given["params"]) // layers
    key = "data" if "data" in given else "input"
    value, turned = given[key], given.get("batch_first", False)
    if turned:
        value = value.transpose(0, 1)
    last: list[list] = [[] for _ in states]
    for layer in range(layers):
        own_states = [state[layer * rows : (layer + 1) * rows] for state in states]
        call = given | {
            key: value,
            "hx": own_states if has_cell else own_states[0],
            "params": list(given["params"][layer * weights : (layer + 1) * weights]),
            "num_layers": 1,
            "dropout": 0.0,
        }
        if turned:
            call["batch_first"] = False
        value, *after = call_whole(function, call)
        for collected, state in zip(last, after):
            collected.append(state)
        if layer < layers - 1:
            with torch._C._DisablePythonDispatcher():  # as OriginInterpreter does
                value = torch.dropout(value, given["dropout"], True)
    if turned:
        value = value.transpose(0, 1)
    return value, *[torch.cat(collected) for collected in last]


# ---- the op of a GPU
LIBRARY = torch.library.Library("miniinductor", "FRAGMENT")
LIBRARY.define(
    "recurrent(str kind, Tensor input, Tensor? batch_sizes, Tensor[] hx, Tensor[] params, "
    "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, "
    "bool batch_first) -> Tensor[]"
)
RECURRENT = torch.ops.miniinductor.recurrent.default
EXTERN[RECURRENT] = None


def operands(function: Callable, given: dict) -> tuple:
    """A call's arguments, as the op takes them."""
    hx = given["hx"] if function is torch._VF.lstm else [given["hx"]]
    first = given.get("input", given.get("data"))
    names = "has_biases num_layers dropout train bidirectional".split()
    flags = [given[name] for name in names] + [given.get("batch_first", False)]
    batch_sizes = given.get("batch_sizes")
    return (function.__name__, first, batch_sizes, list(hx), list(given["params"]), *flags)


@torch.library.impl(LIBRARY, "recurrent", "CompositeExplicitAutograd")
def run(
    kind: str,
    first: torch.Tensor,
    batch_sizes: torch.Tensor | None,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    *flags: Any,
) -> list[torch.Tensor]:
    """(result, last state), an LSTM's (result, last state, last cell), each dense, with time as the
    first dimension in memory."""
    states, (*others, batch_first) = hx if kind == "lstm" else hx[0], flags
    if batch_sizes is not None:
        found = getattr(torch._VF, kind)(first, batch_sizes, states, params, *others)
    else:
        found = getattr(torch._VF, kind)(first, states, params, *others, batch_first)
    result, *last = found
    return [dense(result, batch_first), *[state.contiguous() for state in last]]


def dense(result: torch.Tensor, batch_first: bool) -> torch.Tensor:
    """The same, in the strides that `fake` gives it."""
    if not batch_first:
        return result.contiguous()
    return result.transpose(0, 1).contiguous().transpose(0, 1)


@torch.library.register_fake("miniinductor::recurrent", lib=LIBRARY)
def fake(
    kind: str, first: torch.Tensor, batch_sizes: Any, hx: Any, params: Any, *flags: Any
) -> Any:
    bidirectional, batch_first = flags[-2:]
    *sizes, _ = first.shape
    width = hx[0].shape[-1] * (2 if bidirectional else 1)
    if batch_first and batch_sizes is None:
        result = first.new_empty(sizes[1], sizes[0], width).transpose(0, 1)
    else:
        result = first.new_empty(*sizes, width)
    return [result, *[state.new_empty(state.shape) for state in hx]]

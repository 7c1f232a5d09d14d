"""LSTM, GRU and RNN: which calls torch's Python rules take apart, and which run eagerly.

In:   a call of torch.lstm, torch.gru, torch.rnn_tanh or torch.rnn_relu, as the arguments stand in a
      captured graph.
Out:  its results, step of time by step of time; or CannotTrace: the call runs eagerly, between
      compiled pieces.

torch's rules take a step of time after another, which is hundreds of kernels.  On a CPU eager does
so, too, and fused kernels are faster; on a GPU one kernel of cuDNN's is twice as fast as they are.
For several layers the rules never drop anything.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from ..autograd.rules import call_rule
from ..exceptions import CannotTrace

PADDED = "input hx params has_biases num_layers dropout train bidirectional batch_first".split()
PACKED = "data batch_sizes hx params has_biases num_layers dropout train bidirectional".split()


@call_rule(torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
def traced(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """A call under the tracer."""
    packed = "data" in kwargs or len(args) > 3 and isinstance(args[3], (list, tuple))
    given = dict(zip(PACKED if packed else PADDED, args)) | kwargs
    if drops(given):
        raise CannotTrace("a recurrent network with dropout between its layers")
    tensors = [t for t in pytree.tree_leaves(given) if isinstance(t, torch.Tensor)]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return call_learning(interpreter, target, args, kwargs)
    if on_gpu(args[0]):
        raise CannotTrace("one kernel of cuDNN's is faster than a recurrent network's steps")
    return interpreter.plain_call(target, args, kwargs)


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def drops(given: dict) -> bool:
    """Does the call drop elements between its layers?"""
    return bool(given["train"]) and given["dropout"] > 0 and given["num_layers"] > 1


def call_learning(interpreter: Any, target: Callable, args: tuple, kwargs: dict) -> Any:
    """torch's rule for an LSTM asks the input alone whether there will be gradients: where only the
    parameters need some, it would take oneDNN's kernel for inference."""
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        return interpreter.plain_call(target, args, kwargs)
    finally:
        torch._C._set_mkldnn_enabled(enabled)

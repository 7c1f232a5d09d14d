"""Recurrent networks on a GPU that learn: the graph breaks at cuDNN's call, which runs as it is.

In:   a call of torch.lstm, gru, rnn_tanh or rnn_relu, about to enter the graph.
Out:  the same, or a `Break`.

    y, state = lstm(x)          # the graph ends in front of it
    return head(y[:, -1])       # ... and another one begins behind it

torch's rule for gradients takes a step of time after another: hundreds of kernels where cuDNN has
one, twice eager's time and minutes to compile.  Without gradients the call stays in the graph
whole (miniinductor/extras/whole_calls.py); with them and fullgraph=True it stays, step by step.
torch.compile breaks its graph at every recurrent module.
"""

from typing import Any, cast

import torch

from ..extras.extending import extends
from .. import hooks
from ..conversion import Conversion
from ..exceptions import Break
from ..dynamic import SizePolicy
from ..variables.base import Variable
from ..variables.containers import SequenceVar
from ..variables.tensor import TensorVar

FUNCTIONS = (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
KIND = "recurrent"
HINT = "nothing is lost but one graph; fullgraph=True keeps the call, step by step"


@extends(SizePolicy)
class StepsPolicy(SizePolicy):
    takes_steps: bool = False  # does such a call stay in the graph, step by step?


def leave_to_cudnn(tx: Any, target: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    """The call as it is.  Raises `Break` where cuDNN learns."""
    if target in FUNCTIONS and not tx.output.policy.takes_steps and torch.is_grad_enabled():
        if on_gpu_and_learning(tx, [*args, *kwargs.values()]):
            raise Break(KIND, f"{target.__name__} of cuDNN, with gradients", HINT)
    return target, args, kwargs


@hooks.WAYS_ON.append
def keep_it(conversion: Conversion) -> bool:
    """Under fullgraph=True the alternative is an error."""
    policy, found = cast(StepsPolicy, conversion.policy), next(iter(conversion.forced.values()))
    if not conversion.compiler.fullgraph or found.kind != KIND:
        return False
    policy.takes_steps = True
    conversion.forced.clear()
    return True


def on_gpu_and_learning(tx: Any, values: list[Variable]) -> bool:
    tensors = [value.fake for value in flat(tx, values) if isinstance(value, TensorVar)]
    return any(map(on_gpu, tensors)) and any(tensor.requires_grad for tensor in tensors)


def on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def flat(tx: Any, values: list[Variable]) -> list[Variable]:
    """The values, with those of lists and tuples in their place."""
    found: list[Variable] = []
    for value in values:
        value = value.realize(tx)
        found += value.iterate(tx) if isinstance(value, SequenceVar) else [value]
    return found


hooks.BEFORE_NODES.append(leave_to_cudnn)

"""Floats that change from call to call (a scheduler's learning rate): tensors in the graph.

In:   a float at a source that had another value in an earlier call.
Out:  a FloatVar: a placeholder of the graph; `runtime.floats_as_tensors` makes the tensor at each
      call.

    >>> wrap_float(builder, 0.1, source)        # a constant, guarded by its value, at first
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from ..constant import wrap_constant
from ..registry import BY_VALUE
from ..tensor import FloatVar, TensorVar

if TYPE_CHECKING:
    from ...graph_capture import OutputGraph
    from ...sources import Source
    from ..base import Variable


@BY_VALUE.rule(float)
def wrap_float(builder: OutputGraph, value: Any, source: Source) -> Variable:
    """In the place of the core's rule, which takes every float as a constant."""
    if not builder.floats or source.name() not in builder.floats:
        return wrap_constant(builder, value, source)
    if source not in builder.float_inputs:
        builder.guard(source, "FLOAT", "type({0}) is float")
        real = torch.tensor(value, dtype=torch.float64)
        fake = builder.fake_of(real)
        node = builder.add_input("placeholder", builder.unique_name(source.name()), fake)
        tensor = TensorVar(node, node.meta["example_value"], float, source, real)
        builder.inputs.append(tensor)
        pin = functools.partial(wrap_constant, builder, value, source)
        builder.float_inputs[source] = FloatVar(value, tensor, pin, source)
    return builder.float_inputs[source]

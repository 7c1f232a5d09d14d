"""Inputs and parameters of a graph are not called what means something else in its module.

In:   a name for a placeholder or an attribute.
Out:  whether Python, torch.fx or every module has something of that name.

    def f(forward, len): ...        # the placeholders are `forward_` and `len_`

Without this file a parameter that a program calls `forward` takes the place of the method.
"""

import builtins
import functools
import keyword

import torch
import torch.fx

from .extending import extends
from ..graph_capture import OutputGraph


plain_is_reserved = OutputGraph.is_reserved


@functools.cache
def reserved_names() -> set[str]:
    """Names that mean something in the text, or in an object, of an `fx.GraphModule`."""
    module = torch.fx.GraphModule(torch.nn.Module(), torch.fx.Graph())
    words = (*keyword.kwlist, *dir(builtins), *torch.fx.graph._custom_builtins)
    return {"self", *words, *dir(module)}


@extends(OutputGraph)
def is_reserved(output: OutputGraph, name: str) -> bool:
    return name in reserved_names() or plain_is_reserved(output, name)

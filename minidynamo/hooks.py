"""What other files add to the conversion of a frame, as lists of functions.

BEFORE_NODES.append(select_symbols)     # something else to record in place of an operation
ADAPTERS.append(floats_as_tensors)      # something around what the backend has compiled
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .graph_capture import OutputGraph
    from .variables.base import Variable

# the frame is evaluated within these
TRACING: "list[Callable[[OutputGraph], AbstractContextManager[None]]]" = []
# (frame, target, args, kwargs) of an operation -> (target, args, kwargs) to record instead
BEFORE_NODES: list[Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]] = []
# (output, what torch.fx has made of its graph), before a backend sees that
GRAPH_MODULES: "list[Callable[[OutputGraph, torch.fx.GraphModule], None]]" = []
Compiled = Callable[..., Any]
# (compiled graph, output, its results) -> what is called instead; the last one is outermost
ADAPTERS: "list[Callable[[Compiled, OutputGraph, list[Variable]], Compiled]]" = []

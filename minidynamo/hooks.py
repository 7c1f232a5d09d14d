"""What other files add to the conversion of a frame, as lists of functions.

AFTER_WRITES.append(refuse_results)     # code that stands behind the replayed writes
ADAPTERS.append(floats_as_tensors)      # something around what the backend has compiled
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .graph_capture import OutputGraph
    from .reconstruct import Codegen
    from .variables.base import Variable

# --- before and while a frame is traced -----------------------------------------------------------
# the frame is evaluated within these
TRACING: "list[Callable[[OutputGraph], AbstractContextManager[None]]]" = []
# --- the replacement code -------------------------------------------------------------------------
AFTER_WRITES: "list[Callable[[Codegen], None]]" = []  # behind what repeats the frame's writes

# --- the graph ------------------------------------------------------------------------------------
# (frame, target, args, kwargs) of an operation -> (target, args, kwargs) to record instead
BEFORE_NODES: list[Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]] = []
# (output, target, tensors that it was given, result) of one that has run with fake tensors
AFTER_FAKES: "list[Callable[[OutputGraph, Any, list[torch.Tensor], Any], None]]" = []
# (output, what torch.fx has made of its graph), before a backend sees that
GRAPH_MODULES: "list[Callable[[OutputGraph, torch.fx.GraphModule], None]]" = []
Compiled = Callable[..., Any]
# (compiled graph, output, its results) -> what is called instead; the last one is outermost
ADAPTERS: "list[Callable[[Compiled, OutputGraph, list[Variable]], Compiled]]" = []

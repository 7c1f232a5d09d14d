"""What other files add to the conversion of a frame, as lists of functions.

AFTER_WRITES.append(position_late)      # code that stands behind the replayed writes
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .graph_capture import OutputGraph
    from .reconstruct import Codegen

# --- before and while a frame is traced -----------------------------------------------------------
# the frame is evaluated within these
TRACING: "list[Callable[[OutputGraph], AbstractContextManager[None]]]" = []
# --- the replacement code -------------------------------------------------------------------------
BEFORE_VALUES: "list[Callable[[Codegen], None]]" = []  # in front of what rebuilds values
AFTER_WRITES: "list[Callable[[Codegen], None]]" = []  # behind what repeats the frame's writes

# --- the graph ------------------------------------------------------------------------------------
# (output, what torch.fx has made of its graph), before a backend sees that
GRAPH_MODULES: "list[Callable[[OutputGraph, torch.fx.GraphModule], None]]" = []

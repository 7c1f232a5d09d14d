"""What the explorer adds to the conversion of a frame, as lists of functions."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from .graph_capture import OutputGraph

# the frame is evaluated within these
TRACING: "list[Callable[[OutputGraph], AbstractContextManager[None]]]" = []
# (output, what torch.fx has made of its graph), before a backend sees that
GRAPH_MODULES: "list[Callable[[OutputGraph, torch.fx.GraphModule], None]]" = []

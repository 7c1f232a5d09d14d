"""Lowering: ATen ops -> loop IR.  `lower_graph(gm, record)` is the entry; the other files hold the
rules by family."""

from .graph import lower_graph
from .registry import LOWERINGS

__all__ = ["lower_graph", "LOWERINGS"]

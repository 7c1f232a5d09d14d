"""Lowering: ATen ops -> loop IR.  `lower_graph(gm, record)` is the entry; each of the other files
holds the rules of one family of ops."""

from .graph import lower_graph
from .registry import LOWERINGS

__all__ = ["lower_graph", "LOWERINGS"]

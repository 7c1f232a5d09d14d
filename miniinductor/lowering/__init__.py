"""Lowering: ATen ops -> loop IR.  `lower_graph(gm, record)` is the entry; each of the other files
holds the rules of one family of ops, which stand in tables when the file has been imported."""

from . import (  # noqa: F401
    decompositions,
    images,
    indexing,
    normalization,
    pointwise,
    random,
    reductions,
    views,
)
from .graph import lower_graph
from .registry import LOWERINGS

__all__ = ["lower_graph", "LOWERINGS"]

"""Lowering: ATen ops -> loop IR.  `lower_graph(gm, record)` is the entry; each of the other files
holds the rules of one family of ops."""

from . import (  # noqa: F401
    decompositions,
    extern,
    indexing,
    interpolation,
    normalization,
    parts,
    pointwise,
    pooling,
    random,
    reductions,
    refusals,
    scans,
    statistics,
    views,
    whole_calls,
)
from .graph import lower_graph
from .registry import LOWERINGS

__all__ = ["lower_graph", "LOWERINGS"]

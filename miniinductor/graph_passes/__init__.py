"""Passes over the functional graph, before lowering."""

from .basic import optimize
from .registry import LAYOUTS, REWRITING, Context, changed, graph_pass

__all__ = ["LAYOUTS", "REWRITING", "Context", "changed", "graph_pass", "optimize"]

"""Passes over the functional graph, before lowering."""

from .basic import optimize
from .registry import LAYOUTS, REWRITING, Context, changed

__all__ = ["LAYOUTS", "REWRITING", "Context", "changed", "optimize"]

"""Passes over the functional graph, before lowering."""

from .basic import optimize
from .registry import Context, in_layouts, rewritten

__all__ = ["Context", "in_layouts", "optimize", "rewritten"]

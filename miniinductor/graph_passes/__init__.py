"""Passes over the functional graph, before lowering."""
from .basic import optimize

__all__ = ["optimize"]

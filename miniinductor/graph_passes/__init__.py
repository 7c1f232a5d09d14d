"""Passes over the functional graph, before lowering."""
from .basic import optimize
from .gpu_layout import optimize_for_gpu

__all__ = ["optimize", "optimize_for_gpu"]

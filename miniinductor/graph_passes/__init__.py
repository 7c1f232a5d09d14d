"""Passes over the functional graph, before lowering."""

from .basic import optimize
from .cpu_library import optimize_for_cpu
from .freezing import Constants, fold_affine, freeze
from .pattern_matcher import apply
from .patterns import rewrites

__all__ = [
    "Constants",
    "apply",
    "fold_affine",
    "freeze",
    "optimize",
    "optimize_for_cpu",
    "rewrites",
]

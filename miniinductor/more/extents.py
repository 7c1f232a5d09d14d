"""How far a view reaches into its memory; the larger of two sizes.

>>> extent((4, 8), (8, 1))
32
"""

from collections.abc import Sequence
from typing import Any

import sympy

from ..sizes.expressions import Size
from ..sizes.symbols import size as as_size


def extent(size: Sequence[Size], stride: Sequence[Size], offset: Size = 0) -> int | None:
    """One past the highest element that a view reaches, or None where sizes are symbolic."""
    if any(n == 0 for n in size):
        return 0
    parts = [offset, *size, *stride]
    if not all(isinstance(p, int) or getattr(p, "is_Integer", False) for p in parts):
        return None
    return 1 + int(offset) + sum((int(n) - 1) * int(s) for n, s in zip(size, stride))


def maximum(a: Any, b: Any) -> Any:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    return as_size(sympy.Max(a, b))

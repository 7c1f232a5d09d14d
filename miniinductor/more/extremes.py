"""How low and how high maxima, minima and absolute values of sizes are.

>>> maximum((0, 3), (1, 2))
(1, 3)
"""

import sympy

from ..sizes.intervals import RULES, Interval


def maximum(*parts: Interval) -> Interval:
    return max(low for low, _ in parts), max(high for _, high in parts)


def minimum(*parts: Interval) -> Interval:
    return min(low for low, _ in parts), min(high for _, high in parts)


def absolute(part: Interval) -> Interval:
    low, high = part
    return max(low, -high, 0), max(-low, high)


RULES |= {sympy.Max: maximum, sympy.Min: minimum, sympy.Abs: absolute}

"""How many elements one chunk of a long scan or reduction has.

>>> nearest_divisor(96, 20), nearest_divisor(97, 20)        # 97 comes in no whole chunks
(16, 20)
"""


def nearest_divisor(count: int, wanted: int) -> int:
    """The divisor of `count` nearest to `wanted`, between its half and its double, so that `count`
    elements come in whole chunks; where there is none, `wanted` itself."""
    near = [d for d in range(max(2, wanted // 2), 2 * wanted + 1) if count % d == 0]
    return min(near, key=lambda d: abs(d - wanted), default=wanted)

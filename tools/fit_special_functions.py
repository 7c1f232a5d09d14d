"""The coefficients in `miniinductor/lowerings/special_tables.py`, computed anew.

In:   mpmath's special functions with 40 digits.  Out: the file, one Chebyshev series a function and
      range.

    python tools/fit_special_functions.py > miniinductor/lowerings/special_tables.py

Method: a smooth function f on -1 <= t <= 1 is interpolated at the n roots of the Chebyshev
polynomial T_n, which gives the coefficients of T_0, T_1, ... as sums of cosines (the discrete
cosine transform).  They fall like a geometric series where f has no singularity near by, and are
cut off where they are below 1e-16 of the largest.  What is not smooth (a root, a logarithm, a
pole, an oscillation, a decay) is taken out of f first; what is left, and the map from x to t, is
written beside each entry below, and in `special.py` where it is put together again.
"""

from collections.abc import Callable
from typing import Any

import mpmath
from mpmath import mp, mpf

mp.dps = 40
NODES, SMALL = 90, mpf(10) ** -16
HEADER = '''"""Coefficients of Chebyshev series, written by tools/fit_special_functions.py.

In:   nothing.  Out: TABLES, name -> coefficients of T_0, T_1, ... on -1 <= t <= 1.
"""


def numbers(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split()))


TABLES = {'''


def series(f: Callable[[Any], Any]) -> list[Any]:
    """Coefficients of f's Chebyshev series, without those that are too small to count."""
    angles = [mp.pi * (k + mpf(1) / 2) / NODES for k in range(NODES)]
    values = [f(mpmath.cos(a)) for a in angles]
    found = [
        2 * mpmath.fsum(v * mpmath.cos(j * a) for v, a in zip(values, angles)) / NODES
        for j in range(NODES)
    ]
    found[0] /= 2
    largest = max(map(abs, found))
    while abs(found[-1]) < SMALL * largest:
        found.pop()
    if len(found) > NODES * 2 // 3:
        raise ValueError("the function is not smooth enough")
    return found


def between(low: float, high: float) -> Callable[[Any], Any]:
    """t -> x, linear, from -1 <= t <= 1 to low <= x <= high."""
    return lambda t: low + (high - low) * (t + 1) / 2


def even(f: Callable[[Any], Any], reach: float) -> Callable[[Any], Any]:
    """f of |x| <= reach as a function of t = 2 * (x / reach)^2 - 1."""
    return lambda t: f(reach * mpmath.sqrt((t + 1) / 2))


def beyond(f: Callable[[Any], Any], least: float) -> Callable[[Any], Any]:
    """f of x >= least as a function of t = 2 * least / x - 1."""
    return lambda t: f(2 * least / (t + 1))


def far(f: Callable[[Any], Any], least: float) -> Callable[[Any], Any]:
    """f of x >= least as a function of t = 2 * (least / x)^2 - 1."""
    return lambda t: f(least / mpmath.sqrt((t + 1) / 2))


def wave(order: int, part: int) -> Callable[[Any], Any]:
    """Hankel's P (part 0) and x * Q (part 1): with c = x - (2 * order + 1) * pi / 4,
    J = sqrt(2 / (pi x)) * (P cos c - Q sin c) and Y = sqrt(2 / (pi x)) * (P sin c + Q cos c)."""

    def f(x: Any) -> Any:
        c = x - (2 * order + 1) * mp.pi / 4
        j, y = mpmath.besselj(order, x), mpmath.bessely(order, x)
        scale = mpmath.sqrt(mp.pi * x / 2)
        if part:
            return scale * (y * mpmath.cos(c) - j * mpmath.sin(c)) * x
        return scale * (j * mpmath.cos(c) + y * mpmath.sin(c))

    return f


def airy_wave(part: int) -> Callable[[Any], Any]:
    """The same of Ai(-x) and Bi(-x), as functions of z = 2/3 x^(3/2), c = z - pi / 4."""

    def f(z: Any) -> Any:
        x = (3 * z / 2) ** (mpf(2) / 3)
        c, scale = z - mp.pi / 4, mpmath.sqrt(mp.pi) * x ** (mpf(1) / 4)
        a, b = mpmath.airyai(-x), mpmath.airybi(-x)
        if part:
            return scale * (a * mpmath.sin(c) + b * mpmath.cos(c)) * z
        return scale * (a * mpmath.cos(c) - b * mpmath.sin(c))

    return f


def airy_decay(z: Any) -> Any:
    x = (3 * z / 2) ** (mpf(2) / 3)
    return mpmath.airyai(x) * 2 * mpmath.sqrt(mp.pi) * x ** (mpf(1) / 4) * mpmath.exp(z)


def quantile(p: Any) -> Any:
    """x with normal distribution p."""
    if p < mpf(10) ** -3:
        start = -mpmath.sqrt(-2 * mpmath.log(p))
        return mpmath.findroot(lambda x: mpmath.log(mpmath.ncdf(x)) - mpmath.log(p), start)
    return mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1)


def erfcx(x: Any) -> Any:
    return mpmath.exp(x * x) * mpmath.erfc(x)


j, y, i, k, exp, log, sqrt = (
    mpmath.besselj,
    mpmath.bessely,
    mpmath.besseli,
    mpmath.besselk,
    mpmath.exp,
    mpmath.log,
    mpmath.sqrt,
)
FUNCTIONS = {
    "j0": even(lambda x: j(0, x), 8),
    "j1": even(lambda x: j(1, x) / x, 8),
    "y0": even(lambda x: y(0, x) - 2 / mp.pi * log(x) * j(0, x), 8),
    "y1": even(lambda x: (y(1, x) - 2 / mp.pi * (log(x) * j(1, x) - 1 / x)) / x, 8),
    "p0": far(wave(0, 0), 8),
    "q0": far(wave(0, 1), 8),
    "p1": far(wave(1, 0), 8),
    "q1": far(wave(1, 1), 8),
    "i0": lambda t: (lambda x: exp(-x) * i(0, x))(between(0, 8)(t)),
    "i1": lambda t: (lambda x: exp(-x) * i(1, x) / x)(between(0, 8)(t)),
    "i0_far": beyond(lambda x: exp(-x) * i(0, x) * sqrt(x), 8),
    "i1_far": beyond(lambda x: exp(-x) * i(1, x) * sqrt(x), 8),
    "i0_near": even(lambda x: i(0, x), 2),
    "i1_near": even(lambda x: i(1, x) / x, 2),
    "k0": even(lambda x: k(0, x) + log(x / 2) * i(0, x), 2),
    "k1": even(lambda x: (k(1, x) - log(x / 2) * i(1, x)) * x, 2),
    "k0_far": beyond(lambda x: exp(x) * k(0, x) * sqrt(x), 2),
    "k1_far": beyond(lambda x: exp(x) * k(1, x) * sqrt(x), 2),
    "erfcx": lambda t: (lambda x: erfcx(x) * (1 + 2 * x))(4 * (1 + t) / (1 - t)),
    "ndtri": even(lambda d: quantile(mpf(1) / 2 + d) / d, 0.375),
    "ndtri_tail": lambda t: (lambda z: quantile(exp(-z * z / 2)) / z)(between(2, 14.5)(t)),
    "airy": lambda t: mpmath.airyai(between(-5, 2)(t)),
    "airy_far": beyond(airy_decay, 1.8),  # 2/3 * 2^1.5 = 1.8856
    "airy_p": far(airy_wave(0), 7),  # 2/3 * 5^1.5 = 7.4536
    "airy_q": far(airy_wave(1), 7),
}


def printed(name: str, coefficients: list[Any]) -> str:
    lines, line = [], "       "
    for c in coefficients:
        text = repr(float(c))
        if len(line) + len(text) + 1 > 96:
            lines.append(line)
            line = "       "
        line += " " + text
    return f'    "{name}": numbers("""\n' + "\n".join([*lines, line]) + '\n    """),'


if __name__ == "__main__":
    print(HEADER)
    for name, function in FUNCTIONS.items():
        print(printed(name, series(function)))
    print("}")

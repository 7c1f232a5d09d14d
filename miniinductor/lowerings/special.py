"""Lowerings of special functions: Bessel, Airy, digamma, the normal quantile, polynomials.

In:   one or two tensors whose result is float32 or narrower.  Out: a `Pointwise` value.

    bessel_j0(x)  of |x| <= 8:   a Chebyshev series in t = x^2 / 32 - 1
                  beyond:        sqrt(2 / (pi x)) * (P cos c - Q sin c), c = x - pi / 4

Everything is computed in float64 and rounded once, so that a result is at least as near to the
function as eager's.  Float64 results stay eager's kernels: these forms would have no digits to
spare.  The series come from tools/fit_special_functions.py; the formulas are those of the NIST
Digital Library of Mathematical Functions (chapters 5, 7, 9, 10 and 18).

Mirrors `pointwise_overrides_data` of torch/_inductor/codegen/common.py.
# PyTorch: calls ATen's and CUDA's functions of the same names.
"""

import math
from collections.abc import Callable
from typing import Any

import torch

from ..ir import Index, TensorBox
from ..lowering.pointwise import INT_TO_FLOAT
from ..lowering.registry import Call, NotLowered, aten, lower, made, pointwise, promoted
from ..ops import Value, ops
from .special_tables import TABLES

WIDE = torch.float64
NO_PHASE = 3.0e25  # an Airy function of less than minus this: z overflows in float32, as in eager
SMALL_ORDER = 8
LARGEST = torch.finfo(torch.float32).max
LONGEST = 12  # the largest order of a polygamma function whose reflection is written out


class Number:
    """A float64 value of a loop body with Python's operators, so that formulas look like those."""

    def __init__(self, value: Value) -> None:
        self.value = value

    def __add__(self, other: Any) -> "Number":
        return Number(ops.add(self.value, of(other)))

    def __sub__(self, other: Any) -> "Number":
        return Number(ops.sub(self.value, of(other)))

    def __rsub__(self, other: Any) -> "Number":
        return Number(ops.sub(of(other), self.value))

    def __mul__(self, other: Any) -> "Number":
        return Number(ops.mul(self.value, of(other)))

    def __truediv__(self, other: Any) -> "Number":
        return Number(ops.truediv(self.value, of(other)))

    def __rtruediv__(self, other: Any) -> "Number":
        return Number(ops.truediv(of(other), self.value))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Number":
        return Number(ops.neg(self.value))

    def __lt__(self, other: Any) -> Value:
        return ops.lt(self.value, of(other))

    def __le__(self, other: Any) -> Value:
        return ops.le(self.value, of(other))

    def __gt__(self, other: Any) -> Value:
        return ops.gt(self.value, of(other))

    def at_least(self, other: Any) -> Value:
        return ops.ge(self.value, of(other))

    def equals(self, other: Any) -> Value:
        return ops.eq(self.value, of(other))


def of(number: Any) -> Value:
    return number.value if isinstance(number, Number) else ops.constant(float(number), WIDE)


def applied(name: str) -> Callable[[Number], Number]:
    return lambda x: Number(getattr(ops, name)(x.value))


exp, expm1, log, sqrt, sin, cos, tan, acos, acosh, cosh, sinh, absolute, trunc, floor = map(
    applied, "exp expm1 log sqrt sin cos tan acos acosh cosh sinh abs trunc floor".split()
)


def choose(condition: Value, a: Any, b: Any) -> Number:
    return Number(ops.where(condition, of(a), of(b)))


def series(name: str, t: Number) -> Number:
    """The Chebyshev series of this name, by Clenshaw's recurrence."""
    first, *others = TABLES[name]
    later: Any = 0.0
    last: Any = 0.0
    for coefficient in reversed(others):
        later, last = last, 2 * t * last - later + coefficient
    return t * last - later + first


def squared_range(x: Number, reach: float) -> Number:
    return x * x * (2 / reach**2) - 1


def inverse_range(x: Number, least: float) -> Number:
    return 2 * least / x - 1


def far_range(x: Number, least: float) -> Number:
    return (least / x) * (least / x) * 2 - 1


# --- Bessel functions -----------------------------------------------------------------------------
def wave_parts(x: Number, order: int) -> tuple[Number, Number, Number, Number]:
    """(P, Q, cosine, sine) times sqrt(2 / (pi x)), of x > 8."""
    t = far_range(x, 8)
    p, q = series(f"p{order}", t), series(f"q{order}", t) / x
    scale, phase = sqrt(2 / math.pi / x), x - (2 * order + 1) * math.pi / 4
    return p, q, scale * cos(phase), scale * sin(phase)


def bessel_j(x: Number, order: int) -> Number:
    size = absolute(x)
    t = squared_range(x, 8)
    near = series("j0", t) if order == 0 else size * series("j1", t)
    p, q, cosine, sine = wave_parts(size, order)
    value = choose(size <= 8, near, p * cosine - q * sine)
    return choose(x < 0, -value, choose(x.equals(0), x, value)) if order else value


def bessel_y(x: Number, order: int) -> Number:
    """Of x > 0; at 0 the pole, below not a number."""
    t, logarithm = squared_range(x, 8), 2 / math.pi * log(x)
    if order == 0:
        near = logarithm * series("j0", t) + series("y0", t)
    else:
        near = x * (logarithm * series("j1", t) + series("y1", t)) - 2 / math.pi / x
    p, q, cosine, sine = wave_parts(x, order)
    value = choose(x <= 8, near, p * sine + q * cosine)
    return choose(x.equals(0), -math.inf, choose(x < 0, math.nan, value))


def scaled_bessel_i(x: Number, order: int) -> Number:
    """exp(-|x|) I(x)"""
    size = absolute(x)
    near = series(f"i{order}", size / 4 - 1)
    if order:
        near = size * near
    far = series(f"i{order}_far", inverse_range(size, 8)) / sqrt(size)
    value = choose(size <= 8, near, far)
    return choose(x < 0, -value, value) if order else value


def bessel_i(x: Number, order: int) -> Number:
    return exp(absolute(x)) * scaled_bessel_i(x, order)


def scaled_bessel_k(x: Number, order: int, is_scaled: bool = True) -> Number:
    """exp(x) K(x), or K(x); at 0 the pole, below not a number."""
    t, logarithm = squared_range(x, 2), log(x / 2)
    if order == 0:
        near = series("k0", t) - logarithm * series("i0_near", t)
    else:
        near = series("k1", t) / x + logarithm * x * series("i1_near", t)
    far = series(f"k{order}_far", inverse_range(x, 2)) / sqrt(x)
    if is_scaled:
        value = choose(x <= 2, exp(x) * near, far)
    else:
        value = choose(x <= 2, near, exp(-x) * far)
    return choose(x.equals(0), math.inf, choose(x < 0, math.nan, value))


def bessel_k(x: Number, order: int) -> Number:
    return scaled_bessel_k(x, order, is_scaled=False)


def spherical_bessel_j0(x: Number) -> Number:
    value = choose(x.equals(0), 1.0, sin(x) / x)
    return choose(absolute(x).equals(math.inf), 0.0, value)


def airy_ai(x: Number) -> Number:
    """-5 to 2: a series; above it falls like exp(-z), below it swings; z = 2/3 |x|^(3/2)."""
    size = absolute(x)
    root = sqrt(size)
    z, fourth = size * root * (2 / 3), sqrt(root)
    middle = series("airy", (x + 5) * (2 / 7) - 1)
    above = exp(-z) * series("airy_far", inverse_range(z, 1.8)) / (2 * math.sqrt(math.pi) * fourth)
    t, phase = far_range(z, 7), z - math.pi / 4
    p, q = series("airy_p", t), series("airy_q", t) / z
    below = (p * cos(phase) + q * sin(phase)) / (math.sqrt(math.pi) * fourth)
    value = choose(x < -5, below, choose(x > 2, above, middle))
    is_lost = ops.logical_or(x < -NO_PHASE, size.equals(math.inf))
    return choose(is_lost, math.nan, value)


# --- of errors and the normal distribution --------------------------------------------------------
def erfcx(x: Number) -> Number:
    """exp(x^2) erfc(x): (1 + 2x) times it is smooth in (x - 4) / (x + 4)."""
    size = absolute(x)
    value = series("erfcx", 1 - 8 / (size + 4)) / (1 + 2 * size)
    return choose(x < 0, 2 * exp(x * x) - value, value)


def ndtri(p: Number) -> Number:
    """Near 1/2 an odd function of p - 1/2; in the tails a function of z = sqrt(-2 ln p)."""
    distance = p - 0.5
    middle = distance * series("ndtri", squared_range(distance, 0.375))
    is_low = distance < 0
    z = sqrt(-2 * log(choose(is_low, p, 1 - p)))
    tail = z * series("ndtri_tail", (z - 2) / 6.25 - 1)
    value = choose(absolute(distance) <= 0.375, middle, choose(is_low, tail, -tail))
    value = choose(p.equals(0), -math.inf, choose(p.equals(1), math.inf, value))
    return choose(ops.logical_or(p < 0, p > 1), math.nan, value)


# --- digamma and polygamma ------------------------------------------------------------------------
# Bernoulli's numbers B2, B4, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
STEPS = 10  # x is moved up to x >= STEPS, where the asymptotic series is exact enough


def digamma_of_positive(x: Number) -> Number:
    """psi(x) = psi(x + 1) - 1 / x, and for large x: ln x - 1 / (2x) - sum B2k / (2k x^2k)."""
    total: Any = 0.0
    for _ in range(STEPS):
        is_small = x < STEPS
        total = total - choose(is_small, 1 / x, 0.0)
        x = choose(is_small, x + 1, x)
    y = 1 / (x * x)
    tail: Any = 0.0
    for k in reversed(range(len(BERNOULLI))):
        tail = (tail + BERNOULLI[k] / (2 * k + 2)) * y
    return log(x) - 0.5 / x - tail + total


def digamma(x: Number) -> Number:
    """Below 0: psi(1 - x) - pi / tan(pi x); 0 is a pole with the sign of 0, the other whole numbers
    are none."""
    is_negative = x < 0
    value = digamma_of_positive(choose(is_negative, 1 - x, x))
    reflected = value - math.pi / tan(math.pi * (x - trunc(x)))
    value = choose(is_negative, reflected, value)
    is_pole = ops.logical_and(is_negative, x.equals(trunc(x)))
    value = choose(is_pole, math.nan, value)
    return choose(x.equals(0), 1 / -x, value)


def polygamma_of_positive(x: Number, n: int) -> Number:
    """(-1)^(n+1) psi_n(x) = n! sum of 1 / (x + k)^(n+1): `steps` terms, then Euler and
    Maclaurin's formula."""
    steps = STEPS + n
    total: Any = 0.0
    for k in range(steps):
        total = total + powered(1 / (x + k), n + 1)
    far = x + steps
    inverse = 1 / far
    y = inverse * inverse
    # sum over k >= 0 of f(far + k), f(a) = a^-s: a^(1-s) / (s-1) + a^-s / 2 + ...
    tail: Any = 0.0
    for k in reversed(range(len(BERNOULLI))):
        factor = BERNOULLI[k] / math.factorial(2 * k + 2)
        rising = math.prod(range(n + 1, n + 2 * k + 2))
        tail = tail * y + factor * rising
    rest = powered(inverse, n) / n + powered(inverse, n + 1) / 2 + powered(inverse, n + 2) * tail
    return math.factorial(n) * (total + rest)


def powered(x: Number, n: int) -> Number:
    """x^n by multiplications."""
    result = None
    while n:
        if n % 2:
            result = x if result is None else result * x
        x, n = x * x, n // 2
    assert result is not None
    return result


def cotangent_derivative(n: int) -> list[int]:
    """d^n/dy^n cot(y) as a polynomial in c = cot(y): its coefficients, by c' = -(1 + c^2)."""
    polynomial = [0, 1]
    for _ in range(n):
        slope = [k * a for k, a in enumerate(polynomial)][1:]
        polynomial = [0] * (len(slope) + 2)
        for k, a in enumerate(slope):
            polynomial[k] -= a
            polynomial[k + 2] -= a
    return polynomial


def polygamma_of(x: Number, n: int) -> Number:
    """Below 0: psi_n(x) = (-1)^n psi_n(1 - x) - pi d^n/dx^n cot(pi x); whole numbers are poles."""
    if n == 0:
        return digamma(x)
    is_negative = x < 0
    value = polygamma_of_positive(choose(is_negative, 1 - x, x), n)
    cotangent = 1 / tan(math.pi * (x - trunc(x)))
    polynomial: Any = 0.0
    for coefficient in reversed(cotangent_derivative(n)):
        polynomial = polynomial * cotangent + coefficient
    sign = (-1) ** (n + 1)
    reflected = -value - math.pi ** (n + 1) * polynomial
    value = choose(is_negative, reflected, sign * value)
    is_pole = ops.logical_and(x <= 0, x.equals(trunc(x)))
    value = choose(is_pole, sign * math.inf, value)
    return choose(x.equals(math.inf if n > 1 else -math.inf), math.nan, value)  # as eager's


# --- Chebyshev polynomials ------------------------------------------------------------------------
STARTS: dict[str, Callable[[Number], Number]] = {  # of order 1; of order 0 it is 1
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}


def whole_order(n: Number) -> Number:
    """As eager converts an order to int64: one that is too large becomes negative."""
    return choose(n > 9.2e18, -1.0, trunc(n))


def chebyshev(kind: str, x: Number, n: Number) -> Number:
    """Small orders by the recurrence p(n + 1) = 2 x p(n) - p(n - 1).  Larger ones of |x| < 1 by
    trigonometric functions of acos x, beyond by hyperbolic ones of acosh |x|: no number two orders
    after the first infinity, as in eager's recurrence."""
    n = whole_order(n)
    is_odd = (n - 2 * floor(n / 2)).equals(1)
    size = absolute(x)
    is_inside = size <= 1
    angle, steep = acos(x), acosh(choose(is_inside, 1.0, size))
    if kind == "t":
        inside, outside = cos(n * angle), cosh(n * steep)
    elif kind == "u":
        inside = sin((n + 1) * angle) / sin(angle)
        outside = sinh((n + 1) * steep) / sinh(steep)
    else:
        inside, outside = halves(kind, x, n + 0.5, angle, steep)
    is_turned = ops.logical_and(is_odd, x < 0)
    value = choose(is_inside, inside, choose(is_turned, -outside, outside))
    value = choose(size.equals(1), at_one(kind, x, n, is_odd), value)
    two_before = absolute(value) * exp(-2 * steep)
    is_lost = ops.logical_or(two_before > LARGEST, size.equals(math.inf))
    value = choose(is_lost, math.nan, value)
    return choose(n > SMALL_ORDER, value, of_small_order(kind, x, n))


def of_small_order(kind: str, x: Number, n: Number) -> Number:
    """0 of a negative order, or one that is no number.  Where float32 overflows, eager's
    recurrence goes on with infinities, whose difference is no number."""
    value = choose(n.equals(0), 1.0, 0.0)
    before, last = Number(of(1.0)), STARTS[kind](x)
    for k in range(1, SMALL_ORDER + 1):
        value = choose(n.equals(k), last, value)
        following = 2 * x * last - before
        is_over = absolute(following) > LARGEST
        before, last = last, choose(is_over, following * math.inf, following)
    return value


def at_one(kind: str, x: Number, n: Number, is_odd: Value) -> Number:
    """Of x = 1 and of x = -1."""
    one, many = Number(of(1.0)), 2 * n + 1
    above = {"t": one, "u": n + 1, "v": one, "w": many}[kind]
    below = {"t": one, "u": n + 1, "v": many, "w": one}[kind]
    return choose(x < 0, choose(is_odd, -below, below), above)


def halves(
    kind: str, x: Number, half: Number, angle: Number, steep: Number
) -> tuple[Number, Number]:
    """V and W: cosines, or sines, of (n + 1/2) angle over those of angle / 2.  Of x < -1 each is
    the other one of -x, with a sign."""
    cosines = cos(half * angle) / cos(0.5 * angle)
    sines = sin(half * angle) / sin(0.5 * angle)
    rising = cosh(half * steep) / cosh(0.5 * steep)
    falling = sinh(half * steep) / sinh(0.5 * steep)
    if kind == "v":
        return cosines, choose(x < 0, falling, rising)
    return sines, choose(x < 0, rising, falling)


# --- mantissa and exponent ------------------------------------------------------------------------
def frexp_parts(x: Number) -> tuple[Number, Number]:
    """x = mantissa * 2^exponent, 1/2 <= |mantissa| < 1.  Float64 has digits and exponents to spare
    for what was float32, so that only the logarithm must be corrected, by one at most."""
    size = absolute(x)
    is_plain = ops.logical_and(size > 0, size < math.inf)
    usable = choose(is_plain, size, 1.0)
    exponent = floor(Number(ops.log2(usable.value))) + 1
    mantissa = usable * Number(ops.exp2((-exponent).value))
    is_large, is_small = mantissa.at_least(1), mantissa < 0.5
    exponent = choose(is_large, exponent + 1, choose(is_small, exponent - 1, exponent))
    mantissa = choose(is_large, mantissa / 2, choose(is_small, mantissa * 2, mantissa))
    mantissa = choose(x < 0, -mantissa, mantissa)
    return choose(is_plain, mantissa, x), choose(is_plain, exponent, 0.0)


@lower(aten.frexp.Tensor)
def frexp(call: Call, x: TensorBox) -> list[TensorBox]:
    if x.dtype == WIDE:
        raise NotLowered("the exponent of a float64 number is that of its logarithm, rounded")
    load, results = x.make_loader(), call.value

    def part(which: int) -> TensorBox:
        dtype = results[which].dtype

        def body(index: Index) -> Value:
            wide = ops.to_dtype(load(index), WIDE, x.dtype)
            return ops.to_dtype(frexp_parts(Number(wide))[which].value, dtype, WIDE)

        return made(call, body, x, dtype=dtype)

    return [part(0), part(1)]


# --- registration ---------------------------------------------------------------------------------
OF_ONE: dict[str, Callable[[Number], Number]] = {
    "i0": lambda x: bessel_i(x, 0),
    "special_i0e": lambda x: scaled_bessel_i(x, 0),
    "special_i1": lambda x: bessel_i(x, 1),
    "special_i1e": lambda x: scaled_bessel_i(x, 1),
    "special_bessel_j0": lambda x: bessel_j(x, 0),
    "special_bessel_j1": lambda x: bessel_j(x, 1),
    "special_bessel_y0": lambda x: bessel_y(x, 0),
    "special_bessel_y1": lambda x: bessel_y(x, 1),
    "special_modified_bessel_i0": lambda x: bessel_i(x, 0),
    "special_modified_bessel_i1": lambda x: bessel_i(x, 1),
    "special_modified_bessel_k0": lambda x: bessel_k(x, 0),
    "special_modified_bessel_k1": lambda x: bessel_k(x, 1),
    "special_scaled_modified_bessel_k0": lambda x: scaled_bessel_k(x, 0),
    "special_scaled_modified_bessel_k1": lambda x: scaled_bessel_k(x, 1),
    "special_spherical_bessel_j0": spherical_bessel_j0,
    "special_airy_ai": airy_ai,
    "special_erfcx": erfcx,
    "special_ndtri": ndtri,
    "digamma": digamma,
}


def in_float64(call: Call, function: Callable[..., Number], *args: Any) -> TensorBox:
    """function of these boxes and numbers, computed in float64 and rounded to the result's
    dtype."""
    if call.value.dtype == WIDE:
        raise NotLowered("eager's kernel has more digits than the series")
    compute = promoted(INT_TO_FLOAT, *args)

    def body(*values: Value) -> Value:
        wide = [Number(ops.to_dtype(v, WIDE, compute)) for v in values]
        return ops.to_dtype(function(*wide).value, compute, WIDE)

    return pointwise(call, body, *args, promotion=INT_TO_FLOAT)


@lower(*[getattr(aten, name).default for name in OF_ONE])
def of_one(call: Call, x: TensorBox) -> TensorBox:
    return in_float64(call, OF_ONE[call.name], x)


@lower(aten.polygamma.default)
def polygamma(call: Call, n: int, x: TensorBox) -> TensorBox:
    if not 0 <= n <= LONGEST:
        raise NotLowered(f"polygamma of order {n}")
    return in_float64(call, lambda v: polygamma_of(v, n), x)


def chebyshev_rule(kind: str, is_shifted: bool) -> Callable[..., TensorBox]:
    def rule(call: Call, x: Any, n: Any) -> TensorBox:
        def polynomial(v: Number, order: Number) -> Number:
            return chebyshev(kind, 2 * v - 1 if is_shifted else v, order)

        return in_float64(call, polynomial, x, n)

    return rule


for _kind in "tuvw":
    for _start in ("special_", "special_shifted_"):
        _packet = getattr(aten, f"{_start}chebyshev_polynomial_{_kind}")
        lower(_packet)(chebyshev_rule(_kind, "shifted" in _start))

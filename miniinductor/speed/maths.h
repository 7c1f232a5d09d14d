// Maths without branches or calls: GCC turns it into vector code inside `#pragma omp simd`.  Overloads for float of what the prelude takes from libm.
//
// Our own polynomials (exp2: our fit; log: Cephes; tanh, erf: Eigen/XLA rationals, as published), a few ulp, right on NaN, inf, -0.0 and subnormals;
// sin, log2, pow and their relatives are Taylor series in double, rounded once: at most 1 ulp.
namespace mini {
constexpr int NOT_FAST = 4;                     // a further bit of `error`
// Functions with a parameter `exact` have a fast form, right for all but large arguments.  A kernel runs with the fast ones; if it met an
// argument that is too large for them (NOT_FAST), it runs once more, with the exact ones.
template <bool value> struct Bool { static constexpr bool v = value; };
template <class Body> OP int fast_then_exact(Body body) {
    int error = body(Bool<false>());
    return error & NOT_FAST ? body(Bool<true>()) & ~NOT_FAST : error;
}
OP float exp2(float x0) {                       // 2^n * 2^r, |r| <= 1/2; polynomial: our own minimax fit, 2e-9
    float x = x0 < -151.f ? -254.f : x0;        // to 0, as exp
    int32_t i = at_most_129(x + SHIFT);
    float r = x - (bits<float>(i) - SHIFT);
    float p = horner(r, 1.5353361e-4f, 1.3398875e-3f, 9.6184369e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.9314718e-1f, 1.f);
    return times_power(p, i);
}

// Cephes logf: x = 2^e * (1 + m); log(1 + m) = m + y.  Each logarithm adds up m, y and e in its own base, large parts last.
struct LogRange { float m, e, down; };          // down = 2^-e, if |e| is below 126
OP LogRange log_range(float x0) {
    bool tiny = x0 < 1.17549435e-38f;
    float x = tiny ? x0 * 8388608.f : x0;       // a subnormal is scaled by 2^23 first
    int32_t b = bits<int32_t>(x), e = (b - 0x3f3504f3) >> 23;
    uint32_t power = (uint32_t)e << 23;
    return {bits<float>((uint32_t)b - power) - 1.f, (float)e - (tiny ? 23.f : 0.f), bits<float>(0x3f800000u - power)};
}
struct Logarithm { float m, y, e; };
OP Logarithm log_of(float m, float e) {
    float z = m * m;
    float p = horner(m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                     -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
    return {m, fma(p * m, z, -0.5f * z), e};
}
OP Logarithm log_parts(float x) {
    auto [m, e, down] = log_range(x);
    return log_of(m, e);
}
OP float log_limits(float x, float y) {         // the logarithm of x is y, but for x = 0, below 0, inf and NaN
    y = x == 0.f ? -inf : y;
    y = x < 0.f ? nan : y;
    return x < inf ? y : x;
}
OP float in_base_e(Logarithm x) { return fma(x.e, 0.693359375f, x.m + fma(x.e, -2.12194440e-4f, x.y)); }
OP float log(float x) { return log_limits(x, in_base_e(log_parts(x))); }
OP float log2(float x) {                        // 1/ln 2 = 1 + 0.4427
    auto [m, y, e] = log_parts(x);
    return log_limits(x, fma(m, 0.44269504f, y * 0.44269504f) + y + m + e);
}
OP float log10(float x) {                       // 1/ln 10 = 0.43359375 + 7.0073e-4, log10 2 = 0.30078125 + 2.4875e-4
    auto [m, y, e] = log_parts(x);
    float low = fma(e, 2.48745663981e-4f, (m + y) * 7.00731903251e-4f);
    return log_limits(x, fma(e, 0.30078125f, fma(m, 0.43359375f, fma(y, 0.43359375f, low))));
}

OP float log1p(float x) {                       // u = 1 + x is rounded; (1 + x) * 2^-e - 1 is, too, but as the small number that it is
    float u = 1.f + x;
    auto [f, e, down] = log_range(u);
    f = x > 1e9f ? f : fma(x, down, down - 1.f);
    float y = log_limits(u, in_base_e(log_of(f, e)));
    return u == 1.f ? x : y;
}
OP float expm1(float x0) {                      // 2^n * (1 + p) - 1; half of it, since 2^128 is inf
    float x = x0 < -20.f ? -20.f : x0;
    int32_t i = bits<int32_t>(fma(x, 1.44269504f, SHIFT));
    i = i > 0x4b400080 ? 0x4b400080 : i;        // n at most 128, see at_most_129
    float n = bits<float>(i) - SHIFT, r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = fma(r * r, horner(r, 1.39336500e-3f, 8.36317905e-3f, 4.16665546e-2f, 1.66665770e-1f, 0.5f), r);
    float power = bits<float>((i << 23) + 0x3f000000), half = fma(power, p, power - 0.5f);
    return __builtin_fabsf(x0) < 1e-30f ? x0 : half + half;
}

OP float tanh(float x0) {                       // Eigen/XLA rational, odd/even degree 13/6
    float x = __builtin_fabsf(x0), z = x * x;
    float p = horner(z, -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                     1.48572235717979e-05f, 6.37261928875436e-04f, 4.89352455891786e-03f);
    float q = horner(z, 1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f);
    float y = x > 7.99881172180175781f ? 1.f : x * p / q;   // exactly 1: gradients multiply 1 - y * y by powers of x
    return x < 0.0004f ? x0 : __builtin_copysignf(y, x0);
}

OP float erf(float x0) {                        // Eigen/XLA rational, odd/even degree 13/8
    float x = __builtin_fabsf(x0);
    x = x > 4.f ? 4.f : x;
    float z = x * x;
    float p = horner(z, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
                     -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f);
    float q = horner(z, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
                     -1.42647390514189e-02f);
    return __builtin_copysignf(x * (p / q), x0);        // not x * p / q, which loses the last bits of a subnormal x
}

// --- float functions computed in double -------------------------------------------------------------------------------------
// Half the lanes, but no tricks: Taylor series, truncated where the next term is below 1e-9; one rounding, at most 1 ulp.
OP double exp2_wide(double t) {                 // 2^n * exp(f ln 2), |f| <= 1/2
    t = t > 1000. ? 1000. : t;
    t = t < -1000. ? -1000. : t;
    constexpr double shift = 6755399441055744.; // 1.5 * 2^52: adding it rounds to an integer, found in the low bits
    double shifted = t + shift, r = (t - (shifted - shift)) * 0.69314718055994531;
    double p = horner(r, 1. / 362880., 1. / 40320., 1. / 5040., 1. / 720., 1. / 120., 1. / 24., 1. / 6., 0.5, 1., 1.);
    return p * bits<double>((bits<uint64_t>(shifted) << 52) + (1023ull << 52));
}
OP double log2_wide(double x) {                 // x = 2^e * m, m about 1; ln m = 2 atanh(s), s = (m - 1) / (m + 1)
    uint64_t b = bits<uint64_t>(x);
    int32_t e = (int32_t)((b - 0x3fe6a09e667f3bcdull + (1024ull << 52)) >> 52) - 1024;     // of sqrt(1/2) <= m < sqrt(2)
    double m = bits<double>(b - ((uint64_t)(int64_t)e << 52)), s = (m - 1.) / (m + 1.), z = s * s;
    double p = horner(z, 1. / 15., 1. / 13., 1. / 11., 1. / 9., 1. / 7., 1. / 5., 1. / 3., 1.);
    double y = fma(s * p, 2.8853900817779268, (double)e);
    y = x == 0. ? -(double)inf : y;
    y = x < 0. ? (double)nan : y;
    return x < (double)inf ? y : x == x && x > 0. ? x : (double)nan;
}
OP float pow(float a, float b) {                // IEEE's special cases: 1^NaN = NaN^0 = 1, (-1)^inf = 1, (-8)^(1/3) = NaN
    float size = __builtin_fabsf(a), half = b * 0.5f;
    bool whole_b = __builtin_truncf(b) == b, odd = whole_b & (__builtin_truncf(half) != half);
    double y = exp2_wide((double)b * log2_wide(size));
    y = (size == 1.f) & (b == b) ? 1. : y;
    y = (a < 0.f) & (size < inf) & !whole_b ? (double)nan : y;
    y = odd & (bits<int32_t>(a) < 0) ? -y : y;
    return (b == 0.f) | (a == 1.f) ? 1.f : (float)y;
}
OP float cosh(float x) {
    double e = exp2_wide(x * 1.4426950408889634);
    return (float)(0.5 * (e + 1. / e));
}
OP float sinh(float x) {                        // e - 1/e cancels at small x: there the series
    double e = exp2_wide(x * 1.4426950408889634), z = (double)x * x, p = horner(z, 1. / 39916800., 1. / 362880., 1. /
                                                                                5040., 1. / 120., 1. / 6., 1.);
    return (float)(__builtin_fabsf(x) < 1.f ? x * p : 0.5 * (e - 1. / e));
}

// Angles.  x in quarter turns, x * 2/pi modulo 4, is a 64-bit number with 62 bits after the point: the product of x's 24 bits and
// the 96 bits of 2/pi that matter at its exponent (Payne and Hanek, 1983).  Exact enough for every float, the largest too.
constexpr uint32_t two_over_pi[9] = {           // 2/pi * 2^256, lowest word first
    0xdebbc561, 0xfe5163ab, 0x3c439041, 0xdb629599, 0xf534ddc0,
    0xfc2757d1, 0x4e441529, 0xa2f9836e, 0};
struct Angle { double r; int32_t quarter; };    // x = quarter * pi/2 + r, |r| <= pi/4
OP Angle reduce_angle(float x) {
    uint32_t u = bits<uint32_t>(x) & 0x7fffffffu, e = u >> 23;
    uint32_t place = 312u - (e < 126u ? 126u : e), word = place >> 5, shift = place & 31u;
    uint64_t m = (u & 0x7fffffu) | 0x800000u;
    word = word > 5u ? 5u : word;
    uint64_t t0 = two_over_pi[word], t1 = two_over_pi[word + 1], t2 = two_over_pi[word + 2], t3 = two_over_pi[word + 3];
    uint64_t low = (uint32_t)((t1 << 32 | t0) >> shift), middle = (uint32_t)((t2 << 32 | t1) >> shift);
    uint64_t high = (uint32_t)((t3 << 32 | t2) >> shift), turns = ((m * high) << 32) + m * middle + ((m * low) >> 32);
    uint64_t quarter = (turns + (1ull << 61)) >> 62, rest = turns - (quarter << 62);
    // two 32-bit halves: few machines convert 64-bit integers in vectors; pi/2 * 2^-30 and pi/2 * 2^-61
    double r = fma((double)(int32_t)(rest >> 32), 1.4629180792671596e-9, (double)(int32_t)((uint32_t)rest >> 1) * 6.8122431601731090e-19);
    bool small = __builtin_fabsf(x) < 0.785f;
    int32_t q = small ? 0 : (int32_t)quarter;
    r = x < 0.f ? -r : r;
    return {small ? (double)x : r, x < 0.f ? -q : q};
}
OP double sine(double r) {
    double z = r * r, p = horner(z, -1. / 39916800., 1. / 362880., -1. / 5040., 1. / 120., -1. / 6.);
    return r * fma(p, z, 1.);                   // not r + ...: the sine of -0.0 is -0.0
}
OP double cosine(double r) {
    double z = r * r, p = horner(z, 1. / 479001600., -1. / 3628800., 1. / 40320., -1. / 720., 1. / 24., -0.5);
    return fma(p, z, 1.);
}
OP float turned(float x, double r, int32_t quarter) {       // sin(quarter * pi/2 + r)
    double s = sine(r), c = cosine(r), y = quarter & 1 ? c : s;
    y = quarter & 2 ? -y : y;
    return __builtin_fabsf(x) < inf ? (float)y : nan;
}
// Most angles are small: reduced by pi/2 in three parts (Cody and Waite, 1980), fma makes the products exact.  Up to 2 ulp.
#ifdef __FMA__
constexpr float LARGEST_ANGLE = 65536.f;
#else
constexpr float LARGEST_ANGLE = 0.f;
#endif
OP bool is_large_angle(float x) { return __builtin_fabsf(x) > LARGEST_ANGLE; }
struct SmallAngle { float r, rest; int32_t quarter; };      // x = quarter * pi/2 + r + rest
OP SmallAngle small_angle(float x) {
    float shifted = fma(x, 0.636619772f, SHIFT), n = shifted - SHIFT;
    float most = fma(n, -1.57079637f, x), part = n * 4.37113883e-8f, r = most + part;
    return {r, (most - r) + part + fma(n, 1.71512451e-15f, fma(n, 4.37113883e-8f, -part)), bits<int32_t>(shifted)};
}
OP float quarter_turns(SmallAngle angle, int32_t more) {    // the sine of the angle and so many more quarters
    auto [r, rest, quarter] = angle;
    float z = r * r;
    float s = horner(z, 2.7182743e-6f, -1.9839330e-4f, 8.3333291e-3f, -1.6666667e-1f);
    float c = horner(z, 2.4438090e-5f, -1.3887364e-3f, 4.1666646e-2f, -0.5f);
    quarter += more;
    return bits<float>(bits<int32_t>(quarter & 1 ? fma(c, z, 1.f) : r + fma(r * z, s, rest)) ^ ((quarter & 2) << 30));
}
template <bool exact> OP float sin(float x) {
    if constexpr (exact) { Angle a = reduce_angle(x); return turned(x, a.r, a.quarter); }
    float y = quarter_turns(small_angle(x), 0);
    return x == 0.f ? x : y;                    // -0.0
}
template <bool exact> OP float cos(float x) {
    if constexpr (exact) { Angle a = reduce_angle(x); return turned(x, a.r, a.quarter + 1); }
    return quarter_turns(small_angle(x), 1);
}
template <bool exact> OP float tan(float x) {
    if constexpr (exact) {
        Angle a = reduce_angle(x);
        double s = sine(a.r), c = cosine(a.r), y = a.quarter & 1 ? -c / s : s / c;
        return __builtin_fabsf(x) < inf ? (float)y : nan;
    }
    auto [r, rest, quarter] = small_angle(x);
    float z = r * r;
    float t = horner(z, 9.39572416e-03f, 3.10277217e-03f, 2.44406387e-02f, 5.34083918e-02f, 1.33388340e-01f,
                     3.33331555e-01f);
    t = r + fma(r * z, t, rest * (1.f + z));
    return x == 0.f ? x : quarter & 1 ? -1.f / t : t;
}
OP double atan_unit(double b) {                 // of 0 <= b <= 1; atan(b) = pi/4 + atan((b - 1) / (b + 1)) makes |s| <= tan(pi/8)
    bool upper = b > 0.41421356237309503;
    double s = upper ? (b - 1.) / (b + 1.) : b, z = s * s, p = horner(z, 1. / 25., -1. / 23., 1. / 21., -1. / 19., 1. /
                                                                      17., -1. / 15., 1. / 13., -1. / 11., 1. / 9., -1. /
                                                                      7., 1. / 5., -1. / 3.);
    double y = s * fma(p, z, 1.);
    return upper ? y + 0.78539816339744831 : y;
}
OP double atan_wide(double x) {                 // atan(a) = pi/2 - atan(1/a)
    double a = __builtin_fabs(x), y = atan_unit(a > 1. ? 1. / a : a);
    return __builtin_copysign(a > 1. ? 1.5707963267948966 - y : y, x);
}
OP float atan(float x) { return (float)atan_wide(x); }
OP float hypot(float a, float b) {
    float large = __builtin_fabsf(a), other = __builtin_fabsf(b);
    float y = (float)__builtin_sqrt((double)a * a + (double)b * b);
    return (large == inf) | (other == inf) ? inf : y;
}
OP float asin(float x) { double w = x; return (float)atan_wide(w / __builtin_sqrt((1. - w) * (1. + w))); }
OP float acos(float x) { double w = x; return (float)(2. * atan_wide(__builtin_sqrt((1. - w) / (1. + w)))); }

template <class T> OP T erfinv(T y0) {          // Winitzki's estimate, then three Newton steps in double
    double y = y0, a = __builtin_fabs(y);
    double w = __builtin_log((1. - a) * (1. + a)), t = 4.3307467508 + 0.5 * w;
    double x = __builtin_sqrt(__builtin_sqrt(t * t - w / 0.147) - t);
    for (int step = 0; step < 3; step++) {
        double f = a < 0.5 ? __builtin_erf(x) - a : (1. - a) - __builtin_erfc(x);
        x -= f / (1.1283791670955126 * __builtin_exp(-x * x) + x * f);      // Halley: f'' = -2 x f'
    }
    x = a == 1. ? (double)inf : a < 1. ? x : (double)nan;
    return a == 0. ? y0 : (T)__builtin_copysign(x, y);
}

OP float erfinv(float y) {                      // two polynomials of w = -log(1 - y*y): Giles, "Approximating the erfinv function", 2010
    float w = -log((1.f - y) * (1.f + y)), u = w - 2.5f, v = __builtin_sqrtf(w) - 3.f;
    float p = horner(u, 2.81022636e-08f, 3.43273939e-07f, -3.5233877e-06f, -4.39150654e-06f, 2.1858087e-04f, -1.25372503e-03f,
                     -4.17768164e-03f, 2.46640727e-01f, 1.50140941f);
    float q = horner(v, -2.00214257e-04f, 1.00950558e-04f, 1.34934322e-03f, -3.67342844e-03f, 5.73950773e-03f, -7.6224613e-03f,
                     9.43887047e-03f, 1.00167406f, 2.83297682f);
    float x = (w < 5.f ? p : q) * y;
    return __builtin_fabsf(y) == 1.f ? __builtin_copysignf(inf, y) : x;
}

// float: the quotient, cut to an integer, is at most one off, and fma takes off its exact multiple.
#ifdef __FMA__
OP bool is_large_quotient(float a, float b) { return (__builtin_fabsf(a / b) >= 8388608.f) | (__builtin_fabsf(b) == inf); }
#else
OP bool is_large_quotient(float, float) { return true; }
#endif
template <bool exact> OP float fmod(float a, float b) {
    if constexpr (exact) return __builtin_fmodf(a, b);
    float size = __builtin_fabsf(a), step = __builtin_fabsf(b), m = fma(-__builtin_truncf(size / step), step, size);
    m = m < 0.f ? m + step : m;
    m = m >= step ? m - step : m;
    return __builtin_copysignf(m, a);
}
template <bool exact> OP float remainder(float a, float b) {
    float m = fmod<exact>(a, b);
    return (m != 0.f) & ((m < 0.f) != (b < 0.f)) ? m + b : m;
}
template <bool exact> OP float floordiv(float a, float b) { return floordiv_of(a, b, fmod<exact>(a, b)); }
// Where a kernel holds many of these functions, their exact forms are called and not written out: they hardly ever run,
// and would take most of the C++ compiler's time.
template <auto function, class... T> __attribute__((noinline)) float called(T... x) { return function(x...); }
#define OF_MANY(name) \
    template <bool exact, class... T> OP float name##_of_many(T... x) { \
        if constexpr (exact) return called<name<true>>(x...); \
        return name<false>(x...); \
    }
OF_MANY(sin) OF_MANY(cos) OF_MANY(tan) OF_MANY(fmod) OF_MANY(remainder) OF_MANY(floordiv)
// --- scans ---------------------------------------------------------------------------------------------------------------
OP double logaddexp(double a, double b) {      // of logcumsumexp: b is the new element
    double low = b != b || b < a ? b : a, high = b != b || b > a ? b : a;
    return low != high || __builtin_isfinite(low) ? __builtin_log1p(__builtin_exp(low - high)) + high : a;
}
}  // namespace mini

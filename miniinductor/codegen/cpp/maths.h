// Maths without branches or calls: GCC turns it into vector code inside `#pragma omp simd`.  Overloads for float of what the prelude takes from libm.
//
// Our own polynomials (exp2: our fit; log: Cephes; tanh, erf: Eigen/XLA rationals, as published), a few ulp, right on NaN, inf, -0.0 and subnormals;
// pow, sinh, cosh and atan are Taylor series in double, rounded once: at most 1 ulp.
namespace mini {
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
    if constexpr (exact) return __builtin_sinf(x);
    float y = quarter_turns(small_angle(x), 0);
    return x == 0.f ? x : y;                    // -0.0
}
template <bool exact> OP float cos(float x) {
    if constexpr (exact) return __builtin_cosf(x);
    return quarter_turns(small_angle(x), 1);
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
OP float atan2(float y0, float x0) {
    double y = __builtin_fabs(y0), x = __builtin_fabs(x0), low = y > x ? x : y, high = y > x ? y : x;
    double t = atan_unit(high == 0. ? 0. : low == high ? 1. : low / high);
    t = y > x ? 1.5707963267948966 - t : t;
    t = __builtin_copysign(1., x0) < 0. ? 3.1415926535897931 - t : t;
    return (x0 == x0) & (y0 == y0) ? __builtin_copysignf((float)t, y0) : x0 + y0;
}
OP float hypot(float a, float b) {
    float large = __builtin_fabsf(a), other = __builtin_fabsf(b);
    float y = (float)__builtin_sqrt((double)a * a + (double)b * b);
    return (large == inf) | (other == inf) ? inf : y;
}
OP float asin(float x) { double w = x; return (float)atan_wide(w / __builtin_sqrt((1. - w) * (1. + w))); }
OP float acos(float x) { double w = x; return (float)(2. * atan_wide(__builtin_sqrt((1. - w) / (1. + w)))); }

// --- double precision: log (our own minimax fit, 6e-20); exp stands in the prelude ----------------------------------------
OP double log(double x0) {                      // x = 2^e * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2)
    bool tiny = x0 < 2.2250738585072014e-308;
    double x = tiny ? x0 * 18014398509481984. : x0;         // a subnormal is scaled by 2^54 first
    uint64_t b = bits<uint64_t>(x), up = b - 0x3fe6a09e667f3bcdull + (1024ull << 52), power = ((up >> 52) - 1024) << 52;
    double e = bits<double>((up >> 52) | 0x4330000000000000ull) - 4503599627371520. - (tiny ? 54. : 0.);      // 2^52 + 1024
    double f = bits<double>(b - power) - 1., s = f / (2. + f), z = s * s, half = 0.5 * f * f;
    double series = z * horner(z, 0.13086767009948174, 0.13268759668560613, 0.15386240205813478, 0.18181795630884753, 0.22222222391800469,
                               0.28571428570803230, 0.4, 0.66666666666666666);
    double rest = half - s * (half + series), y = fma(e, 0.693145751953125, f + fma(e, 1.42860682030941723e-6, -rest));
    y = x0 == 0. ? -(double)inf : y;
    y = x0 < 0. ? (double)nan : y;
    return x0 < (double)inf ? y : x0;
}

// --- scans ---------------------------------------------------------------------------------------------------------------
OP double logaddexp(double a, double b) {      // of logcumsumexp: b is the new element
    double low = b != b || b < a ? b : a, high = b != b || b > a ? b : a;
    return low != high || __builtin_isfinite(low) ? __builtin_log1p(__builtin_exp(low - high)) + high : a;
}
}  // namespace mini

// Double precision without branches or calls, for vectors: exp, exp2, expm1, log, log2, log1p, sin, cos, tanh, erf.
//
// Errors are below 2 ulp (tests/test_doubles.py measures them).  exp, log and the angles are Taylor series over a short interval, exact
// to less than 1e-17; erf is our own two Chebyshev fits (errors 1e-19 and 5e-18).  NaN, inf, -0.0 and subnormals come out as libm's.
namespace mini {
constexpr double ROUNDING = 6755399441055744.;  // 1.5 * 2^52: adding it rounds to an integer, found in the low bits
struct Power { double p; uint64_t n; };         // exp(x) = 2^n * (1 + p), the low bits of n
OP double power_of_2(uint64_t n) { return bits<double>((n + 1023) << 52); }
OP double scaled(double y, uint64_t shifted) {  // y * 2^n in two steps: right among subnormals and up to inf
    uint64_t above = (shifted + 4096) & 0xffff, half = above >> 1;      // n + 4096 is positive: few machines shift signs
    return y * power_of_2(half - 2048) * power_of_2(above - half - 2048);
}
OP double exp_minus_1(double r) {               // |r| <= ln(2)/2
    double p = horner(r, 1. / 87178291200., 1. / 6227020800., 1. / 479001600., 1. / 39916800., 1. / 3628800., 1. / 362880., 1. / 40320.,
                      1. / 5040., 1. / 720., 1. / 120., 1. / 24., 1. / 6., 0.5);
    return fma(r * r, p, r);
}
OP double within(double x, double low, double high) {       // a NaN passes
    x = x < low ? low : x;
    return x > high ? high : x;
}
OP Power exp_parts(double x) {                  // ln 2 = 0.693145751953125 + 1.4286e-6: the product with n is exact
    double shifted = fma(x, 1.4426950408889634, ROUNDING), n = shifted - ROUNDING;
    return {exp_minus_1(fma(n, -1.42860682030941723e-6, fma(n, -0.693145751953125, x))), bits<uint64_t>(shifted)};
}
OP double exp_double(double x) {
    x = x < -746. ? -1418.18 : x;               // both factors of `scaled` are 0: no product is rounded to 0 (see exp of floats)
    auto [p, n] = exp_parts(x > 710. ? 710. : x);
    return scaled(1. + p, n);
}
OP double sigmoid_double(double x) { return 1. / (1. + exp_double(-x)); }
OP double exp2(double x0) {
    double x = x0 < -1076. ? -2046. : x0 > 1025. ? 1025. : x0, shifted = x + ROUNDING;
    return scaled(1. + exp_minus_1((x - (shifted - ROUNDING)) * 0.69314718055994531), bits<uint64_t>(shifted));
}
OP double expm1(double x0) {                    // 2^n * (1 + p) - 1
    auto [p, n] = exp_parts(within(x0, -40., 700.));
    double power = power_of_2(n), y = fma(power, p, power - 1.);
    y = x0 > 700. ? exp_double(x0) : y;
    return x0 == 0. ? x0 : y;
}

struct WideLogarithm { double f, rest, e; };    // ln x = e * ln 2 + (f - rest)
OP WideLogarithm wide_log_parts(double x0) {
    bool tiny = x0 < 2.2250738585072014e-308;
    double x = tiny ? x0 * 18014398509481984. : x0;         // a subnormal is scaled by 2^54 first
    uint64_t b = bits<uint64_t>(x), up = b - 0x3fe6a09e667f3bcdull + (1024ull << 52);        // of sqrt(1/2) <= m < sqrt(2)
    double e = bits<double>((up >> 52) | 0x4330000000000000ull) - 4503599627371520.;        // 2^52 + 1024
    double f = bits<double>(b - (((up >> 52) - 1024) << 52)) - 1.;
    double s = f / (2. + f), z = s * s, half = 0.5 * f * f;
    double series = z * horner(z, 2. / 23., 2. / 21., 2. / 19., 2. / 17., 2. / 15., 2. / 13., 2. / 11., 2. / 9., 2. / 7., 2. / 5., 2. / 3.);
    return {f, half - s * (half + series), e - (tiny ? 54. : 0.)};
}
OP double wide_log_limits(double x, double y) { // the logarithm of x is y, but for x = 0, below 0, inf and NaN
    y = x == 0. ? -(double)inf : y;
    y = x < 0. ? (double)nan : y;
    return x < (double)inf ? y : x;
}
OP double log(double x) {
    auto [f, rest, e] = wide_log_parts(x);
    double low = fma(e, 1.42860682030941723e-6, -rest);
    return wide_log_limits(x, fma(e, 0.693145751953125, f + low));
}
OP double log2(double x) {                      // 1/ln 2 = 1.4426950407214463 + 1.6751713164886512e-10, the first with 32 bits
    auto [f, rest, e] = wide_log_parts(x);
    double high = bits<double>(bits<uint64_t>(f - rest) & 0xffffffff00000000ull), low = (f - high) - rest;
    double y = fma(high, 1.6751713164886512e-10, low * 1.4426950408889634);
    double large = high * 1.4426950407214463, sum = e + large;
    return wide_log_limits(x, sum + (y + ((e - sum) + large)));
}
OP double log1p(double x) {                     // ln(u) + what was lost of x in u = 1 + x, over u
    double u = 1. + x, back = u - 1., lost = (1. - (u - back)) + (x - back);
    double y = log(u) + lost / u;
    y = (u == 0.) | (u == (double)inf) ? log(u) : y;
    return x == 0. ? x : y;
}

OP double tanh(double x) {                      // (e^2a - 1) / (e^2a + 1)
    double a = within(__builtin_fabs(x), 0., 22.), y = expm1(2. * a);
    return __builtin_copysign(y / (y + 2.), x);
}
OP double erf(double x) {                       // below 1: x * p(x^2); above: 1 - exp(-x^2) * q((x - 3) / (x + 3))
    double a = within(__builtin_fabs(x), 0., 6.), z = a * a;
    double p = horner(z, 5.9571761477489114044e-11, -1.137284885679167367e-9, 1.4659775274047435814e-8, -1.6350312701054695011e-7,
                      1.6461000484121368033e-6, -1.4925595266831181565e-5, 1.2055331111642710923e-4, -8.5483269808337899052e-4,
                      5.2239776248180144673e-3, -2.6866170645076793248e-2, 1.1283791670954878666e-1, -3.7612638903183748056e-1);
    double u = (a - 3.) / (a + 3.);
    double q = horner(u, 3.3813551420429037682e-9, 1.2755818949624479228e-6, 2.0135111426447427972e-6, -8.009780939076079326e-6,
                      -1.2845780030775906801e-5, 6.406279226046039164e-5, 4.5254345589910084013e-5, -5.9706249649245444261e-4,
                      7.0774646669414250803e-4, 4.2691363569612252503e-3, -2.4392499318915004726e-2, 7.1665837197473070399e-2,
                      -1.5011593650077898545e-1, 2.45603801712334874e-1, -3.2623356004303721247e-1, 1.7900115118138994522e-1);
    double small = fma(a, 0.12837916709551257390, fma(a * z, p, a));    // 2/sqrt(pi) = 1 + 0.128: its rounding counts less
    return __builtin_copysign(a < 1. ? small : 1. - exp_double(-z) * q, x);
}

// Angles: x = quarter * pi/2 + r + rest, reduced by pi/2 in three parts.  |n| < 2^17, so that n times the first part, taken off by one
// fma, is exact.  Larger angles are libm's.
#ifdef __FMA__
constexpr double LARGEST_WIDE_ANGLE = 1e5;
#else
constexpr double LARGEST_WIDE_ANGLE = 0.;
#endif
OP bool is_large_angle(double x) { return __builtin_fabs(x) > LARGEST_WIDE_ANGLE; }
OP double wide_quarter_turns(double x, uint64_t more) {     // the sine of x and so many more quarters
    double shifted = fma(x, 0.63661977236758134, ROUNDING), n = shifted - ROUNDING;
    double most = fma(n, -1.5707963267948966, x), part = n * 6.123233995736766e-17, r = most - part;
    double rest = ((most - r) - part) - fma(n, -1.4973849048591833e-33, fma(n, 6.123233995736766e-17, -part));
    double z = r * r, half = 0.5 * z, w = 1. - half;
    double s = horner(z, 1. / 355687428096000., -1. / 1307674368000., 1. / 6227020800., -1. / 39916800., 1. / 362880., -1. / 5040., 1. / 120.,
                      -1. / 6.);
    double c = horner(z, 1. / 20922789888000., -1. / 87178291200., 1. / 479001600., -1. / 3628800., 1. / 40320., -1. / 720., 1. / 24.);
    double sine = r + fma(r * z, s, fma(rest, -half, rest)), cosine = w + (((1. - w) - half) + fma(z * z, c, -r * rest));
    uint64_t quarter = bits<uint64_t>(shifted) + more;
    return bits<double>(bits<uint64_t>(quarter & 1 ? cosine : sine) ^ ((quarter & 2) << 62));
}
template <bool exact> OP double sin(double x) {
    if constexpr (exact) return __builtin_sin(x);
    double y = wide_quarter_turns(x, 0);
    return x == 0. ? x : y;
}
template <bool exact> OP double cos(double x) {
    if constexpr (exact) return __builtin_cos(x);
    return wide_quarter_turns(x, 1);
}
template <bool exact> OP double sin_of_many(double x) { return sin<exact>(x); }
template <bool exact> OP double cos_of_many(double x) { return cos<exact>(x); }
}  // namespace mini

// Double precision without branches or calls, for vectors: exp, exp2, expm1, log, log2, log10, log1p, pow, sin, cos, tan, sinh, cosh, tanh,
// erf, hypot.  inverses.h has the inverses of these.
//
// Errors are below 3 ulp (tests/test_doubles.py measures them).  exp and log are our own minimax fits (3e-19 and 6e-20), the angles Taylor
// series over a short interval, exact to less than 1e-17, erf our own two Chebyshev fits (errors 1e-19 and 5e-18).  NaN, inf, -0.0 and
// subnormals come out as libm's.
namespace mini {
constexpr double ROUNDING = 6755399441055744.;  // 1.5 * 2^52: adding it rounds to an integer, found in the low bits
// horner(z, ...) in half the time, if the processor waits for it: its odd and its even powers side by side
OP double side_by_side(double z, double, double odd, double even) { return fma(odd, z, even); }
template <class... More> OP double side_by_side(double z, double square, double odd, double even, double a, double b, More... more) {
    return side_by_side(z, square, fma(odd, square, a), fma(even, square, b), more...);
}
template <class... More> OP double polynomial(double z, double a, double b, double c, More... more) {
    double square = z * z;
    if constexpr (sizeof...(more) % 2 == 0) return side_by_side(z, square, b, fma(a, square, c), more...);
    else return side_by_side(z, square, a, b, c, more...);
}
struct Power { double p; uint64_t n; };         // exp(x) = 2^n * (1 + p), of n the low bits; above them those of ROUNDING
OP double power_of_2(uint64_t n) { return bits<double>((n + 1023) << 52); }
OP double scaled(double y, uint64_t shifted) {  // y * 2^n in two steps: right among subnormals and up to inf
    uint64_t half = bits<uint64_t>(fma(bits<double>(shifted) - ROUNDING, 0.5, ROUNDING));
    return y * power_of_2(half) * power_of_2(shifted - half);
}
OP double exp_minus_1(double r) {               // |r| <= ln(2)/2
    double p = polynomial(r, 2.0914686968086877e-9, 2.5105217004720745e-8, 2.7557273643110295e-7, 2.7557255400206424e-6, 2.4801587325547741e-5,
                          1.9841269874820626e-4, 1.3888888888883748e-3, 8.3333333333261351e-3, 4.1666666666666670e-2, 1.6666666666666671e-1, 0.5);
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
OP double half_of_exp(double x0) {              // not inf yet where exp(x) is; of x >= -700
    auto [p, n] = exp_parts(x0 > 710.8 ? 710.8 : x0);       // n <= 1025
    double quarter = power_of_2(n - 2) * (1. + p);
    return quarter + quarter;
}
OP double sigmoid_double(double x) {
    double half = half_of_exp(x > 700. ? -700. : -x);
    return 1. / (1. + (half + half));
}
OP double exp2(double x0) {
    double x = x0 < -1076. ? -2046. : x0 > 1025. ? 1025. : x0, shifted = x + ROUNDING;
    return scaled(1. + exp_minus_1((x - (shifted - ROUNDING)) * 0.69314718055994531), bits<uint64_t>(shifted));
}
OP double expm1(double x0) {                    // 2^n * (1 + p) - 1; half of it, since 2^1024 is inf
    auto [p, n] = exp_parts(within(x0, -40., 710.1));
    double power = power_of_2(n - 1), half = fma(power, p, power - 0.5);
    return __builtin_fabs(x0) < 1e-300 ? x0 : half + half;
}

struct WideRange { double f, e, down; };        // x = 2^e * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2); down = 2^-e, if |e| is below 1000
OP WideRange wide_log_range(double x0) {
    bool tiny = x0 < 2.2250738585072014e-308;
    double x = tiny ? x0 * 18014398509481984. : x0;         // a subnormal is scaled by 2^54 first
    uint64_t b = bits<uint64_t>(x), up = b - 0x3fe6a09e667f3bcdull + (1024ull << 52), power = ((up >> 52) - 1024) << 52;
    double e = bits<double>((up >> 52) | 0x4330000000000000ull) - 4503599627371520.;        // 2^52 + 1024
    return {bits<double>(b - power) - 1., e - (tiny ? 54. : 0.), bits<double>((1023ull << 52) - power)};
}
struct WideLogarithm { double f, rest, e; };    // ln x = e * ln 2 + (f - rest)
OP WideLogarithm wide_log_of(double f, double e) {
    double s = f / (2. + f), z = s * s, half = 0.5 * f * f;
    double series = z * polynomial(z, 0.13086767009948174, 0.13268759668560613, 0.15386240205813478, 0.18181795630884753, 0.22222222391800469,
                                     0.28571428570803230, 0.4, 0.66666666666666666);
    return {f, half - s * (half + series), e};
}
OP WideLogarithm wide_log_parts(double x) {
    auto [f, e, down] = wide_log_range(x);
    return wide_log_of(f, e);
}
OP double wide_log_limits(double x, double y) { // the logarithm of x is y, but for x = 0, below 0, inf and NaN
    y = x == 0. ? -(double)inf : y;
    y = x < 0. ? (double)nan : y;
    return x < (double)inf ? y : x;
}
OP double in_base_e(WideLogarithm x) { return fma(x.e, 0.693145751953125, x.f + fma(x.e, 1.42860682030941723e-6, -x.rest)); }
OP double log(double x) { return wide_log_limits(x, in_base_e(wide_log_parts(x))); }
OP double log2(double x) {                      // 1/ln 2 = 1.4426950407214463 + 1.6751713164886512e-10, the first with 32 bits
    auto [f, rest, e] = wide_log_parts(x);
    double high = bits<double>(bits<uint64_t>(f - rest) & 0xffffffff00000000ull), low = (f - high) - rest;
    double y = fma(high, 1.6751713164886512e-10, low * 1.4426950408889634);
    double large = high * 1.4426950407214463, sum = e + large;
    return wide_log_limits(x, sum + (y + ((e - sum) + large)));
}
OP double log1p(double x) {                     // u = 1 + x is rounded; (1 + x) * 2^-e - 1 is, too, but as the small number that it is
    double u = 1. + x;
    auto [f, e, down] = wide_log_range(u);
    f = x > 1e20 ? f : fma(x, down, down - 1.);
    double y = wide_log_limits(u, in_base_e(wide_log_of(f, e)));
    return u == 1. ? x : y;
}

#ifdef __FMA__                                  // elsewhere libm's: no product is exact
// pow: a logarithm with 64 bits and more, as a sum of two doubles, since b * ln(a) may be 700 and its error is that of the result.
struct Sum { double large, rest; };             // of two numbers; `rest` is less than an ulp of `large`
OP Sum sum(double large, double small) {        // exact
    double all = large + small;
    return {all, (large - all) + small};
}
OP Sum product(Sum a, Sum b) {
    double all = a.large * b.large;
    return {all, fma(a.large, b.large, -all) + fma(a.large, b.rest, a.rest * b.large)};
}
OP Sum accurate_log(double x0) {                // of 0 < x0 < inf: e * ln 2 + 2 atanh(s), s = f / (2 + f)
    auto [f, e, down] = wide_log_range(x0);
    double below = 2. + f, inverse = 1. / below, s = f * inverse;
    double lost = fma(-s, below, f) - s * (f - (below - 2.));
    Sum angle = {s, lost * inverse}, z = product(angle, angle);
    double series = polynomial(z.large, 0.058615893119382586, 0.058531181697456033, 0.066674023469236552, 0.076922974812592158,
                               0.090909091676964008, 0.11111111110827943, 0.14285714285714683, 0.2);
    Sum third = sum(1. / 3., z.large * series);
    third.rest += 1.850371707708594e-17;        // what 1./3. lacks of a third
    Sum cube = product(product(angle, z), third), half = sum(s, cube.large);
    double rest = half.rest + (cube.rest + angle.rest);
    Sum y = sum(e * 0.693145751953125, 2. * half.large);
    return sum(y.large, fma(e, 1.42860682030941723e-6, fma(2., rest, y.rest)));
}
OP double log10(double x) {                     // 1/ln 10
    Sum y = product(accurate_log(x), {0.43429448190325182, 1.0983196502167652e-17});
    return wide_log_limits(x, y.large + y.rest);
}
OP double exp_of_sum(double x, double rest) {
    auto [p, n] = exp_parts(x);
    return scaled(1. + fma(rest, 1. + p, p), n);
}
OP double pow(double a, double b) {             // special cases as those of floats (maths.h)
    double size = __builtin_fabs(a), half = b * 0.5;
    bool whole = __builtin_trunc(b) == b, odd = whole & (__builtin_trunc(half) != half);
    Sum y = accurate_log(size);
    y.large = wide_log_limits(size, y.large);
    double power = b * y.large, rest = fma(b, y.large, -power) + b * y.rest;
    rest = __builtin_fabs(power) < 1000. ? rest : 0.;           // of an infinite power it is NaN
    power = power < -746. ? -1418.18 : power;   // as exp_double
    double z = exp_of_sum(power > 710. ? 710. : power, rest);
    z = (size == 1.) & (b == b) ? 1. : z;
    z = (a < 0.) & (size < (double)inf) & !whole ? (double)nan : z;
    z = odd & ((int64_t)bits<uint64_t>(a) < 0) ? -z : z;
    return (b == 0.) | (a == 1.) ? 1. : z;
}
#endif

OP double tanh(double x) {                      // (e^2a - 1) / (e^2a + 1)
    double a = within(__builtin_fabs(x), 0., 22.), y = expm1(2. * a);
    return __builtin_copysign(y / (y + 2.), x);
}
OP double cosh(double x) {
    double half = half_of_exp(__builtin_fabs(x));
    return half + 0.25 / half;
}
OP double sinh(double x) {                      // below 1: a series
    double a = __builtin_fabs(x), half = half_of_exp(a), z = x * x;
    double p = polynomial(z, 1. / 355687428096000., 1. / 1307674368000., 1. / 6227020800., 1. / 39916800., 1. / 362880., 1. / 5040., 1. / 120.,
                          1. / 6.);
    return a < 1. ? fma(x * z, p, x) : __builtin_copysign(half - 0.25 / half, x);
}
OP double hypot(double a, double b) {           // large numbers and tiny ones are scaled: no square is inf or 0
    double x = __builtin_fabs(a), y = __builtin_fabs(b), larger = x > y ? x : y;
    double scale = larger > 1e150 ? 2.4099198651028841e-181 : larger < 1e-140 ? 5.2601359015483735e210 : 1.;      // 2^-600, 2^700
    x *= scale;
    y *= scale;
    double z = __builtin_sqrt(fma(x, x, y * y)) / scale;
    return (x == (double)inf) | (y == (double)inf) ? (double)inf : z;
}
OP double erf(double x) {                       // below 1: x * p(x^2); above: 1 - exp(-x^2) * q((x - 3) / (x + 3))
    double a = within(__builtin_fabs(x), 0., 6.), z = a * a;
    double p = polynomial(z, 5.9571761477489114044e-11, -1.137284885679167367e-9, 1.4659775274047435814e-8, -1.6350312701054695011e-7,
                          1.6461000484121368033e-6, -1.4925595266831181565e-5, 1.2055331111642710923e-4, -8.5483269808337899052e-4,
                          5.2239776248180144673e-3, -2.6866170645076793248e-2, 1.1283791670954878666e-1, -3.7612638903183748056e-1);
    double u = (a - 3.) / (a + 3.);
    double q = polynomial(u, 3.3813551420429037682e-9, 1.2755818949624479228e-6, 2.0135111426447427972e-6, -8.009780939076079326e-6,
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
    double s = polynomial(z, 1. / 355687428096000., -1. / 1307674368000., 1. / 6227020800., -1. / 39916800., 1. / 362880., -1. / 5040., 1. / 120.,
                          -1. / 6.);
    double c = polynomial(z, 1. / 20922789888000., -1. / 87178291200., 1. / 479001600., -1. / 3628800., 1. / 40320., -1. / 720., 1. / 24.);
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
template <bool exact> OP double tan(double x) {
    if constexpr (exact) return __builtin_tan(x);
    double y = wide_quarter_turns(x, 0) / wide_quarter_turns(x, 1);
    return x == 0. ? x : y;
}
template <bool exact> OP double sin_of_many(double x) { return sin<exact>(x); }
template <bool exact> OP double cos_of_many(double x) { return cos<exact>(x); }
template <bool exact> OP double tan_of_many(double x) { return tan<exact>(x); }
}  // namespace mini

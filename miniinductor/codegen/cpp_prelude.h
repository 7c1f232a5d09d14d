// The maths of generated kernels.  Self-contained: no standard header, so that a kernel compiles in 0.1 s.
//
// Everything is scalar and, for float, branch-free: GCC turns it into vector code inside `#pragma omp simd`.
// Semantics are torch's: NaN goes through maximum/minimum, integer division by zero raises, shifts by too much are defined.
// float: own polynomials (exp: our fit; log: Cephes; tanh, erf: Eigen/XLA rationals, as published), a few ulp, right on NaN, inf,
// -0.0 and subnormals; sin, log2, pow and their relatives are Taylor series in double, rounded once: at most 1 ulp.
// double, and what has no short vector form: libm, through compiler builtins.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;

namespace mini {
#define OP static inline __attribute__((always_inline))
constexpr float inf = __builtin_inff(), nan = __builtin_nanf("");

template <class To, class From> OP To bits(From x) { return __builtin_bit_cast(To, x); }
constexpr int INDEX_ERROR = 1, ZERO_DIVISION = 2, NOT_FAST = 4;         // bits that a kernel collects in `error`
// Functions with a parameter `exact` have a fast form, right for all but large arguments.  A kernel runs with the fast ones; if it met an
// argument that is too large for them (NOT_FAST), it runs once more, with the exact ones.
template <bool value> struct Bool { static constexpr bool v = value; };
template <class Body> OP int fast_then_exact(Body body) {
    int error = body(Bool<false>());
    return error & NOT_FAST ? body(Bool<true>()) & ~NOT_FAST : error;
}
template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;

OP float fma(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}
OP double fma(double a, double b, double c) {
#ifdef __FMA__
    return __builtin_fma(a, b, c);
#else
    return a * b + c;
#endif
}

template <class T> OP T horner(T, T p) { return p; }        // p*z^n + ... + the last
template <class T, class... More> OP T horner(T z, T p, T next, More... more) { return horner(z, fma(p, z, next), more...); }

// --- storage types: memory holds 16 bits, arithmetic is float ---------------------------------------------------------
enum class bfloat16 : uint16_t {};               // a scalar: a struct in a loop is not vectorized
OP float to_float(bfloat16 x) { return bits<float>((uint32_t)x << 16); }
OP uint32_t half_up(uint32_t u) { return u + 0x7fffu + ((u >> 16) & 1u); }     // nearest, ties to even; NaN stays NaN
// Rounding up 0x7fffffff, a NaN, gives 0.  Such a NaN comes from memory; where that holds none (`any` false: all of it is bfloat16 or integers)
// those that arithmetic makes, or hands on, have a low half of zeros and round to themselves.
template <bool any = true> OP uint32_t rounded(float x) { return any && x != x ? 0x7fc00000u : half_up(bits<uint32_t>(x)); }
template <bool any = true> OP bfloat16 to_bfloat16(float x) { return (bfloat16)(rounded<any>(x) >> 16); }
template <bool any = true> OP float round_bfloat16(float x) { return bits<float>(rounded<any>(x) & 0xffff0000u); }    // and still a float
// _Float16 would do, but gcc converts it one by one.
enum class float16 : uint16_t {};
OP float to_float(float16 x) {          // moved to float's exponent by a product, which also normalizes subnormals
    uint32_t u = (uint32_t)x, size = u & 0x7fffu;
    uint32_t y = bits<uint32_t>(bits<float>(size << 13) * 5.192296858534828e33f);       // 2^112
    y = size >= 0x7c00u ? 0x7f800000u | size << 13 : y;
    return bits<float>(y | (u & 0x8000u) << 16);
}
OP float16 to_float16(float x) {        // nearest, ties to even
    uint32_t u = bits<uint32_t>(x), size = u & 0x7fffffffu;
    uint32_t y = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    uint32_t tiny = bits<uint32_t>(bits<float>(size) + 0.5f) - 0x3f000000u;         // 0.5f steps by the smallest subnormal
    y = size < 0x38800000u ? tiny : y;
    y = size >= 0x477ff000u ? 0x7c00u : y;
    y = size > 0x7f800000u ? 0x7e00u : y;
    return (float16)(uint16_t)(y | (u >> 16 & 0x8000u));
}
#if defined __AVX512F__ || defined __F16C__      // by the processor's own instructions, which gcc does not make of the functions above
#ifdef __AVX512F__
constexpr int HALVES = 16;
#define HALVES_TO_FLOATS(x) __builtin_ia32_vcvtph2ps512_mask(x, Floats{}, -1, 4)
#define FLOATS_TO_HALVES(x) __builtin_ia32_vcvtps2ph512_mask(x, 0, Halves{}, -1)
#else
constexpr int HALVES = 8;
#define HALVES_TO_FLOATS(x) __builtin_ia32_vcvtph2ps256(x)
#define FLOATS_TO_HALVES(x) __builtin_ia32_vcvtps2ph256(x, 0)
#endif
typedef short Halves __attribute__((vector_size(2 * HALVES), aligned(2), may_alias));
typedef float Floats __attribute__((vector_size(4 * HALVES), aligned(4), may_alias));
OP void convert(const float16* from, float* to) { *(Floats*)to = (Floats)HALVES_TO_FLOATS(*(const Halves*)from); }
OP void convert(const float* from, float16* to) { *(Halves*)to = (Halves)FLOATS_TO_HALVES(*(const Floats*)from); }
#else
constexpr int HALVES = 1;
OP void convert(const float16* from, float* to) { *to = to_float(*from); }
OP void convert(const float* from, float16* to) { *to = to_float16(*from); }
#endif
template <class From, class To> OP void convert(const From* from, To* to, int64_t count) {
    int64_t k = 0;
    for (; k + HALVES <= count; k += HALVES) convert(from + k, to + k);
    if (__builtin_expect(k < count, 0)) {
        From last[HALVES] = {};
        To converted[HALVES];
        __builtin_memcpy(last, from + k, (count - k) * sizeof(From));
        convert(last, converted);
        __builtin_memcpy(to + k, converted, (count - k) * sizeof(To));
    }
}
OP float round_float16(float x) {       // the same in float's exponent
    uint32_t u = bits<uint32_t>(x), size = u & 0x7fffffffu;
    uint32_t y = (size + 0xfffu + ((size >> 13) & 1u)) & ~0x1fffu;
    y = size < 0x38800000u ? bits<uint32_t>((bits<float>(size) + 0.5f) - 0.5f) : y;
    y = size >= 0x477ff000u ? 0x7f800000u : y;
    return x != x ? nan : bits<float>(y | (u & 0x80000000u));
}

// float -> integer as torch's CPU kernels do it: truncation, and no undefined behaviour out of range
// GCC before 13 makes trunc(x) of (float)(int)x, which keeps the sign of -0.5; of (float)(int)(trunc(x) + 0) it makes trunc(x) + 0.
OP float whole(float x) { return __builtin_truncf(x) + 0.f; }
OP double whole(double x) { return __builtin_trunc(x) + 0.; }
template <class To, class From> OP To to_integer(From x) {
    if constexpr (is_float<From>) {
        x = whole(x);
        if constexpr (sizeof(To) == 8) return (To)(int64_t)x;
        else if constexpr (sizeof(From) == 4 && sizeof(To) < 4) return (To)(int32_t)x;
        else if constexpr (sizeof(To) < 4) return (To)(int64_t)x;
        else return (To)x;
    }
    return (To)x;
}

// --- exp, log and their relatives ---------------------------------------------------------------------------------------
constexpr float SHIFT = 12582912.f;             // 1.5 * 2^23: adding it rounds to an integer, found in the low bits
OP float times_power(float p, int32_t i) {      // p * 2^i in two steps, of the low bits of i: right among subnormals and up to inf
    int32_t half = i >> 1;
    return p * bits<float>((half << 23) + 0x3f800000) * bits<float>(((i - half) << 23) + 0x3f800000);
}
OP int32_t at_most_129(float t) {               // of a shifted number; two limits of floats would be made into branches
    int32_t i = bits<int32_t>(t);
    return i > 0x4b400081 ? 0x4b400081 : i;
}
OP float exp(float x0) {                        // 2^n * exp(r), |r| <= ln(2)/2; polynomial: our own minimax fit, 3e-9
    float x = x0 < -104.f ? -104.f : x0;        // a NaN passes both limits, and comes out of the polynomial
    int32_t i = at_most_129(fma(x, 1.44269504088896341f, SHIFT));
    float n = bits<float>(i) - SHIFT, r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = horner(r, 1.3814572e-3f, 8.3687296e-3f, 4.1668388e-2f, 1.6666521e-1f, 4.9999994e-1f, 1.f, 1.f);
    return times_power(p, i);
}
OP float exp2(float x0) {                       // 2^n * 2^r, |r| <= 1/2; polynomial: our own minimax fit, 2e-9
    float x = x0 < -151.f ? -151.f : x0;
    int32_t i = at_most_129(x + SHIFT);
    float r = x - (bits<float>(i) - SHIFT);
    float p = horner(r, 1.5353361e-4f, 1.3398875e-3f, 9.6184369e-3f, 5.5503324e-2f, 2.4022648e-1f, 6.9314718e-1f, 1.f);
    return times_power(p, i);
}

// Cephes logf: x = 2^e * (1 + m); log(1 + m) = m + y.  Each logarithm adds up m, y and e in its own base, large parts last.
struct Logarithm { float m, y, e; };
OP Logarithm log_parts(float x0) {
    bool tiny = x0 < 1.17549435e-38f;
    float x = tiny ? x0 * 8388608.f : x0;       // a subnormal is scaled by 2^23 first
    int32_t b = bits<int32_t>(x), e = (b - 0x3f3504f3) >> 23;
    float m = bits<float>((int32_t)((uint32_t)b - ((uint32_t)e << 23))) - 1.f, z = m * m;
    float p = horner(m, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                     -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
    return {m, fma(p * m, z, -0.5f * z), (float)e - (tiny ? 23.f : 0.f)};
}
OP float log_limits(float x, float y) {         // the logarithm of x is y, but for x = 0, below 0, inf and NaN
    y = x == 0.f ? -inf : y;
    y = x < 0.f ? nan : y;
    return x < inf ? y : x;
}
OP float log(float x) {
    auto [m, y, e] = log_parts(x);
    return log_limits(x, fma(e, 0.693359375f, m + fma(e, -2.12194440e-4f, y)));
}
OP float log2(float x) {                        // 1/ln 2 = 1 + 0.4427
    auto [m, y, e] = log_parts(x);
    return log_limits(x, fma(m, 0.44269504f, y * 0.44269504f) + y + m + e);
}
OP float log10(float x) {                       // 1/ln 10 = 0.43359375 + 7.0073e-4, log10 2 = 0.30078125 + 2.4875e-4
    auto [m, y, e] = log_parts(x);
    float low = fma(e, 2.48745663981e-4f, (m + y) * 7.00731903251e-4f);
    return log_limits(x, fma(e, 0.30078125f, fma(m, 0.43359375f, fma(y, 0.43359375f, low))));
}

OP float sigmoid(float x) { return 1.f / (1.f + exp(-x)); }
OP double sigmoid(double x) { return 1. / (1. + __builtin_exp(-x)); }

OP float log1p(float x) {                       // Kahan: the error of 1 + x cancels in log(u) * x / (u - 1)
    float u = 1.f + x, y = log(u) * (x / (u - 1.f));
    y = u == 1.f ? x : y;
    return u == inf ? u : y;
}
OP float expm1(float x) {                       // likewise
    float u = exp(x), y = (u - 1.f) * (x / log(u));
    y = u == 1.f ? x : y;
    y = u - 1.f == -1.f ? -1.f : y;
    return u == inf ? u : y;
}
OP double log1p(double x) { return __builtin_log1p(x); }
OP double expm1(double x) { return __builtin_expm1(x); }

OP float tanh(float x0) {                       // Eigen/XLA rational, odd/even degree 13/6
    float a = __builtin_fabsf(x0), x = a > 7.90531110763549805f ? 7.90531110763549805f : a;
    float z = x * x;
    float p = horner(z, -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f, 5.12229709037114e-08f,
                     1.48572235717979e-05f, 6.37261928875436e-04f, 4.89352455891786e-03f);
    float q = horner(z, 1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f, 4.89352518554385e-03f);
    float y = x * p / q;
    return a < 0.0004f ? x0 : __builtin_copysignf(y, x0);
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
    return quarter_turns(small_angle(x), 0);
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
    return quarter & 1 ? -1.f / t : t;
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
OP float atan2(float y, float x) {
    float a = __builtin_fabsf(y), b = __builtin_fabsf(x), small = a > b ? b : a, large = a > b ? a : b;
    double ratio = (double)small / large;
    ratio = (small == large) & (large == inf) ? 1. : ratio;
    ratio = (small == large) & (large == 0.f) ? 0. : ratio;
    double angle = atan_unit(ratio);
    angle = a > b ? 1.5707963267948966 - angle : angle;
    return (float)__builtin_copysign(bits<int32_t>(x) < 0 ? 3.1415926535897931 - angle : angle, (double)y);
}
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

// --- functions that libm has, in both precisions --------------------------------------------------------------------------
#define LIBM_DOUBLE(name) OP double name(double x) { return __builtin_##name(x); }
#define LIBM(name) LIBM_DOUBLE(name) OP float name(float x) { return __builtin_##name##f(x); }
LIBM_DOUBLE(exp) LIBM_DOUBLE(log) LIBM_DOUBLE(tanh) LIBM_DOUBLE(erf) LIBM_DOUBLE(exp2) LIBM_DOUBLE(log2) LIBM_DOUBLE(log10)
LIBM_DOUBLE(sin) LIBM_DOUBLE(cos) LIBM_DOUBLE(tan) LIBM_DOUBLE(asin) LIBM_DOUBLE(acos) LIBM_DOUBLE(atan)
LIBM_DOUBLE(sinh) LIBM_DOUBLE(cosh) LIBM(sqrt) LIBM(asinh) LIBM(acosh) LIBM(atanh) LIBM(erfc) LIBM(lgamma) LIBM(floor) LIBM(ceil) LIBM(trunc)
OP float rsqrt(float x) { return 1.f / __builtin_sqrtf(x); }
OP double rsqrt(double x) { return 1. / __builtin_sqrt(x); }
template <class T> OP T reciprocal(T x) { return T(1) / x; }
OP float round(float x) { return __builtin_rintf(x); }      // ties to even
OP double round(double x) { return __builtin_rint(x); }
#define SAME_ON_INTEGERS(name) template <class T> OP T name(T x) { return x; }
SAME_ON_INTEGERS(floor) SAME_ON_INTEGERS(ceil) SAME_ON_INTEGERS(trunc) SAME_ON_INTEGERS(round)

#define LIBM2_DOUBLE(name) OP double name(double a, double b) { return __builtin_##name(a, b); }
#define LIBM2(name) LIBM2_DOUBLE(name) OP float name(float a, float b) { return __builtin_##name##f(a, b); }
LIBM2(copysign) LIBM2(nextafter)
LIBM2_DOUBLE(atan2) LIBM2_DOUBLE(hypot) LIBM2_DOUBLE(fmod)
OP double pow(double a, double b) { return __builtin_pow(a, b); }

// --- arithmetic ------------------------------------------------------------------------------------------------------------
OP float abs(float x) { return __builtin_fabsf(x); }
OP double abs(double x) { return __builtin_fabs(x); }
template <class T> OP T abs(T x) { return x < T(0) ? T(-x) : x; }
template <class T> OP T sign(T x) { return x != x ? x : T((x > T(0)) - (x < T(0))); }
OP float sign(float x) { return (float)((x > 0.f) - (x < 0.f)); }           // torch: sign(NaN) is 0
OP double sign(double x) { return (double)((x > 0.) - (x < 0.)); }
template <class T> OP bool isnan(T x) { return x != x; }
OP bool isinf(float x) { return __builtin_fabsf(x) == inf; }
OP bool isinf(double x) { return __builtin_fabs(x) == (double)inf; }
template <class T> OP bool isinf(T) { return false; }
OP bool signbit(float x) { return bits<int32_t>(x) < 0; }
OP bool signbit(double x) { return bits<int64_t>(x) < 0; }
template <class T> OP bool signbit(T x) { return x < T(0); }

// A NaN on either side wins.  Two plain choices: one with || is not vectorized.
template <class T> OP T maximum(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; }
template <class T> OP T minimum(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }

// Integer division.  The quotient of the lowest number by -1 wraps (an unsigned type's largest number is no -1).
template <class T> OP bool minus_one(T b) { return T(-1) < T(0) && b == T(-1); }
template <class T> OP T truncdiv(T a, T b) { return b == T(0) ? T(0) : minus_one(b) ? T(T(0) - a) : T(a / b); }
template <class T> OP T fmod(T a, T b) { return (b == T(0) || minus_one(b)) ? T(0) : T(a % b); }
template <class T> OP T signed_as(T m, T b) { return (m != T(0) && ((m < T(0)) != (b < T(0)))) ? T(m + b) : m; }
template <class T> OP T remainder(T a, T b) { return signed_as(fmod(a, b), b); }
template <class T> OP T floordiv_of(T a, T b, T m) {        // m = fmod(a, b); as torch.floor_divide: exact near integers, signed zeros kept
    T d = (a - m) / b;
    d = (m != T(0)) & ((b < T(0)) != (m < T(0))) ? d - T(1) : d;
    T f = floor(d);
    f = d - f > T(0.5) ? f + T(1) : f;
    f = d == T(0) ? copysign(T(0), a / b) : f;
    return b == T(0) ? a / b : f;
}
template <class T> OP T floordiv(T a, T b) {
    if constexpr (is_float<T>) return floordiv_of(a, b, fmod(a, b));
    else {
        T m = fmod(a, b), d = truncdiv(a, b);
        return (m != T(0) && ((m < T(0)) != (b < T(0)))) ? T(d - T(1)) : d;
    }
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
template <class T> OP T truncdiv_float(T a, T b) { return trunc(a / b); }
OP float truncdiv(float a, float b) { return __builtin_truncf(a / b); }
OP double truncdiv(double a, double b) { return __builtin_trunc(a / b); }
template <class T> OP T pow(T base, T exponent) {          // integers; torch: a negative exponent gives 0, 1 or -1
    if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent % T(2) ? T(-1) : T(1)) : T(0);
    T result = 1;
    for (; exponent; exponent = exponent / T(2), base = T(base * base)) if (exponent % T(2)) result = T(result * base);
    return result;
}
template <class T> OP T bitwise_left_shift(T a, T b) {
    return (b < T(0) || b >= T(8 * sizeof(T))) ? T(0) : T((uint64_t)a << b);
}
template <class T> OP T bitwise_right_shift(T a, T b) {
    constexpr int last = 8 * sizeof(T) - (T(-1) < T(0) ? 1 : 0);
    return (b < T(0) || b >= T(8 * sizeof(T))) ? (last == 8 * sizeof(T) ? T(0) : T(a >> (8 * sizeof(T) - 1))) : T(a >> b);
}

OP double logaddexp(double a, double b) {      // of logcumsumexp: b is the new element
    double low = b != b || b < a ? b : a, high = b != b || b > a ? b : a;
    return low != high || __builtin_isfinite(low) ? __builtin_log1p(__builtin_exp(low - high)) + high : a;
}

// --- reductions --------------------------------------------------------------------------------------------------------------
// argmax: the extreme and its place.  A NaN counts as the extreme; among equals the first place wins, in any order of combining.
template <class T> struct Extreme { T value; int64_t index; };
#define EXTREME(name, beyond) template <class T> OP Extreme<T> name(Extreme<T> a, Extreme<T> b) {                                   \
    bool nan_a = a.value != a.value, nan_b = b.value != b.value, equal = a.value == b.value || (nan_a && nan_b);                 \
    return (equal ? b.index < a.index : (nan_b || (!nan_a && b.value beyond a.value))) ? b : a;                                  \
}
EXTREME(larger, >) EXTREME(smaller, <)

// --- transposed access -------------------------------------------------------------------------------------------------------
// to[c][r] = from[r][c].  Blocks of 4-byte elements lie in BLOCK vectors and are exchanged in log2(BLOCK) rounds: 1x1, then 2x2, ...
#ifndef __clang__
#ifdef __AVX512F__
constexpr int VECTOR_BYTES = 64;
#else
constexpr int VECTOR_BYTES = 32;
#endif
constexpr int BLOCK = VECTOR_BYTES / 4;
typedef uint32_t Row __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
OP void transpose_block(const uint32_t* from, int64_t step, uint32_t* to, int64_t to_step) {
    Row rows[BLOCK], lanes;
    #pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++) rows[i] = *(const Row*)(from + i * step), lanes[i] = i;
    #pragma GCC unroll 16
    for (uint32_t half = 1; half < BLOCK; half *= 2)
        #pragma GCC unroll 16
        for (int i = 0; i < BLOCK; i++)
            if (!(i & half)) {
                Row a = rows[i], b = rows[i + half];
                rows[i] = __builtin_shuffle(a, b, (lanes & half) != 0 ? lanes - half + BLOCK : lanes);
                rows[i + half] = __builtin_shuffle(a, b, (lanes & half) != 0 ? lanes + BLOCK : lanes + half);
            }
    #pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++) *(Row*)(to + i * to_step) = rows[i];
}
#endif
template <class T> OP void transpose(const T* from, int64_t step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
    int64_t whole_rows = 0, whole_columns = 0;
#ifndef __clang__
    if constexpr (sizeof(T) == 4) {
        whole_rows = rows / BLOCK * BLOCK, whole_columns = columns / BLOCK * BLOCK;
        for (int64_t r = 0; r < whole_rows; r += BLOCK)
            for (int64_t c = 0; c < whole_columns; c += BLOCK)
                transpose_block((const uint32_t*)from + r * step + c, step, (uint32_t*)to + c * to_step + r, to_step);
    }
#endif
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) to[c * to_step + r] = from[r * step + c];
}

// --- random numbers ------------------------------------------------------------------------------------------------------------
// Counter based: Philox4x32-10 (Salmon et al., 2011) of (seed, offset), so element `offset` of stream `seed` needs no state.
OP uint32_t philox(uint64_t seed, uint64_t offset) {
    uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)(offset >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b; c3 = (uint32_t)a; c0 = n0; c2 = n2;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return c0;
}
OP float rand(int64_t seed, int64_t offset) {               // 24 bits: [0, 1)
    return (float)(philox((uint64_t)seed, (uint64_t)offset) >> 8) * 5.9604644775390625e-8f;
}
// Memory for values between two loops of a kernel where their number is not constant: kept by each thread, grown when needed.
template <class T, int number> OP T* scratch(int64_t count) {
    static thread_local struct Block {
        T* start = nullptr;
        int64_t size = 0;
        ~Block() { __builtin_free(start); }
    } block;
    if (__builtin_expect(block.size < count, 0)) {
        __builtin_free(block.start);
        block.start = (T*)__builtin_malloc(count * sizeof(T));
        block.size = count;
    }
    return block.start;
}

}  // namespace mini

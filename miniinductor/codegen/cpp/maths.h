// Maths without branches or calls: GCC turns it into vector code inside `#pragma omp simd`.
// Overloads of what the prelude takes from libm.
//
// exp and tanh, in float also log, log1p and erf (Eigen/XLA rationals, as published): a few ulp,
// right on NaN, inf, -0.0 and subnormals, and faster than SLEEF's, as they stand in the loop
// itself.
namespace mini {
#ifdef __FMA__
OP float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OP double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class T> OP T fma(T a, T b, T c) { return a * b + c; }
#endif
template <class T> OP T horner(T, T p) { return p; }        // horner(z, a, b, c) = (a*z + b)*z + c
template <class T, class... More> OP T horner(T z, T p, T next, More... more) {
    return horner(z, fma(p, z, next), more...);
}

// --- exp -----------------------------------------------------------------------------------------
// 1.5 * 2^23 + 254: adding it rounds to an integer, found in the low bits.  254 is twice the bias
// of an exponent: half of these bits are the exponent of 2^(n/2)
constexpr float SHIFT = 12583166.f;
// x * 2^e
OP float scaled(float x, int32_t e) { return bits<float>(bits<int32_t>(x) + (e << 23)); }
// 2^n * exp(r), |r| <= ln(2)/2; polynomial: our own minimax fit, 3e-9
OP float exp(float x0) {
    // For a NaN the polynomial is NaN.  Below -104 x becomes -176, for which both factors in the
    // last line are 0.  (A product that only rounds to 0 would take ten times as long, and masked
    // rows have many.)
    float x = x0 < -104.f ? -176.f : x0;
    int32_t i = bits<int32_t>(fma(x, 1.44269504088896341f, SHIFT));
    // n is at most 129.  GCC would make a branch of a second float limit
    i = i > 0x4b40017f ? 0x4b40017f : i;
    float n = bits<float>(i) - SHIFT, r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = horner(r, 1.3814572e-3f, 8.3687296e-3f, 4.1668388e-2f, 1.6666521e-1f, 4.9999994e-1f,
                     1.f, 1.f);
    // in two steps: right among subnormals and up to inf; of i the low bits count
    int32_t half = i >> 1;
    return p * scaled(0.f, half) * scaled(0.f, i - half);
}
// 2^n * (1 + p), the same in double: p keeps the digits of a small x, n + 2046 are low bits
struct Power { uint64_t n; double p; };
OP Power power(double x) {
    constexpr double SHIFT = 0x1.8p52 + 2046;
    uint64_t i = bits<uint64_t>(fma(x, 1.4426950408889634, SHIFT));
    double n = bits<double>(i) - SHIFT;
    double r = fma(n, -1.42860682030941723212e-6, fma(n, -0.693145751953125, x)), z = r * r;
    // even and odd powers of r: two chains, of which neither waits for the other
    double even = horner(z, 2.7620078206e-07, 2.4801521317484083e-05, 1.3888888917199863e-03,
                         4.166666666662416e-02);
    double odd = horner(z, 2.5100377619606372e-08, 2.7557268476553695e-06, 1.9841269863042963e-04,
                        8.333333333330063e-03, 1.6666666666666669e-01);
    return {i, fma(z, horner(r, even, odd, 0.5), r)};
}
OP double exp(double x0) {
    double x = x0 < -746. ? -1418.3 : x0;
    auto [n, p] = power(x > 710. ? 710. : x);   // (a limit of n, an integer, takes longer)
    uint64_t half = n >> 1;                     // (AVX2 shifts no signed 64 bits)
    double scale = bits<double>(half << 52);
    return fma(scale, p, scale) * bits<double>((n - half) << 52);
}
OP double tanh(double x0) {                     // 1 - 2 / (exp(2x) + 1), without a loss of digits
    double x = 2. * __builtin_fabs(x0);
    auto [n, p] = power(x > 40. ? 40. : x);
    double scale = bits<double>((n - 1023) << 52), y = fma(scale, p, scale - 1.);
    return __builtin_copysign(y / (y + 2.), x0);
}
template <class T> OP T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// --- log -----------------------------------------------------------------------------------------
// x = 2^e * (1 + m), m from -1/4 to 1/2; log(1 + m) = m + y, of which our own minimax fit (1e-9)
// makes y.  Large parts are added last
OP int32_t exponent(float x) { return (bits<int32_t>(x) - 0x3f400000) >> 23; }
OP float log_of(float x, float e, float m) {
    float z = m * m;
    float p = horner(m, 3.7672933e-2f, -9.1161914e-2f, 1.1700661e-1f, -1.2727778e-1f, 1.427624e-1f,
                     -1.6655296e-1f, 1.9999605e-1f, -2.5000164e-1f, 3.333334e-1f);
    float y = fma(e, -2.12194440e-4f, fma(p * m, z, -0.5f * z));
    y = fma(e, 0.693359375f, m + y);
    y = x == 0.f ? -inf : y;
    y = x < 0.f ? nan : y;
    return x < inf ? y : x;
}
OP float log(float x0) {
    bool tiny = x0 < 1.17549435e-38f;
    float x = tiny ? x0 * 8388608.f : x0;       // a subnormal is scaled by 2^23 first
    int32_t e = exponent(x);
    return log_of(x0, e - (tiny ? 23.f : 0.f), scaled(x, -e) - 1.f);
}
OP float log1p(float x) {                       // m = x / 2^e + (1 / 2^e - 1) keeps all digits
    int32_t e = exponent(1.f + x);
    float m = scaled(x, -e) + fma(.25f, scaled(4.f, -e), -1.f);
    return __builtin_copysignf(log_of(1.f + x, e, m), x);
}

OP float tanh(float x0) {                       // Eigen/XLA rational, odd/even degree 13/6
    float x = __builtin_fabsf(x0), z = x * x;
    float p = horner(z, -2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                     5.12229709037114e-08f, 1.48572235717979e-05f, 6.37261928875436e-04f,
                     4.89352455891786e-03f);
    float q = horner(z, 1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                     4.89352518554385e-03f);
    // exactly 1: gradients multiply 1 - y * y by powers of x
    float y = x > 7.99881172180175781f ? 1.f : x * p / q;
    return x < 0.0004f ? x0 : __builtin_copysignf(y, x0);
}

OP float erf(float x0) {                        // Eigen/XLA rational, odd/even degree 13/8
    float x = __builtin_fabsf(x0);
    x = x > 4.f ? 4.f : x;
    float z = x * x;
    float p = horner(z, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f,
                     -5.69250639462346e-05f, -7.34990630326855e-04f, -2.95459980854025e-03f,
                     -1.60960333262415e-02f);
    float q = horner(z, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f,
                     -7.37332916720468e-03f, -1.42647390514189e-02f);
    // not x * p / q, which loses the last bits of a subnormal x
    return __builtin_copysignf(x * (p / q), x0);
}

// --- scans ---------------------------------------------------------------------------------------
// log(exp(x0) + exp(x1) + ...), one x more each time: log(exp(most) * (1 + rest)) of the largest x.
// (One exp and one log1p, of which neither waits for that of the element before.)
OP double logaddexp(double& most, double& rest, double x) {
    double far = x == most ? 0. : x - most, next = exp(-abs(far));
    rest = (far > 0. ? rest * next : rest) + next;
    most = maximum(most, x);
    return most + log1p(rest);
}
}  // namespace mini

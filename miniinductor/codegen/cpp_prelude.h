// The maths of generated kernels.  Self-contained: no standard header, so that a kernel compiles in 0.1 s.
//
// Everything is scalar.  `exp` is written without branches and calls, so that GCC turns it into vector code inside `#pragma omp simd`;
// the other functions call libm.  lowerings/arithmetic.h has more functions, speed/maths.h vectorizable forms of them; other .h files lie
// beside the .py that needs them.  Semantics are torch's: NaN goes through maximum/minimum.
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
constexpr int INDEX_ERROR = 1, ZERO_DIVISION = 2;         // bits that a kernel collects in `error`
template <class T> constexpr bool is_float = false;
template <> constexpr bool is_float<float> = true;
template <> constexpr bool is_float<double> = true;

#ifdef __FMA__
OP float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OP double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
template <class T> OP T fma(T a, T b, T c) { return a * b + c; }
#endif
template <class T> OP T horner(T, T p) { return p; }        // horner(z, a, b, c) = (a*z + b)*z + c
template <class T, class... More> OP T horner(T z, T p, T next, More... more) { return horner(z, fma(p, z, next), more...); }

// float -> integer as torch's CPU kernels do it: truncation, and no undefined behaviour out of range
// GCC before 13 turns (float)(int)x into trunc(x), which is -0.0 for -0.5 where the integer gives 0.0.  Adding 0 makes it 0.0 in any case.
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

// --- exp -----------------------------------------------------------------------------------------------------------------
constexpr float SHIFT = 12582912.f;             // 1.5 * 2^23: adding it rounds to an integer, found in the low bits
OP float times_power(float p, int32_t i) {      // p * 2^i (of i the low bits count) in two steps: right among subnormals and up to inf
    int32_t half = i >> 1;
    return p * bits<float>((half << 23) + 0x3f800000) * bits<float>(((i - half) << 23) + 0x3f800000);
}
OP int32_t at_most_129(float t) {               // t = n + SHIFT, as bits; n at most 129.  GCC would make a branch of a second float limit
    int32_t i = bits<int32_t>(t);
    return i > 0x4b400081 ? 0x4b400081 : i;
}
OP float exp(float x0) {                        // 2^n * exp(r), |r| <= ln(2)/2; polynomial: our own minimax fit, 3e-9
    // a NaN passes both limits, and comes out of the polynomial; below -104 both factors 2^-127 are 0: a product that is rounded
    // to 0 would take the processor ten times as long, and masks are full of them
    float x = x0 < -104.f ? -176.f : x0;
    int32_t i = at_most_129(fma(x, 1.44269504088896341f, SHIFT));
    float n = bits<float>(i) - SHIFT, r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, x));
    float p = horner(r, 1.3814572e-3f, 8.3687296e-3f, 4.1668388e-2f, 1.6666521e-1f, 4.9999994e-1f, 1.f, 1.f);
    return times_power(p, i);
}
OP double exp(double x) { return __builtin_exp(x); }
template <class T> OP T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }

// --- functions that libm has, in both precisions --------------------------------------------------------------------------
#define LIBM_AS(name, theirs) template <class T> OP T name(T x) {       /* floor(3) is 3 */                                         \
    if constexpr (!is_float<T>) return x;                                                                                        \
    else if constexpr (sizeof(T) == 4) return __builtin_##theirs##f(x);                                                          \
    else return __builtin_##theirs(x);                                                                                           \
}
#define LIBM(name) LIBM_AS(name, name)
LIBM(log) LIBM(sqrt) LIBM(tanh) LIBM(erf)
template <class T> OP T rsqrt(T x) { return T(1) / sqrt(x); }
template <class T> OP T reciprocal(T x) { return T(1) / x; }

// A NaN on either side wins.  Two plain choices: one with || is not vectorized.
template <class T> OP T maximum(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; }
template <class T> OP T minimum(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }

}  // namespace mini

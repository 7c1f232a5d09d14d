// The maths of generated kernels.  Self-contained: no standard header, so that a kernel compiles in 0.1 s.
//
// Everything is scalar, but how lanes are put together.  `exp` is written without branches and calls, so that GCC turns it into vector code
// inside `#pragma omp simd`; the other functions call libm.  codegen/cpp/arithmetic.h has more functions, cpp_maths.h vectorizable forms of
// them; other .h files lie beside the .py that needs them.  Semantics are torch's: NaN goes through maximum/minimum.
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
constexpr int INDEX_ERROR = 1, ZERO_DIVISION = 2, NOT_FAST = 4;       // bits that a kernel collects in `error`
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
OP double exp(double x) {                       // the same; our own fit, 3e-19; ln 2 = 0.693145751953125 + 1.4286e-6
    constexpr double ROUNDING = 6755399441055744.;          // 1.5 * 2^52
    x = x < -746. ? -1418.18 : x;
    x = x > 710. ? 710. : x;
    double shifted = fma(x, 1.4426950408889634, ROUNDING), n = shifted - ROUNDING;
    double r = fma(n, -1.42860682030941723e-6, fma(n, -0.693145751953125, x));
    double p = horner(r, 2.0914686968086877e-9, 2.5105217004720745e-8, 2.7557273643110295e-7, 2.7557255400206424e-6, 2.4801587325547741e-5,
                      1.9841269874820626e-4, 1.3888888888883748e-3, 8.3333333333261351e-3, 4.1666666666666670e-2, 1.6666666666666671e-1, 0.5);
    uint64_t whole = bits<uint64_t>(shifted), half = bits<uint64_t>(fma(n, 0.5, ROUNDING));
    return (1. + fma(r * r, p, r)) * bits<double>((half + 1023) << 52) * bits<double>((whole - half + 1023) << 52);
}
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

// --- bfloat16: memory holds 16 bits, arithmetic is float (float16: cpp_halves.h) -------------------------------------------------
enum class bfloat16 : uint16_t {};               // a scalar: a struct in a loop is not vectorized
OP float to_float(bfloat16 x) { return bits<float>((uint32_t)x << 16); }
// Nearest, ties to even.  A NaN with bits in its low half could overflow when it is rounded up: 0x7fffffff would become -0.0.  A kernel
// that reads no float32, float64 or float16 (`any` is false) cannot meet one: the NaNs of arithmetic have a low half of zeros.
template <bool any> OP uint32_t rounded(float x) {
    uint32_t u = bits<uint32_t>(x);
    return any && x != x ? 0x7fc00000u : u + 0x7fffu + ((u >> 16) & 1u);
}
template <bool any> OP bfloat16 to_bfloat16(float x) { return (bfloat16)(rounded<any>(x) >> 16); }
template <bool any> OP float round_bfloat16(float x) { return bits<float>(rounded<any>(x) & 0xffff0000u); }      // and still a float
OP bfloat16 upper_half(float x) { return (bfloat16)(bits<uint32_t>(x) >> 16); }         // of a bfloat16 as a float

// --- what the lanes of a loop have gathered, put together two halves at a time -----------------------------------------------
// (gcc ends a reduction of `omp simd` with one addition after the other, 16 or 32 of them, each of which waits for the one before.)
#if defined __AVX512F__
constexpr int VECTOR_BYTES = 64;                // of longer vectors gcc compares single elements
#elif defined __AVX__
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
template <class T, int n> struct Lanes { typedef T type __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias)); };
template <int n, class T, class Both> OP T together(const T* lanes, Both both) {
    if constexpr (n == 1) return lanes[0];
    else if constexpr (n == 2) return both(lanes[0], lanes[1]);    // of vectors of one, gcc makes a branch on which of two is larger
    else {
        constexpr int most = VECTOR_BYTES / sizeof(T), width = n / 2 < most ? n / 2 : most;
        typedef typename Lanes<T, width>::type Part;
        Part part = *(const Part*)lanes;
        for (int k = width; k < n; k += width) part = both(part, *(const Part*)(lanes + k));
        return together<width>((const T*)&part, both);
    }
}
#define OF_LANES(name, text) template <int n, class T> OP T name##_of(const T* lanes) {                                              \
    return together<n>(lanes, [](auto a, auto b) { return text; });                                                                  \
}                                                                                                                                    \
template <class T, int n> OP T name##_of(const T (&lanes)[n]) { return name##_of<n, T>(&lanes[0]); }
OF_LANES(sum, a + b)
OF_LANES(prod, a * b)
OF_LANES(max, maximum(a, b))
OF_LANES(min, minimum(a, b))
OF_LANES(any, a | b)
#undef OF_LANES

// --- memory for values between two loops of a kernel where their number is not constant: each thread keeps it ------------------
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

// A kernel runs with the fast forms of some functions; if it met an argument that is too large for them, once more with exact ones.
template <bool value> struct Bool { static constexpr bool v = value; };
template <class Body> OP int fast_then_exact(Body body) {
    int error = body(Bool<false>());
    return error & NOT_FAST ? body(Bool<true>()) & ~NOT_FAST : error;
}
}  // namespace mini

// What generated kernels are made of: types, libm's functions, arithmetic, 16-bit floats, extremes
// and random numbers.  Self-contained: no standard header, so that a kernel compiles in 0.1 s.
// Semantics are torch's: NaN goes through maximum/minimum, integer division by zero raises, shifts
// by too much are defined.  maths.h has the functions of which the compiler makes vectors.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT64_TYPE__ uint64_t;

// --- what libm computes one number at a time, in vectors -----------------------------------------
// torch's library has SLEEF: Sleef_atanf8_u10 takes 8 floats (u10: errors are at most 1.0 ulp).  In
// loops of `omp simd` GCC calls, in place of atanf, a function that the vector ABI names:
// _ZGVdN8v_atanf (d: AVX2, e: AVX-512; v: one vector).  `.set` says which one that is.
#define VECTORS(of) of(exp2) of(expm1) of(log) of(log2) of(log10) of(log1p) of(tan)               \
    of(asin) of(acos) of(atan) of(sinh) of(cosh) of(asinh) of(acosh) of(atanh) of(erf) of(lgamma)
#if defined(__AVX2__) && !defined(__clang__)
#define TEXT(words) #words
#define LANES(n) _Pragma(TEXT(omp declare simd notinbranch simdlen(n)))
#ifdef __AVX512F__
#define TWO(narrow, wide) narrow wide
#else
#define TWO(narrow, wide) narrow
#endif
#define SAME(isa, n, v, name, type, ulp)                                                          \
    asm(".set _ZGV" isa "N" #n v "_" name ", Sleef_" type #n #ulp);
#define SLEEF_OF(T, name, type, few, many, v, args, ulp)                                          \
    extern "C" { TWO(LANES(few), LANES(many)) __attribute__((const)) T name args; }               \
    SAME("d", few, v, #name, type, ulp)                                                           \
    SAME("e", few, v, #name, type, ulp)                                                           \
    SAME("e", many, v, #name, type, ulp)
#define SLEEF_BOTH(name, v, floats, doubles, ulp)                                                 \
    SLEEF_OF(float, name##f, #name "f", 8, 16, v, floats, ulp)                                    \
    SLEEF_OF(double, name, #name "d", 4, 8, v, doubles, ulp)
#define SLEEF1(name, ulp) SLEEF_BOTH(name, "v", (float), (double), ulp)
#define SLEEF2(name, ulp) SLEEF_BOTH(name, "vv", (float, float), (double, double), ulp)
#define SLEEF(name) SLEEF1(name, _u10)
VECTORS(SLEEF) SLEEF1(sin, _u35) SLEEF1(cos, _u35) SLEEF1(erfc, _u15)
SLEEF2(atan2, _u10) SLEEF2(hypot, _u05) SLEEF2(pow, _u10) SLEEF2(fmod,)
#endif

extern "C" {
    float sinf(float); float cosf(float); double sin(double); double cos(double);
    void* aligned_alloc(uint64_t, uint64_t); void free(void*);
}

namespace mini {
#define INLINE __attribute__((always_inline))
#define OP static inline INLINE
constexpr float inf = __builtin_inff(), nan = __builtin_nanf("");

template <class To, class From> OP To bits(From x) { return __builtin_bit_cast(To, x); }
__attribute__((weak)) int64_t hidden_zero = 0;      // a zero of which no compiler knows the value
constexpr int INDEX_ERROR = 1, ZERO_DIVISION = 2;       // bits that a kernel collects in `error`
template <class T> constexpr bool is_float = T(1.5) != T(1);

// --- functions that libm has, in both precisions -------------------------------------------------
#define LIBM(name) template <class T> OP T name(T x) { /* floor(3) is 3 */                        \
    if constexpr (!is_float<T>) return x;                                                         \
    else if constexpr (sizeof(T) == 4) return __builtin_##name##f(x);                             \
    else return __builtin_##name(x);                                                              \
}
#define LIBM2(name) template <class T> OP T name(T a, T b) {                                      \
    if constexpr (sizeof(T) == 4) return __builtin_##name##f(a, b);                               \
    else return __builtin_##name(a, b);                                                           \
}
VECTORS(LIBM) LIBM(erfc) LIBM(sqrt) LIBM(floor) LIBM(ceil) LIBM(trunc) LIBM(rint)
LIBM2(copysign) LIBM2(atan2) LIBM2(hypot)
// (No __builtin_sin: of that and the cosine of the same angle gcc makes one call, of which it makes
// no vectors.)
#define LIBM_ANGLE(name)                                                                          \
    OP float name(float x) { return ::name##f(x); }                                               \
    OP double name(double x) { return ::name(x); }
LIBM_ANGLE(sin) LIBM_ANGLE(cos)
template <class T> OP T round(T x) { return rint(x); }      // ties to even

// float -> integer as torch's CPU kernels do it: truncation, and no undefined behaviour out of
// range
template <class To, class From> OP To to_integer(From x) {
    if constexpr (is_float<From>) {
        // GCC before 13 turns (float)(int)x into trunc(x), which is -0.0 for -0.5 where the integer
        // gives 0.0.  Adding 0 makes it 0.0.
        x = trunc(x) + From(0);
        if constexpr (sizeof(To) == 8 || sizeof(To) < 4 && sizeof(From) == 8) return (To)(int64_t)x;
        else if constexpr (sizeof(To) < 4) return (To)(int32_t)x;
    }
    return (To)x;
}

template <class T> OP T rsqrt(T x) { return T(1) / sqrt(x); }
template <class T> OP T reciprocal(T x) { return T(1) / x; }

// --- signs, and what a number is -----------------------------------------------------------------
template <class T> OP T abs(T x) { return is_float<T> ? copysign(x, T(1)) : x < T(0) ? T(-x) : x; }
template <class T> OP T sign(T x) { return T((x > T(0)) - (x < T(0))); }  // torch: sign(NaN) is 0
template <class T> OP bool isnan(T x) { return x != x; }
template <class T> OP bool isinf(T x) { return is_float<T> && abs(x) == T(inf); }
template <class T> OP bool signbit(T x) { return (is_float<T> ? T(copysign(T(1), x)) : x) < T(0); }

// Integer division.  The quotient of the lowest number by -1 wraps (an unsigned type's largest
// number is no -1).
template <class T> OP bool minus_one(T b) { return T(-1) < T(0) && b == T(-1); }
template <class T> OP T truncdiv(T a, T b) {
    if constexpr (is_float<T>) return trunc(a / b);
    else return b == T(0) ? T(0) : minus_one(b) ? T(T(0) - a) : T(a / b);
}
template <class T> OP T fmod(T a, T b) {
    if constexpr (!is_float<T>) return b == T(0) || minus_one(b) ? T(0) : T(a % b);
    else return sizeof(T) == 4 ? __builtin_fmodf(a, b) : __builtin_fmod(a, b);
}
template <class T> OP T signed_as(T m, T b) {
    return (m != T(0) && ((m < T(0)) != (b < T(0)))) ? T(m + b) : m;
}
template <class T> OP T remainder(T a, T b) { return signed_as(fmod(a, b), b); }
// as torch.floor_divide: exact near integers, signed zeros kept
template <class T> OP T floordiv(T a, T b) {
    T m = fmod(a, b);
    if constexpr (!is_float<T>) return T(truncdiv(a, b) - (signed_as(m, b) != m));
    else {
        T d = (a - m) / b;
        d = (m != T(0)) & ((b < T(0)) != (m < T(0))) ? d - T(1) : d;
        T f = floor(d);
        f = d - f > T(0.5) ? f + T(1) : f;
        f = d == T(0) ? copysign(T(0), a / b) : f;
        // SLEEF's fmod, as eager's, is NaN where 1 / b is too large
        f = (m != m) & (a - a == T(0)) ? floor(a / b) : f;
        return b == T(0) ? a / b : f;
    }
}
template <class T> OP T pow(T base, T exponent) {
    if constexpr (is_float<T>)
        return sizeof(T) == 4 ? __builtin_powf(base, exponent) : __builtin_pow(base, exponent);
    else if (exponent < T(0))   // torch: 0, 1 or -1
        return base == T(1) ? T(1) : base == T(-1) ? (exponent % T(2) ? T(-1) : T(1)) : T(0);
    else {
        T result = 1;
        for (; exponent; exponent = exponent / T(2), base = T(base * base))
            if (exponent % T(2)) result = T(result * base);
        return result;
    }
}
template <class T> OP T bitwise_left_shift(T a, T b) {
    return (b < T(0) || b >= T(8 * sizeof(T))) ? T(0) : T((uint64_t)a << b);
}
template <class T> OP T bitwise_right_shift(T a, T b) {
    T far = T(-1) < T(0) ? T(a >> (8 * sizeof(T) - 1)) : T(0);
    return (b < T(0) || b >= T(8 * sizeof(T))) ? far : T(a >> b);
}

// A NaN on either side wins.  Two plain choices (one with || is not vectorized), of which a number
// for b leaves one.
template <class T> OP T maximum(T a, T b) { T m = a < b ? b : a; return b != b ? b : m; }
template <class T> OP T minimum(T a, T b) { T m = a > b ? b : a; return b != b ? b : m; }

// --- 16-bit floats: memory holds 16 bits, arithmetic is float ------------------------------------
enum class bfloat16 : uint16_t {};               // a scalar: a struct in a loop is not vectorized
OP float to_float(bfloat16 x) { return bits<float>((uint32_t)x << 16); }
OP bfloat16 upper_bfloat16(float x) { return (bfloat16)(bits<uint32_t>(x) >> 16); }
// To the nearest, ties to even.  any_nan: may x be a NaN of which this makes another number?
template <bool any_nan = true> OP float round_bfloat16(float x) {
    uint32_t u = bits<uint32_t>(x), near = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    return bits<float>(any_nan && x != x ? 0x7fc00000u : near);
}
OP bfloat16 to_bfloat16(float x) {              // (16 bits are chosen faster than 32)
    return x != x ? (bfloat16)0x7fc0u : upper_bfloat16(round_bfloat16<false>(x));
}
// Others: integers, of whose arithmetic gcc makes vectors (_Float16 it converts one by one).
// * To a float: the digits are shifted to the left and moved to float's exponent by a product,
//   which also normalizes subnormals.  mask: sign and digits, shifted; top: the first code that is
//   no finite number.
// * From a float: added to x, a number 1.5 * 2^left times as large as x (as the smallest normal
//   number) leaves no bits but those that the type holds: x is rounded to the nearest, ties to
//   even.  most: what is larger becomes this; least: the exponent of the smallest normal number;
//   first: what the exponents differ by; none: the NaN that eager makes.
#define SMALL_FLOAT(name, width, left, mask, scale, top, most, least, first, none)                \
enum class name : uint##width##_t {};                                                             \
OP float to_float(name x) {                                                                       \
    uint32_t y = (uint32_t)(int##width##_t)x;                                                     \
    uint32_t u = bits<uint32_t>(bits<float>(y << left & mask) * scale);                           \
    return bits<float>((y & top) == top ? u | 0x7f800000u : u);                                   \
}                                                                                                 \
OP float shift_##name(float x) {                                                                  \
    uint32_t power = bits<uint32_t>(x) & 0x7f800000u;                                             \
    return bits<float>((power < least ? least : power) + (left << 23) + 0x400000u);               \
}                                                                                                 \
OP name to_##name(float x) {                                                                      \
    float all = __builtin_fabsf(x), size = most < all ? most : all, shift = shift_##name(size);   \
    uint32_t shifted = bits<uint32_t>(shift), sign = bits<uint32_t>(x) >> (32 - width);           \
    uint32_t y = bits<uint32_t>(size + shift) - shifted + (shifted >> left) - first;              \
    return (name)(uint##width##_t)((x != x ? none : y) | (sign & 1u << (width - 1)));             \
}                                                                                                 \
template <class T> OP float round_##name(T x) { return to_float(to_##name(x)); }
SMALL_FLOAT(float16, 16, 13, 0x8fffe000u, 0x1p112f, 0x7c00u,
            65536.f, 0x38800000u, 0x1fa00u, 0x7e00u)
SMALL_FLOAT(float8_e4m3fn, 8, 20, 0x87f00000u, 0x1p120f, 0x7fu,
            E4M3_MOST, 0x3c800000u, 0x46cu, 0x7fu)
SMALL_FLOAT(float8_e5m2, 8, 21, 0x8fe00000u, 0x1p112f, 0x7cu,
            65536.f, 0x38800000u, 0x21au, 0x7fu)
OP float round_float16(float x) {
    float shift = shift_float16(x), size = __builtin_fabsf(x);
    return __builtin_copysignf(size >= 65520.f ? inf : (x + shift) - shift, x);
}
// float16 elements of a loop's lanes, one after the other in memory, as floats: read before the
// loop, or written after it.  (gcc makes vectors of the processor's conversions in no loop; `asm`
// would keep accumulators in memory.)
#if defined(__AVX512BW__)
constexpr int64_t TOGETHER = 16;
#define WIDENED(x) __builtin_ia32_vcvtph2ps512_mask(x, Floats{}, -1, 4)
#define NARROWED(x) __builtin_ia32_vcvtps2ph512_mask(x, 0, Halves{}, -1)
#elif defined(__F16C__)
constexpr int64_t TOGETHER = 8;
#define WIDENED(x) __builtin_ia32_vcvtph2ps256(x)
#define NARROWED(x) __builtin_ia32_vcvtps2ph256(x, 0)
#endif
#ifdef NARROWED
typedef short Halves __attribute__((vector_size(2 * TOGETHER), aligned(2), may_alias));
typedef float Floats __attribute__((vector_size(4 * TOGETHER)));
#else
constexpr int64_t TOGETHER = 1;
typedef float16 Halves;
typedef float Floats;
#define WIDENED to_float
#define NARROWED to_float16
#endif
template <int most> struct Widened {
    alignas(64) float lanes[(most + 15) / 16 * 16];
    INLINE Widened(const float16* from, int64_t n) {
        for (int64_t k = 0; k < n; k += TOGETHER) {
            Halves x{};
            if (n - k >= TOGETHER) x = *(Halves*)(from + k);    // (the other keeps sums in memory)
            else __builtin_memcpy(&x, from + k, 2 * (n - k));
            *(Floats*)(lanes + k) = WIDENED(x);
        }
    }
};
template <int most> struct Narrowed {
    float16* to;
    int64_t n;
    alignas(64) float lanes[(most + 15) / 16 * 16];
    INLINE Narrowed(float16* to, int64_t n) : to(to), n(n) {}   // (the lanes begin with no zeros)
    INLINE ~Narrowed() {
        for (int64_t k = 0; k < n; k += TOGETHER) {
            Halves x = NARROWED(*(Floats*)(lanes + k));
            if (n - k >= TOGETHER) *(Halves*)(to + k) = x;
            else __builtin_memcpy(to + k, &x, 2 * (n - k));
        }
    }
};

// --- elements of less than 32 bits that lie apart ------------------------------------------------
// The processor gathers words of 32 bits.  The word that holds the element lies in its page, so
// that it can be read, whatever else it holds.
typedef uint32_t __attribute__((may_alias)) Word;
template <class T> OP T gathered(const T* in, uint64_t i) {
#ifdef __SANITIZE_ADDRESS__   // it forbids to read what lies beside a tensor
    return in[i];
#else
    uint64_t at = (uint64_t)(in + i);
    return (T)(*(const Word*)(at & ~3ull) >> at % 4 * 8);
#endif
}

// --- what the lanes of a loop have gathered, put together two halves at a time -------------------
// (gcc ends a reduction of `omp simd` with one addition after the other, 16 or 32 of them, each of
// which waits for the one before.)
template <int n, class T, class Both> OP T together(T* lanes, Both both) {
    if constexpr (n == 1) return lanes[0];
    else {
        #pragma omp simd
        for (int k = 0; k < n / 2; k++) lanes[k] = both(lanes[k], lanes[k + n / 2]);
        return together<n / 2>(lanes, both);
    }
}
#define OF_LANES(name, text) template <int n, class T> OP T name##_of(T (&lanes)[n]) {            \
    return together<n>(lanes, [](auto a, auto b) { return text; });                               \
}
OF_LANES(sum, a + b)
OF_LANES(prod, a * b)
OF_LANES(max, maximum(a, b))
OF_LANES(min, minimum(a, b))
OF_LANES(any, a | b)

// --- values that are computed once, for each iteration of some loops -----------------------------
template <class T> struct Table {
    T* values;
    Table(int64_t n) : values((T*)aligned_alloc(64, (n * sizeof(T) | 63) + 1)) {}
    ~Table() { free(values); }
    operator T*() { return values; }
};

// --- axes that change places ---------------------------------------------------------------------
// out[c][r] = in[r][c].  Up to 16 x 16 elements are interleaved, half with half, four times: gcc
// keeps them in vector registers.
template <class T>
OP void transpose(const T* in, int64_t in_step, int rows, T* out, int64_t out_step, int columns) {
    T a[5][256];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < columns; c++) a[0][16 * r + c] = in[r * in_step + c];
    #pragma GCC unroll 4
    for (int n = 0; n < 4; n++)
        for (int k = 0; k < 128; k++)
            a[n + 1][2 * k] = a[n][k], a[n + 1][2 * k + 1] = a[n][k + 128];
    for (int c = 0; c < columns; c++)
        for (int r = 0; r < rows; r++) out[c * out_step + r] = a[4][16 * c + r];
}

// --- extremes and their places -------------------------------------------------------------------
// argmax: the extreme and its place.  A NaN counts as the extreme; among equals the first one wins:
// elements come in order.  Few groups of lanes have one beyond the best so far: only these are
// looked through.
template <class T> struct Extreme { T value; int64_t index; };
#define EXTREME(name, within)                                                                     \
template <class T, class U>                                                                       \
OP void keep_##name(T& best, int64_t& place, U x, int64_t at) {                                   \
    bool is_beyond = !(x within best) & (best == best);                                           \
    best = is_beyond ? T(x) : best;                                                               \
    place = is_beyond ? at : place;                                                               \
}                                                                                                 \
template <class T> OP Extreme<T> name(Extreme<T> best, Extreme<T> next) {                         \
    keep_##name(best.value, best.index, next.value, next.index);                                  \
    return best;                                                                                  \
}                                                                                                 \
template <class T, class U> OP bool any_##name(const T* lanes, int64_t count, U best) {           \
    int32_t found = 0;                                                                            \
    _Pragma("omp simd reduction(|:found)")                                                        \
    for (int64_t k = 0; k < count; k++) found |= !(lanes[k] within best);                         \
    return found;                                                                                 \
}
EXTREME(larger, <=) EXTREME(smaller, >=)

// --- random numbers ------------------------------------------------------------------------------
// Counter based: Philox4x32-10 (Salmon et al., 2011) of (seed, offset), so element `offset` of
// stream `seed` needs no state.
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
}  // namespace mini

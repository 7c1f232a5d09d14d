// Arithmetic that no transformer needs: what libm has beside exp, log, sqrt, tanh and erf; signs, division of integers, powers, shifts.
// Semantics are torch's: integer division by zero raises, shifts by too much are defined.  codegen/cpp/maths.h has faster forms of some.
namespace mini {
LIBM(exp2) LIBM(log2) LIBM(log10) LIBM(log1p) LIBM(expm1) LIBM(sin) LIBM(cos) LIBM(tan) LIBM(asin) LIBM(acos) LIBM(atan)
LIBM(sinh) LIBM(cosh) LIBM(asinh) LIBM(acosh) LIBM(atanh) LIBM(erfc) LIBM(lgamma) LIBM(floor) LIBM(ceil) LIBM(trunc)
LIBM_AS(round, rint)        // ties to even
#define LIBM2(name) template <class T> OP T name(T a, T b) {                                                                        \
    if constexpr (sizeof(T) == 4) return __builtin_##name##f(a, b);                                                              \
    else return __builtin_##name(a, b);                                                                                          \
}
LIBM2(copysign) LIBM2(atan2) LIBM2(hypot)

// --- signs, and what a number is -----------------------------------------------------------------------------------------------
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

// Integer division.  The quotient of the lowest number by -1 wraps (an unsigned type's largest number is no -1).
template <class T> OP bool minus_one(T b) { return T(-1) < T(0) && b == T(-1); }
template <class T> OP T truncdiv(T a, T b) {
    if constexpr (is_float<T>) return trunc(a / b);
    else return b == T(0) ? T(0) : minus_one(b) ? T(T(0) - a) : T(a / b);
}
template <class T> OP T fmod(T a, T b) {
    if constexpr (!is_float<T>) return b == T(0) || minus_one(b) ? T(0) : T(a % b);
    else if constexpr (sizeof(T) == 4) return __builtin_fmodf(a, b);
    else return __builtin_fmod(a, b);
}
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
template <class T> OP T integer_power(T base, T exponent) {     // torch: a negative exponent gives 0, 1 or -1
    if (exponent < T(0)) return base == T(1) ? T(1) : base == T(-1) ? (exponent % T(2) ? T(-1) : T(1)) : T(0);
    T result = 1;
    for (; exponent; exponent = exponent / T(2), base = T(base * base)) if (exponent % T(2)) result = T(result * base);
    return result;
}
template <class T> OP T pow(T base, T exponent) {
    if constexpr (!is_float<T>) return integer_power(base, exponent);
    else return sizeof(T) == 4 ? __builtin_powf(base, exponent) : __builtin_pow(base, exponent);
}
template <class T> OP T bitwise_left_shift(T a, T b) {
    return (b < T(0) || b >= T(8 * sizeof(T))) ? T(0) : T((uint64_t)a << b);
}
template <class T> OP T bitwise_right_shift(T a, T b) {
    constexpr int last = 8 * sizeof(T) - (T(-1) < T(0) ? 1 : 0);
    return (b < T(0) || b >= T(8 * sizeof(T))) ? (last == 8 * sizeof(T) ? T(0) : T(a >> (8 * sizeof(T) - 1))) : T(a >> b);
}
}  // namespace mini

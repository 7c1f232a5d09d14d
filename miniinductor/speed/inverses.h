// Inverses of trigonometric and hyperbolic functions, for vectors: of doubles, and of those floats that maths.h does not compute in double.
//
// Errors are below 3 ulp (tests/test_doubles.py measures them).  The arc tangent is our own minimax fits (4e-10 and 9e-20).
namespace mini {
OP float with_sign(float x, float sign) { return __builtin_copysignf(x, sign); }
OP double with_sign(double x, double sign) { return __builtin_copysign(x, sign); }
OP float abs_of(float x) { return __builtin_fabsf(x); }
OP double abs_of(double x) { return __builtin_fabs(x); }
OP float root(float x) { return __builtin_sqrtf(x); }
OP double root(double x) { return __builtin_sqrt(x); }

// atan2(y, x) = sign(y) * (turns * pi/2 +- (atan(c) + atan(s))), small / large = tan(atan(c) + atan(s)), c is 0, 1/2 or 1: |s| < 0.24
OP float atan_series(float z) { return horner(z, 0.101567424f, -0.142530108f, 0.199996371f, -0.333333327f); }
OP double atan_series(double z) {
    return polynomial(z, -0.042100369715345882, 0.057766824567065297, -0.066608185931068188, 0.076921173254573332, -0.090909054336542949,
                      0.11111111071532268, -0.14285714285499319, 0.19999999999999550, -0.33333333333333333);
}
template <class T> OP T angle_of(T small, T large, T turns, bool down) {    // 0 <= small <= large, both finite, large > 0
    constexpr bool wide = sizeof(T) == 8;
    bool upper = small > T(0.72) * large, lower = small < T(0.25) * large;
    T c = upper ? T(1) : lower ? T(0) : T(0.5);
    T s = (small - c * large) / fma(c, small, large), z = s * s, tangent = fma(s * z, atan_series(z), s);
    T base = upper ? T(wide ? 0.78539816339744828 : 0.785398185f) : lower ? T(0) : T(wide ? 0.46364760900080609 : 0.463647604f);
    T rest = upper ? T(wide ? 3.0616169978683830e-17 : -2.18556941e-8f) : lower ? T(0) : T(wide ? 2.2698777452961687e-17 : 5.01215869e-9f);
    base = down ? -base : base;
    T right = turns * T(wide ? 1.5707963267948966 : 1.57079637f), sum = right + base;
    T lost = fma(turns, T(wide ? 6.1232339957367660e-17 : -4.37113883e-8f), (right - sum) + base);
    return sum + (down ? lost - (rest + tangent) : lost + (rest + tangent));
}
template <class T> OP T atan2_of(T y, T x) {
    T a = abs_of(y), b = abs_of(x), small = a > b ? b : a, large = a > b ? a : b;
    bool right = with_sign(T(1), x) > T(0), steep = a > b, endless = large == T(inf);
    // no sum is inf, no half is rounded
    T scale = large > T(1e30) ? T(7.8886090522101181e-31) : large < T(1e-20) ? T(1.2676506002282294e30) : T(1);
    small = endless ? (small == large ? T(1) : T(0)) : small * scale;
    large = endless | (large == T(0)) ? T(1) : large * scale;
    T angle = angle_of(small, large, steep ? T(1) : right ? T(0) : T(2), steep == right);
    angle = (x == x) & (y == y) ? angle : x + y;
    return with_sign(angle, y);
}
OP float atan2(float y, float x) { return atan2_of(y, x); }
#ifdef __FMA__                                  // elsewhere libm's
OP double atan2(double y, double x) { return atan2_of(y, x); }
OP double atan(double x) {
    double a = __builtin_fabs(x);
    a = a > 1e30 ? 1e30 : a;
    bool steep = a > 1.;
    return __builtin_copysign(angle_of(steep ? 1. : a, steep ? a : 1., steep ? 1. : 0., steep), x);
}
OP double asin(double x) { return atan2_of(x, __builtin_sqrt(fma(-x, x, 1.))); }
OP double acos(double x) { return atan2_of(__builtin_sqrt(fma(-x, x, 1.)), x); }
#endif

template <class T> OP T log1p_or_log(T a, T t) {            // ln(2a) of a large a, ln(1 + t) of others
    constexpr T large = sizeof(T) == 8 ? T(1e18) : T(1e9f);
    T y = log1p(a > large ? a : t);
    return a > large ? y + T(0.69314718055994531) : y;
}
template <class T> OP T asinh_of(T x) {
    T a = abs_of(x), t = a + a * a / (T(1) + root(fma(a, a, T(1))));
    return with_sign(log1p_or_log(a, t), x);
}
template <class T> OP T acosh_of(T x) {
    T u = x - T(1), t = u + root(u * (u + T(2))), y = log1p_or_log(x, t);
    return x < T(1) ? T(nan) : y;
}
template <class T> OP T atanh_of(T x) {
    T a = abs_of(x);
    return with_sign(T(0.5) * log1p((a + a) / (T(1) - a)), x);
}
OP float asinh(float x) { return asinh_of(x); }
OP double asinh(double x) { return asinh_of(x); }
OP float acosh(float x) { return acosh_of(x); }
OP double acosh(double x) { return acosh_of(x); }
OP float atanh(float x) { return atanh_of(x); }
OP double atanh(double x) { return atanh_of(x); }
}  // namespace mini

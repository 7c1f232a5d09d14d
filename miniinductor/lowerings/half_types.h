// bfloat16: memory holds 16 bits, arithmetic is float.  (float16: speed/halves.h)
namespace mini {
enum class bfloat16 : uint16_t {};               // a scalar: a struct in a loop is not vectorized
OP float to_float(bfloat16 x) { return bits<float>((uint32_t)x << 16); }
OP uint32_t half_up(uint32_t u) { return u + 0x7fffu + ((u >> 16) & 1u); }     // nearest, ties to even; NaN stays NaN
// A NaN with bits in its low half can overflow when it is rounded up: 0x7fffffff becomes -0.0.  So a NaN is replaced by 0x7fc00000 first.
// A kernel that reads no float32, float64 or float16 (`any` is false) cannot meet one: the NaNs of arithmetic have a low half of zeros.
template <bool any = true> OP uint32_t rounded(float x) { return any && x != x ? 0x7fc00000u : half_up(bits<uint32_t>(x)); }
template <bool any = true> OP bfloat16 to_bfloat16(float x) { return (bfloat16)(rounded<any>(x) >> 16); }
template <bool any = true> OP float round_bfloat16(float x) { return bits<float>(rounded<any>(x) & 0xffff0000u); }    // and still a float
}  // namespace mini

// float16: memory holds 16 bits, arithmetic is float
namespace mini {
// (Integers, of whose arithmetic gcc makes vectors; _Float16 it converts one by one.)
enum class float16 : uint16_t {};
OP float to_float(float16 x) {          // moved to float's exponent by a product, which also normalizes subnormals
    uint32_t y = (uint32_t)(int32_t)(int16_t)(uint16_t)x;       // copies of the sign in front
    uint32_t u = bits<uint32_t>(bits<float>(y << 13 & 0x8fffe000u) * 5.192296858534828e33f);        // 2^112
    return bits<float>((y & 0x7c00u) == 0x7c00u ? u | 0x7f800000u : u);
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
// The same as a float.  1.5 * 2^13 times the power of two below x is so large that a sum with it has float16's last bit as its own.
OP float round_float16(float x) {
    uint32_t u = bits<uint32_t>(x), power = u & 0x7f800000u;
    power = power < 0x38800000u ? 0x38800000u : power;          // subnormals: one step for all
    float large = bits<float>(power + 0x06c00000u), y = (x + large) - large;
    y = __builtin_fabsf(x) >= 65520.f ? inf : y;
    return bits<float>(bits<uint32_t>(y) | (u & 0x80000000u));
}
}  // namespace mini

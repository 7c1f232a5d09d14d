// A bfloat16 that was computed with as a float, and is still one.
namespace mini {
OP bfloat16 upper_half(float x) { return (bfloat16)(bits<uint32_t>(x) >> 16); }
}  // namespace mini

// One of two values, by a mask of all bits or none that is the same for all lanes.  (Of a condition gcc would make two loops.)
namespace mini {
template <int bytes> struct Word { using type = uint32_t; };
template <> struct Word<8> { using type = uint64_t; };
template <class T> OP T chosen(int64_t mask, T x, T other) {
    using U = typename Word<sizeof(T)>::type;
    return bits<T>((bits<U>(x) & (U)mask) | (bits<U>(other) & ~(U)mask));
}
}  // namespace mini

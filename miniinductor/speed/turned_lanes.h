// to[c*n + r] = from[r*step + c]: n rows become lanes that take turns.  Each vector of the result picks its lanes from those of all rows.
namespace mini {
template <int n, class T> OP void taken_in_turns(const T* from, int64_t row, int64_t column, T* to, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        #pragma GCC unroll 8
        for (int r = 0; r < n; r++) to[k * n + r] = from[k * column + r * row];
}
#if defined __AVX512BW__ && !defined __clang__
template <int n, int width, class U> struct Turns {     // which lane of the first row or of the next one; of what is there or of a later row
    U lanes[n][n][width];
    constexpr Turns() : lanes() {
        for (int j = 0; j < n; j++)
            for (int r = 0; r < n; r++)
                for (int i = 0; i < width; i++) {
                    int c = (j * width + i) / n, row = (j * width + i) % n;
                    lanes[j][r][i] = row == r ? (r ? width : 0) + c : r == 1 ? c : i;
                }
    }
};
template <int bytes> struct Lane { using type = uint16_t; };
template <> struct Lane<4> { using type = uint32_t; };
template <> struct Lane<8> { using type = uint64_t; };
template <int n, class T> OP void interleave(const T* from, int64_t step, T* to, int64_t count) {
    using U = typename Lane<sizeof(T)>::type;
    constexpr int width = 64 / sizeof(T);
    if (sizeof(T) == 1 || count < width) return taken_in_turns<n>(from, step, 1, to, count);
    typedef U Row __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
    static constexpr Turns<n, width, U> turns;
    for (int64_t next = 0; next < count; next += width) {
        int64_t c = next + width <= count ? next : count - width;       // the last vector may overlap the one before
        Row rows[n];
        #pragma GCC unroll 8
        for (int r = 0; r < n; r++) rows[r] = *(const Row*)(from + r * step + c);
        #pragma GCC unroll 8
        for (int j = 0; j < n; j++) {
            Row found = rows[0];
            #pragma GCC unroll 8
            for (int r = 1; r < n; r++) found = __builtin_shuffle(found, rows[r], *(const Row*)turns.lanes[j][r]);
            *(Row*)(to + c * n + j * width) = found;
        }
    }
}
#else
template <int n, class T> OP void interleave(const T* from, int64_t step, T* to, int64_t count) { taken_in_turns<n>(from, step, 1, to, count); }
#endif
}  // namespace mini

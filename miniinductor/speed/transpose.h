namespace mini {
// --- transposed access -------------------------------------------------------------------------------------------------------
// to[c][r] = from[r][c].  Blocks of 4-byte elements lie in BLOCK vectors and are exchanged in log2(BLOCK) rounds: 1x1, then 2x2, ...
// Elements of 2 bytes do so in vectors of half as many bytes: as many vectors as there are registers for.
#ifndef __clang__
#ifdef __AVX512F__
constexpr int BLOCK = 16;
#else
constexpr int BLOCK = 8;
#endif
template <class T> OP void transpose_block(const T* from, int64_t step, T* to, int64_t to_step) {
    typedef T Row __attribute__((vector_size(BLOCK * sizeof(T)), aligned(sizeof(T)), may_alias));
    Row rows[BLOCK], lanes;
    #pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++) rows[i] = *(const Row*)(from + i * step), lanes[i] = i;
    #pragma GCC unroll 16
    for (T half = 1; half < BLOCK; half *= 2)
        #pragma GCC unroll 16
        for (int i = 0; i < BLOCK; i++)
            if (!(i & half)) {
                Row a = rows[i], b = rows[i + half];
                rows[i] = __builtin_shuffle(a, b, (lanes & half) != 0 ? lanes - half + (T)BLOCK : lanes);
                rows[i + half] = __builtin_shuffle(a, b, (lanes & half) != 0 ? lanes + (T)BLOCK : lanes + half);
            }
    #pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++) *(Row*)(to + i * to_step) = rows[i];
}
template <int bytes> struct Bits { using type = uint32_t; };
template <> struct Bits<2> { using type = uint16_t; };
#endif
template <class T> OP void transpose(const T* from, int64_t step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
    int64_t whole_rows = 0, whole_columns = 0;
#ifndef __clang__
    if constexpr (sizeof(T) == 4 || sizeof(T) == 2) {
        using U = typename Bits<sizeof(T)>::type;
        whole_rows = rows / BLOCK * BLOCK, whole_columns = columns / BLOCK * BLOCK;
        for (int64_t r = 0; r < whole_rows; r += BLOCK)
            for (int64_t c = 0; c < whole_columns; c += BLOCK)
                transpose_block<U>((const U*)from + r * step + c, step, (U*)to + c * to_step + r, to_step);
    }
#endif
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++) to[c * to_step + r] = from[r * step + c];
}
}  // namespace mini

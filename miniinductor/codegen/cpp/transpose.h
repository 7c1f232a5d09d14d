namespace mini {
// --- transposed access -------------------------------------------------------------------------------------------------------
// to[c][r] = from[r][c].  Blocks of 4-byte elements lie in BLOCK vectors and are exchanged in log2(BLOCK) rounds: 1x1, then 2x2, ...
// Elements of 2 bytes do so in vectors of half as many bytes: as many vectors as there are registers for.
#ifndef __clang__
#ifdef __AVX512F__
constexpr int LARGEST_BLOCK = 16;
#else
constexpr int LARGEST_BLOCK = 8;
#endif
template <int BLOCK, class T> OP void transpose_block(const T* const* from, int64_t column, T* to, int64_t to_step) {
    typedef T Row __attribute__((vector_size(BLOCK * sizeof(T)), aligned(sizeof(T)), may_alias));
    Row rows[BLOCK], lanes;
    #pragma GCC unroll 16
    for (int i = 0; i < BLOCK; i++) rows[i] = *(const Row*)(from[i] + column), lanes[i] = i;
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
#ifndef __clang__
// Rows that lie anywhere: that of r begins at from(first + r).  The last block of rows, or columns, may overlap the one before.
template <int BLOCK, class T, class U, class From> OP void transpose_blocks(From from, int64_t first, U* to, int64_t to_step, int64_t rows, int64_t columns) {
    for (int64_t block = 0; block < rows; block += BLOCK) {
        int64_t r = block + BLOCK <= rows ? block : rows - BLOCK;
        const U* starts[BLOCK];
        for (int i = 0; i < BLOCK; i++) starts[i] = (const U*)from(first + r + i);
        for (int64_t next = 0; next < columns; next += BLOCK) {
            int64_t c = next + BLOCK <= columns ? next : columns - BLOCK;
            transpose_block<BLOCK>(starts, c, to + c * to_step + r, to_step);
        }
    }
}
#endif
template <class T, class From> OP void transpose_rows(From from, int64_t first, T* to, int64_t to_step, int64_t rows, int64_t columns) {
#ifndef __clang__
    if constexpr (sizeof(T) == 4 || sizeof(T) == 2) {
        using U = typename Bits<sizeof(T)>::type;
        int64_t fewer = rows < columns ? rows : columns;
        if (fewer >= LARGEST_BLOCK) return transpose_blocks<LARGEST_BLOCK, T>(from, first, (U*)to, to_step, rows, columns);
        if (fewer >= 8) return transpose_blocks<8, T>(from, first, (U*)to, to_step, rows, columns);
    }
#endif
    for (int64_t r = 0; r < rows; r++) {
        const T* start = from(first + r);
        for (int64_t c = 0; c < columns; c++) to[c * to_step + r] = start[c];
    }
}
template <class T> OP void transpose(const T* from, int64_t step, T* to, int64_t to_step, int64_t rows, int64_t columns) {
    transpose_rows([&](int64_t r) { return from + r * step; }, 0, to, to_step, rows, columns);
}
}  // namespace mini

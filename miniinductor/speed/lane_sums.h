// What the lanes of a loop have gathered, put together two halves at a time.  (gcc ends a reduction of `omp simd` with one addition after
// the other, 16 or 32 of them, each of which waits for the one before.)
namespace mini {
#if defined __AVX512F__
constexpr int VECTOR_BYTES = 64;                // of longer vectors gcc compares single elements
#elif defined __AVX__
constexpr int VECTOR_BYTES = 32;
#else
constexpr int VECTOR_BYTES = 16;
#endif
template <class T, int n> struct Lanes { typedef T type __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias)); };
template <int n, class T, class Both> OP T together(const T* lanes, Both both) {
    if constexpr (n == 1) return lanes[0];
    else if constexpr (n == 2) return both(lanes[0], lanes[1]);    // of vectors of one, gcc makes a branch on which of two is larger
    else {
        constexpr int most = VECTOR_BYTES / sizeof(T), width = n / 2 < most ? n / 2 : most;
        typedef typename Lanes<T, width>::type Part;
        Part part = *(const Part*)lanes;
        for (int k = width; k < n; k += width) part = both(part, *(const Part*)(lanes + k));
        return together<width>((const T*)&part, both);
    }
}
#define OF_LANES(name, text) template <int n, class T> OP T name##_of(const T* lanes) {                                              \
    return together<n>(lanes, [](auto a, auto b) { return text; });                                                                  \
}                                                                                                                                    \
template <class T, int n> OP T name##_of(const T (&lanes)[n]) { return name##_of<n, T>(&lanes[0]); }
OF_LANES(sum, a + b)
OF_LANES(prod, a * b)
OF_LANES(max, maximum(a, b))
OF_LANES(min, minimum(a, b))
OF_LANES(any, a | b)
#undef OF_LANES
}  // namespace mini

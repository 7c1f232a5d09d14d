// Memory for values between two loops of a kernel where their number is not constant: kept by each thread, grown when needed.
namespace mini {
template <class T, int number> OP T* scratch(int64_t count) {
    static thread_local struct Block {
        T* start = nullptr;
        int64_t size = 0;
        ~Block() { __builtin_free(start); }
    } block;
    if (__builtin_expect(block.size < count, 0)) {
        __builtin_free(block.start);
        block.start = (T*)__builtin_malloc(count * sizeof(T));
        block.size = count;
    }
    return block.start;
}
}  // namespace mini

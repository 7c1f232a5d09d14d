namespace mini {
// --- random numbers ------------------------------------------------------------------------------------------------------------
// Counter based: Philox4x32-10 (Salmon et al., 2011) of (seed, offset), so element `offset` of stream `seed` needs no state.
OP uint32_t philox(uint64_t seed, uint64_t offset) {
    uint32_t c0 = (uint32_t)offset, c1 = (uint32_t)(offset >> 32), c2 = 0, c3 = 0;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b; c3 = (uint32_t)a; c0 = n0; c2 = n2;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return c0;
}
OP float rand(int64_t seed, int64_t offset) {               // 24 bits: [0, 1)
    return (float)(philox((uint64_t)seed, (uint64_t)offset) >> 8) * 5.9604644775390625e-8f;
}
}  // namespace mini

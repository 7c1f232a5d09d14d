"""miniinductor: an FX graph in, fused kernels out."""

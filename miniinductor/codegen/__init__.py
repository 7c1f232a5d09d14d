"""Fused groups in, source code out: C++ kernels (`cpp`), the Python wrapper that calls them
(`wrapper`)."""

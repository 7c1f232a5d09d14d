"""Fused groups in, source code of C++ kernels out (`cpp`)."""

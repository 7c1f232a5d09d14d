"""Kernels for GPUs: Triton sources, their builds and measurements."""

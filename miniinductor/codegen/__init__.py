"""Fused groups in, kernels out: what all languages share, and a folder for each of them."""

"""Decompositions, and lowerings of pools, scans, variances, extremes and random numbers.

Each file registers what it adds when it is imported (`@lower`, `@decomposition`).  What no file
registers runs as an eager kernel.
"""

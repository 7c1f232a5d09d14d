"""Lowerings and decompositions that no transformer needs.

Each file registers what it adds when it is imported (`@lower`, `@decomposition`); `coverage.py`
imports them all.  What a file no longer registers runs as an eager kernel.
"""

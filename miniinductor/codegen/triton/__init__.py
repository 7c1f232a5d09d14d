"""Kernels for GPUs: Triton sources, their builds and measurements, CUDA graphs, library attention.

In:   the registries of devices.py.  Out: entries in them, made by the modules of this folder when
      they are imported (compile.py imports them).  The core imports nothing of this folder:
      without it programs on the CPU work as before, and those on a GPU run eagerly, which is
      recorded.
"""

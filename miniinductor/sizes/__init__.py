"""Sizes that are not known when kernels are written: one algebra for both packages.

The files, in the order in which one needs the other:

* `expressions`: division and remainder as sympy functions
* `printing`: expressions as Python, C and Triton
* `intervals`: the lowest and highest value of an expression
* `ranges`: what follows from the ranges of loop variables
* `prover`: what follows from guards
* `floats`: what is computed from sizes in floating point
* `symbols`: from `torch.SymInt` to expressions and back; hints; what holds for all sizes

minidynamo makes the symbols (`minidynamo/shapes/symbolic_shapes.py`), miniinductor writes kernels
with them.  Mirrors torch/utils/_sympy and torch/_inductor/sizevars.py (paper section 5).
"""

"""Sizes that are not known when kernels are written: one algebra for both packages.

The files, in the order in which one needs the other:

* `expressions`: division and remainder as sympy functions, floats, text in three languages
* `prover`: the lowest and highest value of an expression, and what follows from guards
* `symbols`: from `torch.SymInt` to expressions and back; hints; what holds for all sizes; what
  follows from the ranges of loop variables

minidynamo makes the symbols (`minidynamo/shapes/symbolic_shapes.py`), miniinductor writes kernels
with them.  Mirrors torch/utils/_sympy and torch/_inductor/sizevars.py (paper section 5).
"""

"""Indices as text of Triton kernels; importing this file registers the printer.

>>> x = sympy.Symbol("x", integer=True, nonnegative=True)
>>> index_text(FloorDiv(x, 3), "triton")
'x//3'
"""

from ..sizes.printing import LANGUAGES, IndexPrinter, index_text

__all__ = ["TritonPrinter", "index_text"]


class TritonPrinter(IndexPrinter):
    language = "triton"
    divide = "//"
    functions = "integer_{}"


LANGUAGES["triton"] = TritonPrinter()

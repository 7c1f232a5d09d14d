"""Indices as text of Triton kernels; importing this file registers the printer.

`index_text(expr, "triton")` writes x // 3 where C has x / 3.
"""

from ..sizes.printing import LANGUAGES, IndexPrinter, index_text

__all__ = ["TritonPrinter", "index_text"]


class TritonPrinter(IndexPrinter):
    language = "triton"
    divide = "//"
    functions = "integer_{}"


LANGUAGES["triton"] = TritonPrinter()

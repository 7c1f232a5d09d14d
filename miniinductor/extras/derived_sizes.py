"""Sizes that the wrapper computes in Python, before the kernels are called: int(n * 0.3).

s0 = arg0.size(0)
n_3f1c84a2b5d6 = math.trunc((float(s0) * 0.3))
"""

import sympy

from ..hooks import extends
from ..more.float_sizes import MEANING
from ..sizes.printing import python_code
from ..wrapper import WrapperWriter


@extends(WrapperWriter)
class DerivedSizes(WrapperWriter):
    def symbol(self, symbol: sympy.Symbol) -> str:
        if symbol in MEANING:
            for part in MEANING[symbol].free_symbols:
                self.symbol(part)
        return super().symbol(symbol)

    def symbol_lines(self) -> list[str]:
        derived = sorted(self.symbols & MEANING.keys(), key=str)
        return super().symbol_lines() + [f"{s} = {python_code(MEANING[s])}" for s in derived]

"""Ints that change and are 0 or 1 now: a counter's first steps (`state["step"] += 1`); with
dynamic=True, ints in containers.

In:   an int argument, attribute or item that had another value in an earlier compilation.
Out:  a symbol that is at least 0, where without this file it is a number until it has reached 2.

    >>> step(x, 0)        # compiled for 0
    >>> step(x, 1)        # compiled for all n >= 0
    >>> step(x, 2)        # nothing is compiled

Sizes stay numbers below 2: broadcasting depends on them.  An int that is used as a size is asked
whether it is 0 or 1, which makes it a number as before.  Negative ints are numbers, too.  Mirrors
`create_unspecified_symbol` of torch/fx/experimental/symbolic_shapes.py.
"""

import sympy

from miniinductor.sizes.prover import LARGEST, Symbol

from .extending import extends
from ..dynamic import SizePolicy
from ..graph_capture import OutputGraph
from ..sources import Source
from ..symbolic_shapes import ShapeEnv

from ..variables.symbolic import SymVar

plain_of_int, plain_symbolic_int = SizePolicy.of_int, OutputGraph.symbolic_int
SMALL = (0, 1)
# the kinds of sources by which an argument, or an item of one, is reached
ARGUMENT = {"local", "item", "list_item", "tuple_item", "dict_item"}


@extends(SizePolicy)
class SmallInts(SizePolicy):
    def of_int(self, value: int, source: Source) -> bool:
        chosen = plain_of_int(self, value, source)
        name = source.name()
        if chosen or value not in SMALL or name in self.pinned:
            return chosen
        is_met = bool(self.met) and self.met[-1][0] == name
        if not is_met or not self.changed(name, int, value):
            return False
        self.met[-1] = (name, int, value, True)
        return True

    def is_argument(self, source: Source) -> bool:
        node: Source | None = source
        while node is not None and node.kind in ARGUMENT:
            node = node.base
        return node is None


@extends(OutputGraph)
class SmallSymbols(OutputGraph):
    def symbolic_int(self, value: int, source: Source) -> SymVar:
        if value not in SMALL:
            return plain_symbolic_int(self, value, source)
        made = nonnegative(self.shape_env, value, source)
        self.add_symbols()
        return SymVar(self.shape_env.wrap(made), source=source)


def nonnegative(env: ShapeEnv, hint: int, source: Source) -> sympy.Symbol:
    """A new symbol that may be 0, or any other natural number."""
    number = sum(row.hint is not None for row in env.table.values())
    symbol = sympy.Symbol(f"s{number}", integer=True, nonnegative=True)
    env.table[symbol] = Symbol(symbol, hint, [source], 0, LARGEST, env.where())
    return symbol

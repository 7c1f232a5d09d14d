"""The strategies of the C++ writer, in the order in which they are asked (codegen/strategy.py)."""

from ..codegen.strategy import STRATEGIES
from .rows import Rows
from .spread import Spread
from .tables import Tables
from .tiles import Tiles

STRATEGIES += [Rows, Spread, Tiles, Tables]

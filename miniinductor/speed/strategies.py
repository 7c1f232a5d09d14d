"""The strategies of the C++ writer, in the order in which they are asked (codegen/strategy.py)."""

from ..codegen.strategy import STRATEGIES
from .reduced_pieces import ReducedPieces
from .rows import Rows
from .scattered_rows import ScatteredRows
from .spread import Spread
from .tables import Tables
from .tiles import Tiles
from .uniform_masks import UniformMasks

STRATEGIES += [UniformMasks, Rows, ReducedPieces, Spread, Tiles, Tables, ScatteredRows]
